"""What people type, pipe and keep in files as a job's payload, and what comes of it; odd input has its own line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleet import ROOT
from vibey.client import Vibey
from vibey.domain.errors import InvalidInput
from vibey.services.enqueue import PAYLOAD_LIMIT, Order, order_of, payload_from_text, place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.commandline import CommandLine


def payload(vibey: CommandLine, *arguments: object, stdin: str | bytes | None = None) -> Any:
    """The payload of the job that this command enqueues."""
    said = vibey("enqueue", *arguments, "--json", stdin=stdin)
    assert said.code == 0, said
    return vibey("job", said.json["job_id"], "--json").json["payload"]


def test_text_is_a_prompt_and_an_object_is_the_payload(vibey: CommandLine, tmp_path: Path) -> None:
    """As an argument, from standard input and from a file, with and without a byte order mark."""
    prompt, own = {"prompt": "fix the flaky test"}, {"task": "build"}
    assert payload(vibey, "fix the flaky test") == prompt
    assert payload(vibey, ' {"task": "build"} ') == own
    assert payload(vibey) == {}
    assert payload(vibey, "-", stdin="fix the flaky test\n") == prompt
    assert payload(vibey, "-", stdin='\ufeff{"task": "build"}') == own
    file = tmp_path / "prompt.txt"
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text("Fix [it], now: ü☃\n\nPlease.\n", encoding=encoding)
        assert payload(vibey, "--payload-file", file) == {"prompt": "Fix [it], now: ü☃\n\nPlease."}
    file.write_text('{\n  "task": "build"\n}\n', encoding="utf-8-sig")
    assert payload(vibey, "--payload-file", file) == own
    assert payload(vibey, "[WIP] not JSON at all") == {"prompt": "[WIP] not JSON at all"}


def test_repository_is_absolute_where_it_is_a_folder_here(
    vibey: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is no folder here stays a name; check and ref go with it, beside a prompt or a payload's own keys."""
    (tmp_path / "site").mkdir()
    monkeypatch.chdir(tmp_path / "site")
    here = {"repo": str(tmp_path / "site"), "verify": "unit"}
    assert payload(vibey, "fix it", "--repo", ".", "--verify", "unit") == {"prompt": "fix it", **here}
    assert payload(vibey, "--repo", "../site", "--ref", "main") == {"repo": str(tmp_path / "site"), "ref": "main"}
    assert payload(vibey, "fix it", "--repo", "shop") == {"prompt": "fix it", "repo": "shop"}
    assert payload(vibey, '{"repo": "shop", "n": 1}', "--verify", "unit") == {"repo": "shop", "n": 1, "verify": "unit"}
    assert payload(vibey, '{"repo": "shop"}', "--repo", "shop") == {"repo": "shop"}
    lines = [{"payload": "fix it"}, {"payload": {"repo": "shop"}}, {"payload": {"n": 1}, "repo": "../site"}]
    batch = vibey("enqueue", "--batch", "-", "--repo", ".", "--json", stdin="\n".join(map(json.dumps, lines))).json
    found = [vibey("job", number, "--json").json["payload"] for number in batch["job_ids"]]
    assert found == [
        {"prompt": "fix it", "repo": here["repo"]},
        {"repo": "shop"},
        {"n": 1, "repo": here["repo"]},
    ]


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        ([""], None, "expected the text of a prompt or a JSON object"),
        ([" \n "], None, "expected the text of a prompt or a JSON object"),
        (["-"], "", "expected the text of a prompt or a JSON object"),
        (["[1, 2]"], None, 'as a prompt, write {"prompt": "[1, 2]"}'),
        (["42"], None, "expected a JSON object or the text of a prompt"),
        (["null"], None, "expected a JSON object or the text of a prompt"),
        (['"quoted twice"'], None, r'write {"prompt": "\"quoted twice\""}'),
        (["{fix} the braces"], None, 'as a prompt, write {"prompt": "{fix} the braces"}'),
        (['{"prompt": "fix it"'], None, "one JSON object"),
        (['{"a": 1} {"a": 2}'], None, "one JSON object"),
        (["{" * 10_000], None, "one JSON object"),
        (["-"], b"fix \xff it", "standard input: not UTF-8 text (byte 0xff)"),
        (["-"], "fix\0it", "without NUL"),
        (["-"], "x" * (PAYLOAD_LIMIT + 1), f"at most {PAYLOAD_LIMIT} bytes"),
        (["-"], "x" * 5_000_000, "standard input has more than 4,194,304 bytes"),
        (["--payload-file", "/dev/zero"], None, "/dev/zero has more than"),
        (["fix it", "--payload-file", "-"], "more", "give one of a payload, --payload-file and --batch"),
        (["fix it", "--verify", "unit"], None, "verify: 'unit' is not usable; expected a repo beside it"),
        (['{"repo": "a"}', "--repo", "b"], None, "the same as payload.repo, which is 'a'"),
        (["fix it", "--repo", ""], None, "repo: '' is not usable"),
        (["fix it", "--label", "team"], None, "the form key=value"),
        (["fix it", "--title", "two\nlines"], None, "title: "),
    ],
)
def test_odd_input_has_its_line(
    vibey: CommandLine, arguments: list[str], stdin: str | bytes | None, words: str
) -> None:
    """One line that says what to write instead; nothing is enqueued."""
    said = vibey("enqueue", *arguments, stdin=stdin)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert vibey.bench.value("select count(*) from jobs") == 0


def test_invalid_bytes_as_an_argument(vibey: CommandLine) -> None:
    """An argument that is no UTF-8 is refused like such a file."""
    assert "is not UTF-8 text" in vibey("enqueue", os.fsdecode(b"fix \xff it")).complaint


def test_folder_is_no_payload_file(vibey: CommandLine, tmp_path: Path) -> None:
    """Neither is one that is not there."""
    assert "Is a directory" in vibey("enqueue", "--payload-file", tmp_path).err
    assert "No such file" in vibey("enqueue", "--payload-file", tmp_path / "nothing").err


def test_standard_input_at_a_terminal(vibey: CommandLine, tmp_path: Path) -> None:
    """Somebody who is to type the payload is told so, and how to end it."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": str(tmp_path / "vibey.toml")}
    command = (sys.executable, "-m", "vibey.cli.main", "enqueue", "-", "--json")
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=ROOT
    ) as typed:
        os.close(theirs)
        assert typed.stderr is not None
        assert typed.stderr.readline() == b"type the payload, a prompt or a JSON object, and end it with Ctrl-D\n"
        os.write(ours, b"fix it\n\x04")
        out, _ = typed.communicate(timeout=300)
    os.close(ours)
    assert typed.returncode == 0
    assert vibey("job", json.loads(out)["job_id"], "--json").json["payload"] == {"prompt": "fix it"}


def test_client_takes_text_and_the_same_words(
    vibey: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is a prompt whatever it looks like: a program has the mapping for anything else."""
    monkeypatch.chdir(tmp_path)
    with Vibey(settings=vibey.bench.installation.settings) as client:
        placed = client.enqueue('{"a": 1}', repo=".", verify="unit", title="T", labels={"team": "web"})
        job = vibey("job", placed.job_id, "--json").json
        assert job["payload"] == {"prompt": '{"a": 1}', "repo": str(tmp_path), "verify": "unit"}
        assert (job["title"], job["labels"]) == ("T", {"team": "web"})
        assert client.job(placed).labels == {"team": "web"}
        with pytest.raises(InvalidInput, match="the text of a prompt"):
            client.enqueue(" ")


def test_celery_task_and_batch_take_the_same_words(vibey: CommandLine) -> None:
    """Keyword arguments and the keys of a line; a relative repository of another machine's caller stays a name."""
    words = {"payload": "fix it", "repo": "shop", "ref": "main", "title": "T", "labels": {"team": "web"}}
    by_task = place(vibey.bench.installation, [order_of(words)])[0].job_id
    by_line = vibey("enqueue", "--batch", "-", "--json", stdin=json.dumps(words)).json["job_ids"][0]
    for number in (by_task, by_line):
        job = vibey("job", number, "--json").json
        assert job["payload"] == {"prompt": "fix it", "repo": "shop", "ref": "main"}
        assert (job["title"], job["labels"]) == ("T", {"team": "web"})


def test_options_of_a_job_are_the_same_everywhere() -> None:
    """The fields of `Order`, the client's keywords, the command's options and the keys its help names."""
    from vibey.cli.enqueue import enqueue
    from vibey.client import Wishes

    fields = set(Order.__dataclass_fields__)
    assert set(Wishes.__annotations__) == fields - {"payload"} | {"not_before"}
    options = {parameter.name for parameter in enqueue.params}
    assert options == fields - {"traceparent"} | {"payload_file", "batch", "wait", "as_json"}
    keys = " ".join((enqueue.help or "").split()).partition("any of the keys ")[2].partition(";")[0]
    assert set(keys.split(", ")) == fields - {"traceparent"}


@given(st.text())
def test_any_text_is_a_prompt_an_object_or_an_error(text: str) -> None:
    """What is no JSON at all is taken as it is, blanks around it aside; nothing is guessed about the rest."""
    try:
        found = payload_from_text(text)
    except InvalidInput:
        return
    if isinstance(found, str):
        assert found == text.strip()
        assert not found.startswith("{")
    else:
        assert found == json.loads(text)


def test_a_repository_that_no_root_of_this_machine_has_is_refused(vibey: CommandLine, tmp_path: Path) -> None:
    """A misprint would fail in every attempt, each a unit of the cap on a paid engine; --anyway allows it."""
    (tmp_path / "roots" / "site").mkdir(parents=True)
    with vibey.config.open("a", encoding="utf-8") as file:
        file.write(f'[engine.coder]\nkind = "command"\nargv = ["true"]\nworkspace_roots = ["{tmp_path / "roots"}"]\n')
    assert vibey("apply", "--yes").code == 0
    refused = vibey("enqueue", "fix it", "--repo", "sitte")
    assert refused.code == 3
    assert "there is no repository 'sitte' under the workspace_roots of this machine" in refused.err
    assert vibey("enqueue", '{"repo": "sitte"}').code == 3
    assert vibey.bench.value("select count(*) from jobs") == 0
    assert payload(vibey, "fix it", "--repo", "site") == {"prompt": "fix it", "repo": "site"}
    assert payload(vibey, "fix it", "--repo", "elsewhere", "--anyway")["repo"] == "elsewhere"
