"""Surroundings: what a shell, a service manager or a container may hand to a program, made fit for the commands.

Standard streams may be closed or have an encoding that cannot show every character, and arguments may be bytes that the
locale cannot decode. Each is put right once, before a command sees it.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))


def open_missing_streams() -> None:
    """Let a standard stream that was closed lead nowhere.

    Python has None for it, and the next file or socket that is opened would take its number: what is printed by a
    program that is started later would then end up in a connection to the database.
    """
    for number, (name, flags) in enumerate(STREAMS):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            mode = "r" if flags == os.O_RDONLY else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  stays open


class OutputError(OSError):
    """Standard output could not be written, as on a full disk. A closed pipe stays a BrokenPipeError."""


class _Stream(io.TextIOWrapper):
    """A standard stream that escapes what its encoding lacks, through click as well."""

    @property
    @override
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding; click takes ASCII for a mistake, and would write UTF-8 beside what others write."""
        named = codecs.lookup(super().encoding).name
        return "iso8859-1" if named == "ascii" else named


class _Output(_Stream):
    """Standard output, which names itself in its errors."""

    @override
    def write(self, text: str, /) -> int:
        """Write, or raise OutputError."""
        with _naming_output():
            return super().write(text)

    @override
    def flush(self) -> None:
        """Flush, or raise OutputError."""
        with _naming_output():
            super().flush()


@contextmanager
def _naming_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from error


def prepare_output() -> None:
    """Let output escape what its encoding lacks, such as an emoji in ISO 8859-1, and name itself when it fails."""
    if sys.stderr is sys.__stderr__ and type(sys.stderr) is io.TextIOWrapper:
        encoding = sys.stderr.encoding
        sys.stderr = _Stream(sys.stderr.detach(), encoding, "backslashreplace", line_buffering=True)
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    if sys.stdout is sys.__stdout__ and type(sys.stdout) is io.TextIOWrapper:
        encoding, buffered = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = _Output(sys.stdout.detach(), encoding, "backslashreplace", line_buffering=buffered)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def decoded(arguments: Sequence[str]) -> list[str]:
    """The arguments as text: bytes that the locale could not decode are read as UTF-8 where they are that."""
    return [_decoded(each) for each in arguments]


def _decoded(argument: str) -> str:
    try:
        argument.encode()
    except UnicodeEncodeError:
        return _as_utf8(argument)
    return argument


def _as_utf8(argument: str) -> str:
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        return argument


def is_text(value: str) -> bool:
    """Whether a value can be stored and sent: it holds no byte that could not be decoded, and no half of a pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
