"""Markdown: tables, and text made safe to stand in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def words(text: str) -> str:
    """Plain text as a cell of a table."""
    joined = " ".join(text.split())
    return joined.translate({ord(mark): f"\\{mark}" for mark in "|<>*_[]\\"})


def code(text: str) -> str:
    """Text as code in a cell of a table; nothing stays nothing."""
    joined = text.replace("|", "\\|")
    return f"`{joined}`" if text else ""
