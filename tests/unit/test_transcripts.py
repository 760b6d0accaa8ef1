"""Transcripts: what people read of every recording, and of the events that no recording has."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.recordings import FOLDER, Recording, recordings
from vibey.engines.transcripts.entries import Entry, Kind, usage
from vibey.engines.transcripts.formats import FORMATS
from vibey.engines.transcripts.reader import entries_of
from vibey.engines.transcripts.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: dict[str, list[str]] = json.loads((FOLDER / "transcripts.json").read_text(encoding="utf-8"))
"""The rows of each recording, each with its style; to be looked at by a person when it is changed."""


def shown(kind: str, *events: dict[str, Any] | str) -> list[str]:
    """The rows of these events, without their styles."""
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    found = entries_of(kind, ["\n".join(lines).encode()])
    return [f"{row.before}{row.text}" for entry in found for row in rows_of(entry)]


@pytest.mark.parametrize("recording", recordings(), ids=str)
def test_what_is_read_of_a_recording(recording: Recording) -> None:
    """A recording of a client reads as it was once found good; a new one has to be looked at and added."""
    found = entries_of(recording.kind, [recording.output])
    rows = [f"{row.style}|{row.before}{row.text}" for entry in found for row in rows_of(entry)]
    assert rows == GOLDEN.get(str(recording), rows)


def test_every_client_was_looked_at() -> None:
    """Nothing is kept of a recording that is gone, and every client is among them."""
    names = {str(each): each.kind for each in recordings()}
    assert set(GOLDEN) <= set(names)
    assert {names[name] for name in GOLDEN} == {kind for kind, form in FORMATS.items() if form}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pieces_make_the_same_transcript(kind: str, size: int) -> None:
    """Where an output happens to be cut makes no difference."""
    for recording in (each for each in recordings() if each.kind == kind):
        text = recording.output
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(entries_of(kind, pieces)) == list(entries_of(kind, [text]))


def _use(name: str, **argument: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": name, "input": argument}]}}


def _part(**state: Any) -> dict[str, Any]:
    return {"type": "tool_use", "part": {"type": "tool", "tool": "edit", "state": {"status": "completed", **state}}}


EDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "claude Edit": ("claude-code", _use("Edit", file_path="a.py", old_string="one\ntwo\n", new_string="one\n2\n")),
    "claude MultiEdit": (
        "claude-code",
        _use("MultiEdit", file_path="a.py", edits=[{"old_string": "one\ntwo\n", "new_string": "one\n2\n"}]),
    ),
    "qwen edit": ("qwen-code", _use("edit", file_path="a.py", old_string="one\ntwo\n", new_string="one\n2\n")),
    "gemini replace": (
        "gemini",
        {
            "type": "tool_use",
            "tool_name": "replace",
            "parameters": {"file_path": "a.py", "old_string": "one\ntwo\n", "new_string": "one\n2\n"},
        },
    ),
    "opencode edit": (
        "opencode",
        _part(input={"filePath": "a.py", "oldString": "one\ntwo\n", "newString": "one\n2\n"}),
    ),
    "opencode diff": (
        "opencode",
        _part(
            input={"filePath": "a.py", "oldString": "two", "newString": "2"},
            metadata={"diff": "Index: a.py\n=====\n--- a.py\n+++ a.py\n@@\n one\n-two\n+2\n"},
            output="done",
        ),
    ),
    "codex with a diff": (
        "codex",
        {
            "type": "item.completed",
            "item": {
                "type": "file_change",
                "changes": [{"path": "a.py", "kind": "update", "diff": "@@\n one\n-two\n+2"}],
            },
        },
    ),
}


@pytest.mark.parametrize(("kind", "event"), EDITS.values(), ids=EDITS)
def test_an_edit_is_a_diff(kind: str, event: dict[str, Any]) -> None:
    """Whatever a client calls it, an edit shows what goes and what comes."""
    assert shown(kind, event) == ["> edit a.py", "    @@", "     one", "    -two", "    +2"]


def test_a_new_file_is_all_added() -> None:
    """Of a long one, the beginning, and how much there is."""
    rows = shown("claude-code", _use("Write", file_path="new.py", content="x\n" * 300))
    assert rows[:3] == ["> edit new.py", "    @@", "    +x"]
    assert rows[-1] == "    (101 more lines)"
    assert shown(
        "codex", {"type": "item.completed", "item": {"type": "file_change", "changes": [{"path": "b", "kind": "add"}]}}
    ) == ["> add b"]


def test_long_edits_are_not_matched_line_by_line() -> None:
    """They show what goes and then what comes, from the first line that differs."""
    old, new = "".join(f"{n}\n" for n in range(1000)), "".join(f"{n if n < 950 else -n}\n" for n in range(1000))
    rows = shown("claude-code", _use("Edit", file_path="a", old_string=old, new_string=new))
    assert rows[2:4] == ["    -950", "    -951"]
    assert len(rows) == 102


CASES: dict[str, tuple[str, list[dict[str, Any] | str], list[str]]] = {
    "a tool's result in short": (
        "claude-code",
        [
            _use("Bash", command="make\ntest", description="run it"),
            {
                "type": "user",
                "message": {
                    "content": [
                        {
                            "type": "tool_result",
                            "is_error": True,
                            "content": [{"type": "text", "text": "1\n2\n3\n4\n5\n6\n7\n8"}],
                        }
                    ]
                },
            },
        ],
        ["> Bash make …", *(f"    {n}" for n in range(1, 7)), "    (2 more lines)"],
    ),
    "thoughts": (
        "claude-code",
        [{"type": "assistant", "message": {"content": [{"type": "thinking", "thinking": "hm\nso"}]}}],
        ["~ hm", "~ so"],
    ),
    "an answer that was not said before": (
        "claude-code",
        [{"type": "result", "is_error": False, "result": "done", "usage": {}, "total_cost_usd": 0.5}],
        ["done", "= $0.5000"],
    ),
    "a failing command": (
        "codex",
        [
            {
                "type": "item.completed",
                "item": {
                    "type": "command_execution",
                    "command": "bash -lc 'ls x'",
                    "aggregated_output": "no x\n",
                    "exit_code": 2,
                },
            }
        ],
        ["> shell ls x", "    exit 2", "    no x"],
    ),
    "another program's tool": (
        "codex",
        [
            {
                "type": "item.started",
                "item": {"id": "1", "type": "mcp_tool_call", "server": "s", "tool": "t", "arguments": {"a": 1}},
            },
            {
                "type": "item.completed",
                "item": {"id": "1", "type": "mcp_tool_call", "server": "s", "tool": "t", "error": {"message": "no"}},
            },
            {"type": "item.completed", "item": {"id": "2", "type": "web_search", "query": "cats"}},
        ],
        ['> s.t {"a": 1}', "    no", "> web_search cats"],
    ),
    "things to do": (
        "codex",
        [
            {
                "type": "item.started",
                "item": {"type": "todo_list", "items": [{"text": "a", "completed": True}, {"text": "b"}]},
            }
        ],
        ["- [x] a", "- [ ] b"],
    ),
    "words in pieces": (
        "gemini",
        [
            *(
                {"type": "message", "role": "assistant", "delta": True, "content": each}
                for each in ("one ", "two\n", "\nthree", " four")
            ),
            {"type": "tool_use", "tool_name": "glob", "parameters": {}},
            {"type": "message", "role": "assistant", "delta": True, "content": "five"},
        ],
        ["one two", "three four", "> glob", "five"],
    ),
    "a failing tool": (
        "opencode",
        [_part(status="error", input={"filePath": "a"}, error="no such file")],
        ["> edit a", "    no such file"],
    ),
    "tokens and cost of several steps": (
        "opencode",
        [
            {
                "type": "step_finish",
                "part": {"reason": "tool-calls", "tokens": {"input": 5, "cache": {"read": 5}}, "cost": 0.5},
            },
            {"type": "step_finish", "part": {"reason": "stop", "tokens": {"input": 1000, "output": 7}, "cost": 0.25}},
        ],
        ["= 1,010 tokens in, 7 out, $0.7500"],
    ),
    "lines that are no events": (
        "codex",
        [
            "[vibey] a note",
            "",
            '{"type": "item.',
            "[1, 2]",
            "{}",
            '{"type": "news", "x": 1}',
            '{"type": ["turn.started"]}',
            "plain",
        ],
        [
            "[vibey] a note",
            '{"type": "item.',
            "[1, 2]",
            "{}",
            '{"type": "news", "x": 1}',
            '{"type": ["turn.started"]}',
            "plain",
        ],
    ),
    "a model server": ("openai", ["{}", "", '{"type": "result"}'], ["{}", "", '{"type": "result"}']),
    "a program that is no client": ("command", ['{"type": "result"}', "", "x"], ['{"type": "result"}', "", "x"]),
    "what is obeyed nowhere": (
        "claude-code",
        [
            {
                "type": "assistant",
                "message": {"content": [{"type": "text", "text": "\x1b[2Jsafe\x1b]0;t\x07 \u202egnp\x00\ud800"}]},
            },
            _use("Ba\x1b[31msh", command="x\x9b2J"),
        ],
        ["safe gnp?", "> Bash x2J"],
    ),
}


@pytest.mark.parametrize(("kind", "events", "rows"), CASES.values(), ids=CASES)
def test_events_read_as(kind: str, events: list[dict[str, Any] | str], rows: list[str]) -> None:
    """What each form of event comes to, and that nothing unknown or broken is lost."""
    assert shown(kind, *events) == rows


def test_usage_of_odd_numbers() -> None:
    """Only counts and dollars that can be are shown."""
    assert usage(None, None) == usage(-1, tokens_out=True, cost_usd=float("nan")) == usage("1", 1.5, float("inf")) == []
    assert usage(0, None, 0) == [Entry(Kind.USAGE, tokens_in=0, cost_usd=0.0)]


def test_a_long_output_is_not_kept() -> None:
    """Twenty megabytes of events need no more memory than a few lines of them."""

    def pieces() -> Iterator[bytes]:
        event = {"type": "user", "message": {"content": [{"type": "tool_result", "content": "line\n" * 4000}]}}
        piece = (json.dumps(event) + "\n").encode()
        for _ in range(20 * 1024 * 1024 // len(piece)):
            yield piece

    tracemalloc.start()
    try:
        rows = sum(1 for entry in entries_of("claude-code", pieces()) for _ in rows_of(entry))
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert rows > 5000
