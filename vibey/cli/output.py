"""Output: how commands print. People get short lines and tables that fit their terminal, programs one JSON object."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from vibey.services.display import clock, database, lasting, many, outside_cap, percent, plain, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "Column",
    "cell",
    "clock",
    "coloured",
    "console",
    "database",
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
UNBOUNDED = 240
PROGRESS_SECONDS = 0.2
# What JSON lets stand as it is, and a terminal obeys or hides: deletions, 8-bit controls, turns of direction.
_OBEYED = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
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


def console(*, stderr: bool = False) -> Console:
    """A console for people; colours only on a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    bounded = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=None if bounded else UNBOUNDED)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object, on one line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    click.echo(_OBEYED.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text))


def print_raw(text: str) -> None:
    """Print what a program has printed: to a terminal only its colours, elsewhere as it is."""
    click.echo(coloured(text) if sys.stdout.isatty() else text, nl=False)


def note(line: str) -> None:
    """Tell a person something beside the output: on standard error."""
    click.echo(line, err=True)


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, headed: bool = True) -> Table:
    """A table without lines; a cell is shown by its text, coloured where it is a known state."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=headed)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        made.add_column(
            column.title,
            justify=justify,
            overflow="fold",
            no_wrap=not column.wide,
            min_width=8 if column.wide else None,
        )
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


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
    return Text(shown, style=STYLES.get(shown, ""))


def coloured(text: str) -> str:
    """As `plain`, but tabs and colours stay, and nothing is written over a line that stands."""
    lines = re.sub(r"\r\n?", "\n", text)
    parts = _COLOUR.split(lines)
    # Every second part is a colour.
    shown = [part if at % 2 else "\t".join(map(plain, part.split("\t"))) for at, part in enumerate(parts)]
    return "".join(shown) + (_COLOURS_OFF if len(parts) > 1 else "")
