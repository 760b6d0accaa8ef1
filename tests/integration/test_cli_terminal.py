"""What jobs say, shown on a terminal: nothing of it is obeyed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support.databases import query
from tests.support.fleet import ROOT
from vibey.cli.output import coloured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.commandline import CommandLine

# A title, the clipboard, the screen wiped, a line over another, 8-bit controls, a link, a turn of direction.
ORDERS = "\x1b]0;owned\x07 \x1b]52;c;b3duZWQ=\x07 \x1b[2J safe\rdone \x9b2J \x1b]8;;http://x\x07 \u202egnp \x7f \x08"
SAID = f"\x1b[31mred\x1b[0m\tplain\r\n{ORDERS}\n"
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def obeyed(text: str) -> set[str]:
    """What of a text a terminal would do something about, colours, tabs and ends of lines aside."""
    return {mark for mark in COLOUR.sub("", text) if not mark.isprintable() and mark not in "\n\t"}


@given(st.lists(st.sampled_from(["\x1b", "[", "31m", "0", ";", "\r", "\n", "\t", "a", "\x9b", "\u202e", "\x07"])))
def test_nothing_but_colours_is_obeyed(pieces: list[str]) -> None:
    """However controls are nested or broken, and what is plain stays."""
    text = "".join(pieces)
    shown = coloured(text)
    assert obeyed(shown) == set()
    assert shown.count("a") == text.count("a")


# One command after the other: the start of a process is what takes its time.
COMMANDS = """
import sys
from vibey.cli.main import cli
for line in sys.argv[1:]:
    try:
        cli.main(line.split())
    except SystemExit as done:
        assert done.code == 0, line
    print("-----")
"""


def on_terminal(config: Path, *lines: str) -> list[str]:
    """What each of these commands writes to a terminal."""
    ours, theirs = os.openpty()
    environment = {
        **os.environ,
        "VIBEY_CONFIG": str(config),
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "COLUMNS": "200",
    }
    heard: list[bytes] = []

    def listen() -> None:
        try:
            while piece := os.read(ours, 65536):
                heard.append(piece)
        except OSError:
            return  # the other side is closed

    listener = threading.Thread(target=listen)
    listener.start()
    command = (sys.executable, "-c", COMMANDS, *lines)
    done = subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT, check=False)
    os.close(theirs)
    listener.join()
    os.close(ours)
    assert done.returncode == 0, heard
    # The terminal's own driver ends lines with two marks.
    return b"".join(heard).decode().replace("\r\n", "\n").split("-----\n")[:-1]


def test_terminal_is_not_told_what_to_do(vibey: CommandLine, tmp_path: Path) -> None:
    """Logs and every report of a job that is full of orders to a terminal."""
    job = str(vibey("enqueue", json.dumps({"prompt": ORDERS, ORDERS: 1}), "--json").json["job_id"])
    vibey.route()
    run = vibey.bench.live()[0][0]
    text = SAID.replace("'", "''")
    result = json.dumps({ORDERS: ORDERS}).replace("'", "''")
    query(vibey.bench.url, f"update runs set output_tail = '{text}', detail = '{text}', host = 'far' where id = {run}")
    query(vibey.bench.url, f"update jobs set result = '{result}' where id = {job}")
    lines = (f"logs {job}", f"job {job}", f"job {job} --json", f"explain {job}", "jobs", "ledger", f"logs {job} --json")
    shown = on_terminal(tmp_path / "vibey.toml", *lines)
    assert len(shown) == len(lines)
    for line, text in zip(lines, shown, strict=True):
        assert obeyed(text) == set(), line
    assert "\x1b[31mred\x1b[0m\tplain\n" in shown[0]
    assert json.loads(shown[-1])["text"] == SAID
    # A pipe gets what was printed.
    assert vibey("logs", job).out == vibey("logs", job, "--raw").out == SAID.replace("\r\n", "\n")
