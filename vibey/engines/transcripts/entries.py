"""Entries: what a transcript is made of, as plain values."""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONGEST_ARGUMENT = 200
MOST_DIFF_LINES = 200
# Beyond this many lines a side, lines are not matched to one another: all of the old ones are taken out.
_MOST_MATCHED = 200
_TELLING = (
    *("command", "file_path", "filePath", "absolute_path", "notebook_path", "path", "pattern", "query", "url"),
    *("skill", "description", "prompt"),
)


class Kind(StrEnum):
    """What an entry is."""

    SAID = "said"
    THOUGHT = "thought"
    TOOL = "tool"
    RESULT = "result"
    EDIT = "edit"
    NOTE = "note"
    ERROR = "error"
    USAGE = "usage"
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `text` is what was said, a tool's argument, the beginning of its result, a unified diff, or the line.

    `name` is the tool's. `more` counts lines of a result or diff that were left out, and `failed` says that the tool
    failed. Tokens and dollars are totals of the run so far, None where the client has not said. Words that come in
    pieces go on in the next entry; a reader joins them.
    """

    kind: Kind
    text: str = ""
    name: str = ""
    more: int = 0
    failed: bool = False
    goes_on: bool = False
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None


def said(text: object) -> list[Entry]:
    """Words of the model; none for no words."""
    return [Entry(Kind.SAID, stripped)] if (stripped := text_of(text).strip()) else []


def thought(text: object) -> list[Entry]:
    """Thoughts of the model."""
    return [Entry(Kind.THOUGHT, stripped)] if (stripped := text_of(text).strip()) else []


def note(text: str) -> list[Entry]:
    """A remark of the client's."""
    return [Entry(Kind.NOTE, text)] if text.strip() else []


def error(text: object, otherwise: str = "error") -> list[Entry]:
    """An error, in the client's or the provider's words."""
    return [Entry(Kind.ERROR, text_of(text).strip() or otherwise)]


def tool(name: object, argument: object) -> list[Entry]:
    """A tool that is used: an edit as a diff, any other with its argument in short."""
    return _edits(argument) or [Entry(Kind.TOOL, in_short(argument), text_of(name) or "tool")]


def result(text: object, *, failed: bool = False, most: int = 6) -> list[Entry]:
    """What a tool answered, in short."""
    lines = _content(text).strip("\n").splitlines()
    if not lines and not failed:
        return []
    shown = "\n".join(_cut(line) for line in lines[:most])
    return [Entry(Kind.RESULT, shown or "failed", more=max(0, len(lines) - most), failed=failed)]


def usage(tokens_in: object, tokens_out: object, cost_usd: object = None) -> list[Entry]:
    """What was used; nothing if nothing is known."""
    counts = count(tokens_in), count(tokens_out)
    cost = cost_usd if isinstance(cost_usd, int | float) and not isinstance(cost_usd, bool) else None
    cost = None if cost is None or not (math.isfinite(cost) and cost >= 0) else float(cost)
    if counts == (None, None) and cost is None:
        return []
    return [Entry(Kind.USAGE, tokens_in=counts[0], tokens_out=counts[1], cost_usd=cost)]


def diff(path: str, old: str, new: str) -> list[Entry]:
    """An edit as a unified diff. Where the lines are in the file is not known, so the hunks have no numbers."""
    before, after = old.splitlines(), new.splitlines()
    lines = ["@@" if line.startswith("@@") else line for line in _unified(before, after)]
    return unified(path, lines) if lines else []


def unified(path: str, lines: Sequence[str]) -> list[Entry]:
    """An edit whose hunks are known already."""
    shown = [line if len(line) <= 1000 else _cut(line, 1000) for line in lines[:MOST_DIFF_LINES]]
    return [Entry(Kind.EDIT, "\n".join(shown), path, more=max(0, len(lines) - MOST_DIFF_LINES))]


def in_short(argument: object) -> str:
    """A tool's argument on one line: what tells most of it, else all of it."""
    if isinstance(argument, dict):
        found = next((argument[key] for key in _TELLING if isinstance(argument.get(key), str) and argument[key]), None)
        if found is None and not argument:
            return ""
        argument = compact(argument) if found is None else found
    text = argument if isinstance(argument, str) else compact(argument)
    lines = text.strip().splitlines()
    return _cut(lines[0] if lines else "", more=len(lines) > 1)


def compact(value: object) -> str:
    """A JSON value as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError, TypeError):
        return "(too deep)"


def text_of(value: object) -> str:
    """A text as it is, anything else as none."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int | None:
    """A count as it is, anything else as none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def at(event: object, *path: str) -> Any:  # noqa: ANN401  (a part of any JSON)
    """The value at a path of keys; None if there is none."""
    for key in path:
        if not isinstance(event, dict):
            return None
        event = event.get(key)
    return event


def _edits(argument: object) -> list[Entry]:
    """What this argument of a tool changes in a file; none if it is no edit."""
    path = next(
        (text for key in ("file_path", "filePath", "notebook_path") if (text := text_of(at(argument, key)))), ""
    )
    if not path or not isinstance(argument, dict):
        return []
    listed = argument.get("edits")
    changes = (
        [argument, *(each for each in listed if isinstance(each, dict))] if isinstance(listed, list) else [argument]
    )
    entries: list[Entry] = []
    for change in changes:
        old = next((change[key] for key in ("old_string", "oldString") if isinstance(change.get(key), str)), None)
        new = next(
            (
                change[key]
                for key in ("new_string", "newString", "content", "new_source")
                if isinstance(change.get(key), str)
            ),
            None,
        )
        if new is not None:
            entries += diff(path, old or "", new)
    return entries


def _unified(before: list[str], after: list[str]) -> Iterator[str]:
    if max(len(before), len(after)) <= _MOST_MATCHED:
        lines = difflib.unified_diff(before, after, lineterm="", n=3)
        yield from (line for number, line in enumerate(lines) if number >= 2)  # the first two name the files
        return
    same = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        same += 1
    yield "@@"
    yield from (f"-{line}" for line in before[same:])
    yield from (f"+{line}" for line in after[same:])


def _content(value: object) -> str:
    """The text of a tool's answer: a text, a list of blocks, or any other JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(
            block["text"] if isinstance(block, dict) and isinstance(block.get("text"), str) else _other(block)
            for block in value
        )
    return compact(value)


def _other(block: object) -> str:
    kind = text_of(at(block, "type"))
    return f"({kind})" if kind in {"image", "document", "resource"} else compact(block)


def _cut(line: str, longest: int = LONGEST_ARGUMENT, *, more: bool = False) -> str:
    return f"{line[: longest - 1]}…" if len(line) > longest else f"{line} …" if more else line
