"""Transcript: rows of a run's transcript on standard output, folded to the terminal, with colours only on one."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from vibey.engines.transcripts.rows import Row

_STYLES: dict[str, dict[str, Any]] = {
    "thought": {"dim": True, "italic": True},
    "tool": {"fg": "cyan", "bold": True},
    "result": {"dim": True},
    "failed": {"fg": "red"},
    "file": {"fg": "cyan", "bold": True},
    "hunk": {"fg": "cyan"},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
    "note": {"dim": True},
    "error": {"fg": "red", "bold": True},
    "usage": {"bold": True},
}


def show(batches: Iterable[list[Row]], lines: int | None = None) -> None:
    """Print rows as they come, or only the last so many once all are there."""
    page = _Page()
    if lines is not None:
        page.print(deque((row for batch in batches for row in batch), maxlen=lines))
        return
    for batch in batches:
        page.print(batch)


class _Page:
    """The width that rows are folded to."""

    def __init__(self) -> None:
        self._width = output.screen_width(sys.stdout)
        self._is_terminal = sys.stdout.isatty()
        self._console: Console | None = None

    def print(self, rows: Iterable[Row]) -> None:
        """Print these rows at once: a call for each would take most of the time."""
        text = "".join(line for row in rows for line in self._lines(row))
        if text:
            click.echo(text, nl=False, color=True)

    def _lines(self, row: Row) -> Iterator[str]:
        if row.style == "line":
            yield f"{output.coloured(row.text) if self._is_terminal else row.text}\n"
            return
        style = _STYLES.get(row.style) if self._is_terminal else None
        for line in self._folded(row.text, self._width - len(row.before)):
            yield f"{row.before}{click.style(line, **style) if style and line else line}\n"

    def _folded(self, text: str, width: int) -> Iterable[str]:
        # No character takes more than two columns, but for a tab.
        if len(text) * (1 if text.isascii() else 2) <= width and "\t" not in text:
            return (text,)
        if width >= output.UNBOUNDED // 2:
            return (text,)
        from rich.text import Text

        self._console = self._console or output.console()
        shown = Text(text.expandtabs(4))
        return [line.plain.rstrip() for line in shown.wrap(self._console, width, overflow="fold")] or [""]
