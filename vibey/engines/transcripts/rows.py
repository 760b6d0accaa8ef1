"""Rows: an entry as the rows of text that a terminal and the page show, each with a style by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.engines.transcripts.entries import Entry, Kind
from vibey.engines.transcripts.plaintext import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator

STYLES = ("said", "thought", "tool", "result", "failed", "file", "hunk", "added", "removed", "same", "note", "error")
"""The styles that rows have, beside `usage` and `line`."""
_BEFORE = {Kind.SAID: "", Kind.THOUGHT: "~ ", Kind.NOTE: "- ", Kind.ERROR: "! ", Kind.RESULT: "    "}
_DIFF = {"+": "added", "-": "removed", "@": "hunk"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its style, what stands before it on every line that it is folded to, and its text.

    The text has no escapes and no controls but tabs, but for one of style `line`, which is as it was printed.
    """

    style: str
    before: str
    text: str


def rows_of(entry: Entry) -> Iterator[Row]:
    """The rows of an entry."""
    if entry.kind is Kind.LINE:
        yield Row("line", "", entry.text)
    elif entry.kind is Kind.TOOL:
        yield Row("tool", "> ", _flat(f"{entry.name} {entry.text}"))
    elif entry.kind is Kind.EDIT:
        yield Row("file", "> ", _flat(f"edit {entry.name}"))
        for line in entry.text.split("\n"):
            yield Row(_DIFF.get(line[:1], "same"), "    ", _flat(line))
    elif entry.kind is Kind.USAGE:
        yield Row("usage", "= ", used(entry))
    else:
        style = "failed" if entry.failed else entry.kind.value
        for line in plain_text(entry.text).split("\n"):
            yield Row(style, _BEFORE[entry.kind], line.rstrip())
    if entry.more:
        yield Row("note", "    ", f"({entry.more:,} more line{'' if entry.more == 1 else 's'})")


def used(entry: Entry) -> str:
    """Tokens and cost in words."""
    parts = []
    if entry.tokens_in is not None:
        parts.append(f"{entry.tokens_in:,} tokens in")
    if entry.tokens_out is not None:
        parts.append(f"{entry.tokens_out:,} out")
    if entry.cost_usd is not None:
        parts.append(f"${entry.cost_usd:.4f}")
    return ", ".join(parts)


def _flat(text: str) -> str:
    return plain_text(text).replace("\n", " ").rstrip()
