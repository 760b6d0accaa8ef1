"""The output of every command with `--json`, on an installation with data, against its documented description."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest

from tests.support.cli import Cli
from tests.support.databases import query
from tests.support.json_output import command_of, described
from vibey.cli.command import Group
from vibey.cli.json_output import OUTPUTS, Error
from vibey.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.commandline import CommandLine

# Commands that start or stop servers are held against their description where they are tested.
ELSEWHERE = {"backup", "bench", "demo", "down", "init", "migrate", "purge", "restore", "up"}
# Every other command, with data of each kind in what it shows; the last run of the first job has succeeded.
COMMANDS = (
    "apply --check",
    "apply --yes",
    "apply --history",
    "audit",
    "config check",
    "config show",
    "cost",
    "cost -p default -d 2",
    "doctor",
    "engine pause far",
    "engine resume far",
    "engine reset near",
    "engine prefer near 2 --for 1h --why test",
    "engine demote far --for 1h",
    "engines",
    "engine restore far",
    "engine prefer near 1",
    "enqueue {} --key once",
    "enqueue {} --key once",
    "explain 1 --all",
    "explain 2",
    "explain 4",
    "job 1",
    "job 2",
    "job 4",
    "jobs",
    "ledger",
    "ledger --public",
    "logs 1",
    "logs 4",
    "measure --force",
    "mode",
    "new website",
    "pages",
    "project list",
    "project show website",
    "project set website paid_daily_cap=5",
    "prune",
    "replay",
    "replay --what-if cap=3",
    "slots",
    "status",
    "status -p website",
    "config example",
    "config example laptop",
    "cancel --state granted --yes",
    "cancel 4 999",
    "retry 4 999",
)


def with_json(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The commands that take --json, by their whole name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, Group):
            yield from with_json(command, (*path, name))
        elif any("--json" in parameter.opts for parameter in command.params):
            yield " ".join((*path, name))


def test_every_command_with_json_is_described_and_run() -> None:
    """A new command needs a description, and a line here or a test of its own."""
    commands = set(with_json(cli))
    assert commands == OUTPUTS.keys(), "describe it in OUTPUTS of vibey/cli/json_output.py"
    run = {command_of(line.split()) for line in COMMANDS} | {"simulate"}
    assert commands == run | ELSEWHERE, "add it to COMMANDS in this file"


@pytest.fixture
def worked(vibey: CommandLine) -> CommandLine:
    """An installation with a run that succeeded, runs at work, a queued job, a session, and lines of every shape."""
    vibey.enqueued(4, "--session", "warm", "--require", "web")
    vibey.route()
    url = vibey.bench.url
    query(
        url,
        "update runs set state = 'succeeded', host = 'elsewhere', pid = 7, output_tail = 'said', cost_usd = 0.25, "
        "tokens_in = 3, tokens_out = 1, started_at = granted_at, renewed_at = granted_at, ended_at = granted_at "
        "where job_id = 1",
    )
    query(url, "update jobs set state = 'succeeded', reason = 'succeeded', result = '{\"a\": [1]}', "
               "run_id = null, ended_at = now() where id = 1")  # fmt: skip
    return vibey


def test_every_command_prints_what_is_documented(worked: CommandLine, tmp_path: Path) -> None:
    """One object on one line, in ASCII, with the documented keys and no others."""
    for line in COMMANDS:
        said = worked(*line.split(), "--json")
        assert said.out.isascii(), line
        described(command_of(line.split()), said.json)
    trace = tmp_path / "trace.jsonl"
    lines = (json.dumps({"at": at, "job": str(at), "seconds": {"*": 60}}) for at in range(3))
    trace.write_text("\n".join(lines), encoding="utf-8")
    described("simulate", worked("simulate", "--trace", trace, "--json").json)


def test_every_form_of_apply_prints_what_is_documented(vibey: CommandLine) -> None:
    """With nothing to do, with a difference, and on the way back."""
    vibey.set_default(paid_daily_cap=7)
    for line in ("--check", "--yes", "--undo --check", "--undo --yes", "--check", "--yes", "--history"):
        described("apply", vibey("apply", *line.split(), "--json").json)


def test_a_batch_prints_what_is_documented(vibey: CommandLine) -> None:
    """A batch has an object of its own."""
    described("enqueue", vibey("enqueue", "--batch", "-", "--json", stdin="{}\n{}\n").json)


def test_a_job_that_is_waited_for_prints_what_is_documented(vibey: CommandLine) -> None:
    """What became of it is in the same object, alone and in a batch."""
    (job,) = vibey.enqueued(1, "--key", "done", "--title", "a title", "--label", "team=web")
    vibey("cancel", job)
    described("enqueue", vibey("enqueue", "{}", "--key", "done", "--wait", "--json").json)
    line = json.dumps({"idempotency_key": "done"})
    described("enqueue", vibey("enqueue", "--batch", "-", "--wait", "--json", stdin=line).json)
    described("job", vibey("job", job, "--json").json)


def test_starting_from_nothing_prints_what_is_documented(
    tmp_path: Path, empty_database_url: str, redis_url: str
) -> None:
    """The commands before there is an installation: the schema, and a configuration from what is found here."""
    config = tmp_path / "vibey.toml"
    config.write_text(
        f"[services]\ndatabase_url = {json.dumps(empty_database_url)}\nredis_url = {json.dumps(redis_url)}\n",
        encoding="utf-8",
    )
    described("migrate", Cli(config)("migrate", "--json").json)


def test_an_error_has_the_documented_shape(vibey: CommandLine) -> None:
    """Any command's error is the one object that is documented for all."""
    for line in ("job 999", "jobs --limit 0", "nonsense"):
        Error.model_validate(vibey(*line.split(), "--json").json)


def test_a_difference_says_where_to_mend_it() -> None:
    """The message of a failed comparison names the command, the key, the class and the file."""
    printed: dict[str, Any] = {"running": False, "stopped": True, "colour": "red"}
    with pytest.raises(AssertionError, match=r"(?s)`vibey down --json`.*Down in vibey/cli/json_output.py.*colour"):
        described("down", printed)
    with pytest.raises(AssertionError, match="stopped is described and not printed"):
        described("down", {"running": False})
    with pytest.raises(AssertionError, match=r"add it to OUTPUTS in vibey/cli/json_output\.py"):
        described("sing", {})
