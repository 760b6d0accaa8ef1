"""Failures: how the command line reports an exception, and the exit code it leaves with.

A person gets one line on standard error. A program that asked for `--json` gets one object on standard output, with
nothing beside it: `{"error": {"kind": …, "message": …, "fix": …}}`. `kind` is a stable word: that of the error's class
(`vibey.domain.errors`), or one of `COMMAND_LINE_KINDS` for what only the command line meets.
"""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from vibey.cli.output import plain, print_json
from vibey.domain.errors import VibeyError
from vibey.domain.faults import fault_of_os

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.cli.surroundings import OutputError

INTERRUPTED = 130
COMMAND_LINE_KINDS = {
    "usage": (2, "The command line cannot be understood: an unknown command or option, or a value that is not usable."),
    "file": (2, "A file or folder cannot be used: it is missing, not permitted, or of another kind."),
    "interrupted": (INTERRUPTED, "Ctrl-C, or a signal that means the same, ended the command."),
    "output": (1, "Standard output could not be written, as on a full disk; reported on standard error alone."),
    "internal": (1, "A fault of Vibey itself."),
}
SEE_WHERE = "set VIBEY_DEBUG=1 to see where"


class Interrupted(click.Abort):
    """An interrupt that a command has handled; `state` says what became of what the command had started."""

    def __init__(self, state: str) -> None:
        self.state = state
        super().__init__(state)


@dataclass(frozen=True, slots=True)
class Failure:
    """What is reported of an exception. `line` is what a person reads; None prints nothing."""

    kind: str
    message: str
    fix: str
    exit_code: int
    line: str | None

    def to_json(self) -> dict[str, Any]:
        """The object a program gets."""
        return {"error": {"kind": self.kind, "message": self.message, "fix": self.fix}}


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON, be they usable otherwise or not."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def failure_of(error: BaseException) -> Failure:
    """What to report of an exception that no command handled."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return _interrupted(error)
    if isinstance(error, click.ClickException):
        return _misused(error)
    if isinstance(error, VibeyError):
        return Failure(error.word, error.message, error.fix, error.exit_code, f"vibey: {error}")
    if isinstance(error, OSError):
        fault = fault_of_os(error)
        if fault is not None:
            return failure_of(fault)
        if (failure := _unusable_file(error)) is not None:
            return failure
    summary = (f"{type(error).__name__}: {error}".splitlines() or [""])[0]
    message = f"internal error: {summary}"
    return Failure("internal", message, SEE_WHERE, 1, f"vibey: {message}; {SEE_WHERE}")


def unwritten(error: OutputError) -> Failure:
    """What to report where standard output could not be written."""
    fix = "make room, or send it elsewhere; what the command did besides printing is done"
    message = f"standard output cannot be written: {error.strerror}"
    return Failure("output", message, fix, 1, f"vibey: {message}; {fix}")


def report(failure: Failure, *, as_json: bool) -> int:
    """Print a failure for the one who asked; returns the exit code."""
    if as_json:
        print_json(failure.to_json())
    elif failure.line is not None:
        click.echo(plain(failure.line), err=True)
    return failure.exit_code


def show_traceback(error: BaseException) -> None:
    """Print where an error came from, if $VIBEY_DEBUG asks for it."""
    is_wanted = os.environ.get("VIBEY_DEBUG", "") not in {"", "0"}
    if is_wanted and not isinstance(error, click.ClickException):
        traceback.print_exception(error)


def silence_output() -> None:
    """Let standard output go nowhere, so that the interpreter's last flush of it cannot fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unusable_file(error: OSError) -> Failure | None:
    """What to report of a file that an error names, or of a working folder that was removed."""
    reason = error.strerror or type(error).__name__
    if error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        message = f"{name}: {reason}"
        fix = "check that it is there and that this user may use it"
    elif not _has_working_folder():
        message, fix = "the working folder does not exist any more", "change to another folder"
    else:
        return None
    return Failure("file", message, fix, COMMAND_LINE_KINDS["file"][0], f"vibey: {message}; {fix}")


def _has_working_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  nothing is made of it
    except OSError:
        return False
    return True


def _interrupted(error: BaseException) -> Failure:
    state = error.state if isinstance(error, Interrupted) else ""
    message = f"interrupted; {state}" if state else "interrupted"
    return Failure("interrupted", message, "run the command again", INTERRUPTED, f"vibey: {message}")


def _misused(error: click.ClickException) -> Failure:
    message = " ".join(error.format_message().split())
    context = error.ctx if isinstance(error, click.UsageError) else None
    fix = f"see: {context.command_path} --help" if context else "see: vibey --help"
    line = f"vibey: {message} ({fix})" if context else f"vibey: {message}"
    return Failure("usage", message, fix, COMMAND_LINE_KINDS["usage"][0], line)
