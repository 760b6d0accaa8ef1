"""`vibey logs` of a coding client: what people read, at every width, live, and as it was printed."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from tests.integration.test_cli_terminal import COLOUR, obeyed, on_terminal
from tests.support.databases import query
from tests.support.fleet import ROOT
from tests.support.recordings import recordings
from vibey.engines.output import OutputLog
from vibey.services.outputs import output_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.commandline import CommandLine

WORDS = "The build is green again; 漢字 and a very-long-word-" + "x" * 90
EVENTS = (
    {"type": "system", "subtype": "init", "model": "m"},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": f"{WORDS}\x1b]0;owned\x07\x1b[2J"}]}},
    {
        "type": "assistant",
        "message": {
            "content": [
                {
                    "type": "tool_use",
                    "name": "Edit",
                    "input": {"file_path": "a.py", "old_string": "one\ntwo\n", "new_string": f"one\n{'2' * 100}\n"},
                }
            ]
        },
    },
    {"type": "user", "message": {"content": [{"type": "tool_result", "content": "\x1b[31mok\x1b[0m\n" * 9}]}},
    {"type": "result", "result": "Done.", "total_cost_usd": 0.25, "usage": {"input_tokens": 1200, "output_tokens": 34}},
)
TEXT = "a plain line\n" + "".join(json.dumps(event) + "\n" for event in EVENTS)


@pytest.fixture(autouse=True)
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No width is asked for, whatever the tests were started in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def job(vibey: CommandLine) -> Iterator[tuple[int, int, OutputLog]]:
    """A job at work on this machine, its run, and the log that its client writes to."""
    (number,) = vibey.enqueued()
    vibey.route()
    query(vibey.bench.url, "update engines set kind = 'claude-code'")
    query(vibey.bench.url, f"update runs set host = '{socket.gethostname()}', started_at = now(), state = 'running'")
    ((run, _, _),) = vibey.bench.live()
    path = output_of(vibey.bench.installation, run)
    path.parent.mkdir(parents=True)
    log = OutputLog(path)
    yield number, run, log
    log.close()


def ended(vibey: CommandLine) -> None:
    """End every run."""
    query(vibey.bench.url, "update runs set state = 'succeeded', ended_at = now()")


def test_a_client_is_shown_as_people_read_it(vibey: CommandLine, job: tuple[int, int, OutputLog]) -> None:
    """Words, tools with results in short, edits as diffs, usage last; --raw and --json have what was printed."""
    job[2].write(TEXT.encode())
    assert vibey("logs", job[0]).out.splitlines() == [
        "a plain line",
        "- model m",
        WORDS,
        "> edit a.py",
        "    @@",
        "     one",
        "    -two",
        f"    +{'2' * 100}",
        *["    ok"] * 6,
        "    (3 more lines)",
        "Done.",
        "= 1,200 tokens in, 34 out, $0.2500",
    ]
    assert vibey("logs", job[0], "-n", "2").out.splitlines() == ["Done.", "= 1,200 tokens in, 34 out, $0.2500"]
    assert vibey("logs", job[0], "--raw").out == TEXT
    assert vibey("logs", job[0], "--raw", "-n", "1").out == TEXT.splitlines(keepends=True)[-1]
    assert vibey("logs", job[0], "--json").json["text"] == TEXT


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_every_width(vibey: CommandLine, job: tuple[int, int, OutputLog], width: int) -> None:
    """Rows are folded to the width, under their own beginning, and lose no character."""
    job[2].write(TEXT.encode())
    lines = vibey("logs", job[0], COLUMNS=str(width)).out.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert re.sub(r"\s", "", WORDS) in re.sub(r"\s", "", "".join(lines))
    added = lines[lines.index("    -two") + 1 : lines.index("    ok")]
    assert all(line.startswith("    ") for line in added)
    assert "".join(line.strip() for line in added) == "+" + "2" * 100


def test_a_terminal_gets_colours_and_obeys_nothing(
    vibey: CommandLine, job: tuple[int, int, OutputLog], tmp_path: Path
) -> None:
    """Colours only on a terminal, and none of a client's own escapes but the colours of plain lines."""
    job[2].write(TEXT.encode() + b"\x1b[32mgreen\x1b[0m \x1b[2J\n")
    (shown,) = on_terminal(tmp_path / "vibey.toml", f"logs {job[0]}")
    assert obeyed(shown) == set()
    assert "\x1b[32m+2222" in shown
    assert "\x1b[31m-two" in shown
    assert "owned" not in shown
    assert COLOUR.search(vibey("logs", job[0]).out.replace("\x1b[32mgreen\x1b[0m", "")) is None


def test_it_is_followed_live(vibey: CommandLine, job: tuple[int, int, OutputLog]) -> None:
    """Each event appears when it is printed; the end of the run ends it, with its own figures if none were told."""
    environment = {**os.environ, "VIBEY_CONFIG": str(vibey.config), "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "vibey.cli.main", "logs", str(job[0]), "-f")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            for event, row in zip(EVENTS[:2], ("- model m\n", f"{WORDS}\n"), strict=True):
                job[2].write(json.dumps(event).encode())
                job[2].write(b"\n")
                assert process.stdout.readline() == row
            job[2].write(b'{"type": "assi')
            query(vibey.bench.url, "update runs set tokens_in = 5, tokens_out = 6, cost_usd = 0.5")
            ended(vibey)
            assert process.stdout.read().splitlines() == ['{"type": "assi', "= 5 tokens in, 6 out, $0.5000"]
        finally:
            process.kill()
    assert vibey("logs", job[0], "-f", "--raw").out.endswith('{"type": "assi')


def test_the_end_of_a_run_elsewhere_is_read_as_well(vibey: CommandLine, job: tuple[int, int, OutputLog]) -> None:
    """What the database keeps begins anywhere: a torn event is the line it is."""
    stored = 'l": "torn"}\n' + json.dumps(EVENTS[-1])
    query(vibey.bench.url, f"update runs set host = 'elsewhere', output_tail = '{stored}'")
    ended(vibey)
    said = vibey("logs", job[0])
    assert said.out.splitlines() == ['l": "torn"}', "Done.", "= 1,200 tokens in, 34 out, $0.2500"]
    assert "elsewhere" in said.err
    assert vibey("logs", job[0], "-f").out == said.out


@pytest.mark.parametrize("kind", ["codex", "gemini", "opencode", "qwen-code"])
def test_each_client_by_its_kind(vibey: CommandLine, job: tuple[int, int, OutputLog], kind: str) -> None:
    """The engine's kind says how its output is read."""
    recording = next(each for each in recordings() if (each.kind, each.scenario) == (kind, "success"))
    query(vibey.bench.url, f"update engines set kind = '{kind}'")
    job[2].write(recording.output)
    lines = vibey("logs", job[0]).out.splitlines()
    assert lines[-2:] == ["BUILD OK, no 429 here", "= 24 tokens in, 6 out"]
    assert "    [API Error: 429 fake] HTTP 429" in lines


def test_a_model_servers_words_and_what_they_cost(vibey: CommandLine, job: tuple[int, int, OutputLog]) -> None:
    """Its output is text already; the run's own figures come last."""
    query(vibey.bench.url, "update engines set kind = 'openai'")
    job[2].write(b"One.\n\n{}\nTwo")
    query(vibey.bench.url, "update runs set tokens_in = 5, tokens_out = 6, cost_usd = 0.5")
    assert vibey("logs", job[0]).out == "One.\n\n{}\nTwo\n"
    ended(vibey)
    assert vibey("logs", job[0]).out == "One.\n\n{}\nTwo\n= 5 tokens in, 6 out, $0.5000\n"
    assert vibey("logs", job[0], "--raw").out == "One.\n\n{}\nTwo"
