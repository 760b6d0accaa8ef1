"""The manual page `vibey(1)`: every command with its options and examples, as Click knows them, in man(7) macros."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from docs.generate.commandline import CODES
from vibey.cli.command import Command
from vibey.cli.main import COMMANDS, cli

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """\
.\\" Made by `python -m docs.generate` from the code: change that, not this page.
.TH VIBEY 1 "" "Vibey" "User Commands"
.SH NAME
vibey \\- route long, expensive jobs to engines of a mixed fleet
.SH SYNOPSIS
.B vibey
.RB [ \\-c
.IR FILE ]
.I COMMAND
.RI [ ARGUMENTS ]
.SH DESCRIPTION
Vibey routes jobs to local model servers, subscriptions and metered APIs, within their slots and a daily cap, and
records why each job ran where it did, or still waits.
.PP
Every reporting command takes
.B \\-\\-json
and then prints one object on standard output; notes for a person go to standard error."""
TAIL = """\
.SH ENVIRONMENT
.TP
.B VIBEY_CONFIG
The configuration, where no
.B \\-c
names one. Without both it is vibey.toml in the current folder.
.TP
.B VIBEY_DEBUG
With 1 an error shows where it came from."""


def page() -> str:
    """The whole page."""
    context = click.Context(cli, info_name="vibey")
    lines = [HEAD]
    for heading, names in COMMANDS.items():
        lines.append(f'.SH "COMMANDS: {heading.upper()}"')
        for name in names:
            command = cli.get_command(context, name)
            if command is not None:
                lines += _command(command, name, context)
    lines.append('.SH "EXIT STATUS"')
    for code, meaning in CODES:
        lines += [".TP", f".B {code}", _text(meaning)]
    return "\n".join([*lines, TAIL])


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f'.SS "{_text(context.command_path)} {_text(" ".join(command.collect_usage_pieces(context)))}"'
    for paragraph in (command.help or "").replace("\b\n", "").split("\n\n"):
        yield from (".PP", _text(" ".join(paragraph.split())))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            yield from (".TP", f".B {_text(record[0])}", _text(" ".join(record[1].split())))
    if isinstance(command, Command) and command.examples:
        yield from (".PP", "Examples:", ".PP", ".nf", ".RS 4")
        yield from (_text(line) for example in command.examples for line in example.splitlines())
        yield from (".RE", ".fi")
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            if child is not None:
                yield from _command(child, each, context)


def _text(text: str) -> str:
    """Plain text as troff prints it: nothing in it is a macro, an escape or a typographic mark."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    escaped = escaped.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
