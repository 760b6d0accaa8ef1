"""Output: how commands print. People get short lines and tables that fit their terminal, programs one JSON object."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from vibey.services.display import cap, clock, database, lasting, many, outside_cap, percent, plain, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = [
    "Column",
    "Table",
    "cap",
    "cell",
    "clock",
    "coloured",
    "console",
    "database",
    "facts",
    "lasting",
    "many",
    "note",
    "outside_cap",
    "percent",
    "plain",
    "print_json",
    "size",
    "table",
]

# What is read by a program, or kept in a file, is not folded to anybody's screen.
UNBOUNDED = 1_000_000
# A narrower screen is treated as one of this width: its terminal folds the lines.
NARROWEST = 20
# The width of a terminal that does not know its own.
DEFAULT_WIDTH = 80
# Columns between two columns of a table.
GAP = 2
# A wide column is not made narrower than this; where that is not enough, each row is shown as lines of its own.
LEAST_WIDE = 12
PROGRESS_SECONDS = 0.2
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_COLOURS_OFF = "\x1b[0m"
STYLES = {
    "succeeded": "green",
    "ok": "green",
    "closed": "green",
    "running": "cyan",
    "granted": "cyan",
    "failed": "red",
    "fail": "red",
    "lost": "red",
    "open": "red",
    "cancelled": "yellow",
    "withdrawn": "yellow",
    "warn": "yellow",
    "half_open": "yellow",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `wide` columns give way and fold when the terminal is narrow; `right` aligns numbers."""

    title: str
    right: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table without lines that loses no character at any width.

    The wide columns give way first. Where they would become narrower than `LEAST_WIDE`, each row is shown below
    another, a line or more for each of its cells, with the column's title before it.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    headed: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Rich's protocol: the lines at the width there is."""
        yield from self.lines(console, options.max_width)

    def lines(self, console: Console, width: int) -> Iterator[Text]:
        """The lines of the table on a screen of this width."""
        widths = self._widths(width)
        if widths is None:
            yield from self._records(console, width)
            return
        if self.headed:
            yield from _beside(console, self._titles(), widths, self.columns)
        for row in self.rows:
            yield from _beside(console, row, widths, self.columns)

    def _titles(self) -> list[Text]:
        from rich.text import Text

        return [Text(column.title, style="bold") for column in self.columns]

    def _widths(self, width: int) -> list[int] | None:
        """The width of each column, None where they do not fit beside one another."""
        shown = [self._titles(), *self.rows] if self.headed else self.rows
        natural = [max((_width(row[at]) for row in shown), default=0) for at in range(len(self.columns))]
        room = width - GAP * (len(self.columns) - 1)
        if sum(natural) <= room:
            return natural
        least = [
            min(need, max(LEAST_WIDE, len(column.title))) if column.wide else need
            for need, column in zip(natural, self.columns, strict=True)
        ]
        if sum(least) > room:
            return None
        # The narrow ones get what they need, the others an equal part of what is left.
        level = LEAST_WIDE
        while sum(min(need, max(low, level + 1)) for need, low in zip(natural, least, strict=True)) <= room:
            level += 1
        return [min(need, max(low, level)) for need, low in zip(natural, least, strict=True)]

    def _records(self, console: Console, width: int) -> Iterator[Text]:
        """Every row as lines of a title and a cell, with an empty line between two rows."""
        from rich.text import Text

        titles = self._titles()
        label = min(max(map(_width, titles), default=0), width // 2)
        for number, row in enumerate(self.rows):
            if number and self.headed:
                yield Text()
            for title, shown in zip(titles, row, strict=True):
                if self.headed and label:
                    yield from _beside(console, [title, shown], [label, width - label - GAP], [Column("")] * 2)
                else:
                    yield from _beside(console, [shown], [width], [Column("")])


def console(*, stderr: bool = False) -> Console:
    """A console for people; colours only on a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=screen_width(stream))


def screen_width(stream: IO[str]) -> int:
    """The width to lay out for: what $COLUMNS says, else the terminal's; without a terminal there is no bound."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and len(asked) < len(str(UNBOUNDED)) and int(asked):
        return max(int(asked), NARROWEST)
    if not stream.isatty():
        return UNBOUNDED
    columns = 0
    with suppress(OSError):
        columns = os.get_terminal_size(stream.fileno()).columns
    return max(columns or DEFAULT_WIDTH, NARROWEST)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object, on one line, in ASCII alone: the same bytes whatever the terminal's encoding is."""
    text = json.dumps(value, allow_nan=False)
    # The one character of ASCII beyond the printable ones that JSON lets stand.
    click.echo(text.replace("\x7f", "\\u007f"))


def print_raw(text: str) -> None:
    """Print what a program has printed: to a terminal only its colours, elsewhere as it is."""
    # Without `color` click would take escape sequences out of what does not go to a terminal.
    click.echo(coloured(text) if sys.stdout.isatty() else text, nl=False, color=True)


def note(line: str) -> None:
    """Tell a person something beside the output: on standard error."""
    click.echo(line, err=True)


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, headed: bool = True) -> Table:
    """A table without lines; a cell is shown by its text, coloured where it is a known state."""
    return Table(tuple(columns), [[cell(value) for value in row] for row in rows], headed)


def facts(rows: Iterable[tuple[str, object]], labels: int = 0) -> Table:
    """Labels with what is to be said of each; where that is folded, its lines stand below one another.

    `labels` is the width of the labels, where several such lists are to be in line.
    """
    shown = [(label.ljust(labels), value) for label, value in rows]
    return table((Column(""), Column("", wide=True)), shown, headed=False)


def _beside(
    console: Console, cells: Sequence[Text], widths: Sequence[int], columns: Sequence[Column]
) -> Iterator[Text]:
    """The lines of some cells beside one another, each folded to its width; without blanks at the end."""
    from rich.text import Text

    folded = [shown.wrap(console, max(width, 1), overflow="fold") for shown, width in zip(cells, widths, strict=True)]
    for at in range(max(map(len, folded), default=0)):
        line = Text(no_wrap=True, overflow="ignore")
        for lines, width, column in zip(folded, widths, columns, strict=True):
            piece = lines[at].copy() if at < len(lines) else Text()
            piece.rstrip()
            blanks = " " * max(width - piece.cell_len, 0)
            line.append(blanks if column.right else "")
            line.append_text(piece)
            line.append(" " * GAP if column.right else blanks + " " * GAP)
        line.rstrip()
        yield line


def _width(shown: Text) -> int:
    """The columns that the longest line of a cell takes."""
    return max((line.cell_len for line in shown.split("\n")), default=0)


def check_line(mark: str, state: str, text: str, fix: str = "") -> None:
    """Print what was looked at on one line, its mark in the state's colour, and what mends it on another.

    Only a terminal that is too narrow has longer lines folded, under their own beginning.
    """
    indent = " " * (len(mark) + 2)
    click.echo(f"{click.style(mark, fg=STYLES.get(state))}  {_folded(plain(text), indent)}")
    if fix:
        click.echo(f"{indent}{_folded(plain(fix), indent)}")


def slow(names: Sequence[str]) -> None:
    """Tell a person at a terminal whom we wait for."""
    if sys.stderr.isatty():
        note(f"waiting for {', '.join(names)}")


def confirmed(question: str) -> bool:
    """Ask a person at a terminal; Refused, naming --yes, where there is nobody to ask."""
    from vibey.domain.errors import Refused

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused("this must be confirmed, and there is no terminal to ask at", "use --yes")
    return click.confirm(question, err=True)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A function that shows a person at a terminal what is being done, and how many bytes of it are done."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    shown_at = 0.0

    def show(what: str, done: int, total: int | None) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= PROGRESS_SECONDS:
            shown_at = time.monotonic()
            of = f" of {size(total)}" if total else ""
            click.echo(f"\r{what}: {size(done)}{of}\x1b[K", err=True, nl=False)

    try:
        yield show
    finally:
        if shown_at:
            click.echo("\r\x1b[K", err=True, nl=False)


def _folded(text: str, indent: str) -> str:
    if not sys.stdout.isatty():
        return text
    width = max(20, shutil.get_terminal_size().columns - len(indent))
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    return f"\n{indent}".join(lines)


def cell(value: object) -> Text:
    """A value as a cell; None is a dash, and what a terminal would obey is made visible."""
    from rich.text import Text

    shown = "-" if value is None or value == "" else plain(str(value))
    return Text(_encodable(shown), style=STYLES.get(shown, ""))


def _encodable(text: str) -> str:
    """Text as standard output can encode it: what it cannot is escaped before the table is laid out."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def coloured(text: str) -> str:
    """As `plain`, but tabs and colours stay, and nothing is written over a line that stands."""
    lines = re.sub(r"\r\n?", "\n", text)
    parts = _COLOUR.split(lines)
    # Every second part is a colour.
    shown = [part if at % 2 else "\t".join(map(plain, part.split("\t"))) for at, part in enumerate(parts)]
    return "".join(shown) + (_COLOURS_OFF if len(parts) > 1 else "")
