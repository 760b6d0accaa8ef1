"""Files: a trace read as a whole, and a file of decisions that is there complete or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, TextIO

from vibey.domain.errors import InvalidInput
from vibey.domain.text import NotText, decode_text
from vibey.simulate.trace import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vibey.settings import Settings
    from vibey.simulate.trace import Trace

BUFFER_BYTES = 1 << 20
LONGEST_LINE = 4_000_000


def read(path: Path, settings: Settings, watch: Callable[[int], object] = lambda _: None) -> Trace:
    """The trace in a file, for the engines of these settings. `watch` hears how many bytes were read.

    Raises `SettingsError` with every problem of the trace, `InvalidInput` when the file cannot be read.
    """
    try:
        with path.open("rb", buffering=BUFFER_BYTES) as file:
            return parse(_lines(file, watch), str(path), settings.engine, settings.capabilities)
    except OSError as error:
        raise InvalidInput("trace", str(path), f"a file that can be read ({error.strerror})") from error


def _lines(file: IO[bytes], watch: Callable[[int], object]) -> Iterator[str]:
    """Lines as text; what is no UTF-8 becomes a mark that no line of a trace can hold, and is told as such."""
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b"")):
        watch(len(line))
        if len(line) > LONGEST_LINE:
            raise InvalidInput(f"trace line {number + 1}", line[:40], f"at most {LONGEST_LINE:,} bytes")
        yield line.decode(errors="surrogateescape") if number else _first_line(line)


def _first_line(line: bytes) -> str:
    try:
        return decode_text(line)
    except NotText as error:
        raise InvalidInput("trace line 1", line[:40], f"UTF-8 text ({error.reason})") from error


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """A text file that takes its name when it is complete; whatever happens before leaves nothing behind.

    What is no ordinary file, such as a pipe, is written to as it is. Raises `InvalidInput` when it cannot be made.
    """
    direct = path.exists() and not path.is_file()
    target = path if direct else path.resolve()
    part = target if direct else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        file = part.open("w", encoding="utf-8", newline="\n", buffering=BUFFER_BYTES)
    except OSError as error:
        raise InvalidInput("out", str(path), f"a file that can be written ({error.strerror})") from error
    try:
        with file:
            yield file
        if not direct:
            part.replace(target)
    except BaseException:
        if not direct:
            part.unlink(missing_ok=True)
        raise
