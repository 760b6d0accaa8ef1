"""The command line: every command with its arguments, options and examples, as Click knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from docs.generate.markdown import code, table, words
from vibey.cli.command import Command
from vibey.cli.failures import INTERRUPTED
from vibey.cli.main import COMMANDS, cli

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# Command line

`vibey [-c FILE] COMMAND`. The configuration is `FILE`, else `$VIBEY_CONFIG`, else `./vibey.toml`. Every reporting
command takes `--json` and then prints one object with stable keys on standard output; notes for a person go to standard
error. With `VIBEY_DEBUG=1` an error shows where it came from. The manual page (`man vibey`) has the same; pip installs
it where `man` finds it while the folder of the command is on the `PATH`.
"""
CODES = (
    ("0", "done, and good"),
    ("1", "a check or a job failed"),
    ("2", "the command, or the configuration, cannot be understood"),
    ("3", "refused: well formed, but the state of the installation does not allow it"),
    ("4", "a service is unreachable, or its schema is another version's"),
    (str(INTERRUPTED), "interrupted"),
)


def page() -> str:
    """The page: exit codes, then the commands by what they are for."""
    lead = "What can be told is listed under [errors](errors.md), each with its code."
    parts = [INTRODUCTION, "## Exit codes", lead, table(("code", "meaning"), CODES)]
    context = click.Context(cli, info_name="vibey")
    for heading, names in COMMANDS.items():
        parts.append(f"## {heading}")
        for name in names:
            command = cli.get_command(context, name)
            if command is not None:
                parts += _command(command, name, context, "###")
    return "\n\n".join(parts)


def _command(command: click.Command, name: str, parent: click.Context, level: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{level} `{context.command_path}`"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {pieces}\n```"
    yield _help(command)
    rows = list(_options(command, context))
    if rows:
        yield table(("option", "meaning"), rows)
    if isinstance(command, Command) and command.examples:
        examples = "\n".join(command.examples)
        yield f"```text\n{examples}\n```"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            if child is not None:
                yield from _command(child, each, context, "####")


def _help(command: click.Command) -> str:
    text = (command.help or "").replace("\b\n", "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).replace("<", "\\<").replace("*", "\\*")


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            names, meaning = record
            yield code(names), words(meaning)
