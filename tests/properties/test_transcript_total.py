"""Transcripts of anything: every output has one, nothing in it is obeyed, and no line is lost."""

from __future__ import annotations

import json
from typing import Any
from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st

from vibey.engines.transcripts.entries import Kind
from vibey.engines.transcripts.formats import FORMATS
from vibey.engines.transcripts.reader import entries_of
from vibey.engines.transcripts.rows import rows_of

CLIENTS = sorted(kind for kind, form in FORMATS.items() if form)
TYPES = sorted({name for form in FORMATS.values() for name in form})
WORDS = [
    *TYPES,
    *("agent_message", "reasoning", "command_execution", "file_change", "mcp_tool_call", "todo_list", "web_search"),
    *(
        "text",
        "thinking",
        "tool_use",
        "tool_result",
        "init",
        "api_retry",
        "success",
        "error",
        "assistant",
        "tool-calls",
    ),
    *("", "\x1b[2J", "\u202e", "\x9b", "a\nb", "bash -lc 'x'", "@@\n-a\n+b", "'"),
]
KEYS = [
    *(
        "type",
        "subtype",
        "message",
        "content",
        "model",
        "id",
        "name",
        "input",
        "text",
        "thinking",
        "is_error",
        "result",
    ),
    *("usage", "input_tokens", "output_tokens", "total_cost_usd", "item", "command", "aggregated_output", "exit_code"),
    *(
        "changes",
        "path",
        "kind",
        "diff",
        "items",
        "completed",
        "server",
        "tool",
        "arguments",
        "error",
        "status",
        "part",
    ),
    *("state", "output", "metadata", "filePath", "file_path", "old_string", "new_string", "oldString", "newString"),
    *(
        "edits",
        "tokens",
        "cache",
        "read",
        "cost",
        "reason",
        "role",
        "delta",
        "parameters",
        "tool_name",
        "stats",
        "data",
    ),
    *("rate_limit_info", "error_status", "query"),
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)
EVENTS = st.builds(
    lambda kind, rest: {**rest, "type": kind}, st.sampled_from(TYPES), st.dictionaries(st.sampled_from(KEYS), VALUES)
)
LINES = (
    EVENTS.map(json.dumps)
    | st.lists(EVENTS, max_size=3).map(json.dumps)
    | VALUES.map(json.dumps)
    | st.text(max_size=40)
)


@given(st.sampled_from([*FORMATS, "command"]), st.lists(LINES, max_size=6))
def test_every_output_has_a_transcript(kind: str, lines: list[str]) -> None:
    """Events of every shape, right or wrong, come to rows that hold no control of a terminal and no line's end."""
    for entry in entries_of(kind, ["\n".join(lines).encode("utf-8", "replace")]):
        for row in rows_of(entry):
            assert "\n" not in row.text
            marks = set() if entry.kind is Kind.LINE else {mark for mark in row.text if category(mark) == "Cc"}
            assert marks <= {"\t"}
            assert row.style != "line" or entry.kind is Kind.LINE


@given(st.sampled_from(CLIENTS), st.lists(st.binary(max_size=30), max_size=5))
def test_bytes_that_are_nothing_are_lines(kind: str, pieces: list[bytes]) -> None:
    """What is no event stays the line it is."""
    text = b"x".join(pieces).replace(b"{", b"").replace(b"[", b"")
    lines = text.decode("utf-8", "replace").split("\n")
    expected = [line.removesuffix("\r") for line in lines if line.strip()]
    assert [entry.text for entry in entries_of(kind, [text]) if entry.kind is Kind.LINE] == expected


@given(st.sampled_from(CLIENTS), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3))
def test_unknown_events_are_shown_as_they_are(kind: str, rest: dict[str, Any]) -> None:
    """A type that nobody knows makes a line of the event."""
    line = json.dumps({**rest, "type": "something new"})
    assert [(entry.kind, entry.text) for entry in entries_of(kind, [line.encode()])] == [(Kind.LINE, line)]
