"""Formats: what each client's events say, by their types. None stands for an event that is not understood."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vibey.engines.transcripts.entries import (
    Entry,
    Kind,
    at,
    compact,
    count,
    error,
    in_short,
    note,
    result,
    said,
    text_of,
    thought,
    tool,
    unified,
    usage,
)

Event = dict[str, Any]
_MOST_REMEMBERED = 1000
_WRAPPERS = frozenset({"-c", "-lc", "-ic"})
# Beyond this, a command is not worth being taken apart.
_LONGEST_COMMAND = 10_000


@dataclass(slots=True)
class Memory:
    """What earlier events of a run are needed for."""

    words: str = ""
    begun: dict[str, None] = field(default_factory=dict)
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0

    def begin(self, name: object) -> None:
        """Remember that a tool's use was shown; of very many, the latest."""
        self.begun[text_of(name)] = None
        if len(self.begun) > _MOST_REMEMBERED:
            del self.begun[next(iter(self.begun))]

    def has_begun(self, name: object) -> bool:
        """Whether it was, and forget it."""
        return self.begun.pop(text_of(name), self) is None


def tapped(event: Event) -> list[Entry] | None:
    """Lines of Vibey's own within a client (`vibey.engines.clients.tap`)."""
    kind = text_of(event.get("type"))
    if not kind.startswith("vibey."):
        return None
    status = count(event.get("status"))
    if kind != "vibey.refusal" or status is None:
        return []
    return error(f"the provider answered HTTP {status}: {in_short(text_of(event.get('body')))}".rstrip(": "))


def _blocks(event: Event) -> list[Any]:
    content = at(event, "message", "content")
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _assistant(event: Event, memory: Memory) -> list[Entry]:
    entries: list[Entry] = []
    troubled = at(event, "message", "model") == "<synthetic>" or bool(text_of(event.get("error")))
    for block in _blocks(event):
        match at(block, "type"):
            case "text":
                memory.words = text_of(at(block, "text")).strip()
                entries += error(memory.words) if troubled and memory.words else said(memory.words)
            case "thinking":
                entries += thought(at(block, "thinking"))
            case "redacted_thinking":
                entries += note("(a thought that is not shown)")
            case "tool_use" | "server_tool_use":
                entries += tool(at(block, "name"), at(block, "input"))
            case _:
                entries += _answered(block)
    return entries


def _answered(block: object) -> list[Entry]:
    if at(block, "type") == "tool_result":
        return result(at(block, "content"), failed=at(block, "is_error") is True)
    if at(block, "type") == "text":
        return note(in_short(text_of(at(block, "text"))))
    return [Entry(Kind.LINE, compact(block))]


def _ended(event: Event, memory: Memory) -> list[Entry]:
    words = text_of(event.get("result")).strip() or text_of(at(event, "error", "message")).strip()
    entries: list[Entry] = []
    if event.get("is_error") is True:
        entries += error(words, text_of(event.get("subtype")) or "error") if words != memory.words else []
    elif words != memory.words:
        entries += said(words)
    told = [at(event, "usage", key) for key in _INPUT]
    counts = [each for each in map(count, told) if each is not None]
    tokens_in = sum(counts) if counts else None
    return entries + usage(tokens_in, at(event, "usage", "output_tokens"), event.get("total_cost_usd"))


_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _system(event: Event, memory: Memory) -> list[Entry]:
    if event.get("subtype") == "init":
        return _model(event, memory)
    if event.get("subtype") == "api_retry":
        status = event.get("error_status")
        shown = f" (HTTP {status})" if isinstance(status, int) else ""
        return error(f"{text_of(event.get('error')) or 'no answer'}{shown}; the client tries again")
    return note(text_of(event.get("subtype")).replace("_", " "))


def _item(event: Event, memory: Memory) -> list[Entry] | None:
    item, stage = event.get("item"), text_of(event.get("type")).removeprefix("item.")
    if not isinstance(item, dict):
        return None
    kind = text_of(item.get("type"))
    if kind in _USES:
        shown = [] if memory.has_begun(item.get("id")) else _use(item)
        if stage == "completed":
            return shown + _result_of(item)
        memory.begin(item.get("id"))
        return shown
    read = _WHOLE_ITEMS.get(kind)
    # A list of things to do is shown when it is made as well; the others say all they have to say in the end.
    shows = stage == "completed" or (kind == "todo_list" and stage == "started")
    return None if read is None else read(item) if shows else []


def _use(item: Event) -> list[Entry]:
    if item.get("type") == "command_execution":
        return tool("shell", {"command": _unwrapped(text_of(item.get("command")))})
    if item.get("type") == "web_search":
        return tool("web_search", text_of(item.get("query")))
    name = ".".join(filter(None, (text_of(item.get("server")), text_of(item.get("tool")))))
    return tool(name, item.get("arguments"))


def _result_of(item: Event) -> list[Entry]:
    if item.get("type") == "mcp_tool_call":
        broken = at(item, "error", "message")
        return result(broken or at(item, "result", "content"), failed=bool(broken) or item.get("status") == "failed")
    if item.get("type") == "web_search":
        return []
    code = item.get("exit_code")
    failed = isinstance(code, int) and code != 0
    output = text_of(item.get("aggregated_output"))
    return result(f"exit {code}\n{output}" if failed else output, failed=failed)


def _unwrapped(command: str) -> str:
    """The command that a shell was started for."""
    if len(command) > _LONGEST_COMMAND:
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in _WRAPPERS else command


def _todo(items: object) -> list[Entry]:
    rows = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    return note("\n".join(f"[{'x' if row.get('completed') else ' '}] {text_of(row.get('text'))}" for row in rows))


def _file_changes(item: Event) -> list[Entry]:
    entries: list[Entry] = []
    listed = item.get("changes")
    for change in listed if isinstance(listed, list) else []:
        path, kind = text_of(at(change, "path")), text_of(at(change, "kind")) or "change"
        told = text_of(at(change, "diff")) or text_of(at(change, "unified_diff"))
        entries += unified(path, _hunks(told)) if told else [Entry(Kind.TOOL, path, kind)]
    if item.get("status") == "failed":
        entries += result("the change failed", failed=True)
    return entries


def _tool_part(part: object) -> list[Entry]:
    state = at(part, "state")
    known = text_of(at(state, "metadata", "diff"))
    path = text_of(at(state, "input", "filePath"))
    failed = at(state, "status") == "error"
    if known and path and not failed:
        return unified(path, _hunks(known))
    shown = tool(at(part, "tool"), at(state, "input"))
    answered = result(at(state, "error") if failed else at(state, "output"), failed=failed)
    return shown if shown[0].kind is Kind.EDIT and not failed else shown + answered


def _hunks(known: str) -> list[str]:
    """The lines of a diff from its first hunk on."""
    lines = known.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    return lines[first:]


def _step(part: object, memory: Memory) -> list[Entry]:
    told = [at(part, "tokens", "input"), at(part, "tokens", "cache", "read"), at(part, "tokens", "cache", "write")]
    memory.tokens_in += sum(each or 0 for each in map(count, told))
    memory.tokens_out += sum(count(at(part, "tokens", key)) or 0 for key in ("output", "reasoning"))
    spent = usage(None, None, at(part, "cost"))
    memory.cost_usd += (spent[0].cost_usd or 0.0) if spent else 0.0
    if at(part, "reason") == "tool-calls":
        return []
    return usage(memory.tokens_in, memory.tokens_out, memory.cost_usd or None)


def _limit(event: Event, _: Memory) -> list[Entry]:
    status = text_of(at(event, "rate_limit_info", "status"))
    which = text_of(at(event, "rate_limit_info", "rateLimitType"))
    return [] if status == "allowed" else note(" ".join(filter(None, ("rate limit", which, status))))


def _user(event: Event, _: Memory) -> list[Entry]:
    return [entry for block in _blocks(event) for entry in _answered(block)]


def _model(event: Event, _: Memory) -> list[Entry]:
    return note(f"model {text_of(event.get('model'))}")


def _nothing(_: Event, __: Memory) -> list[Entry]:
    return []


def _codex_error(event: Event, memory: Memory) -> list[Entry] | None:
    memory.words = text_of(event.get("message"))
    return error(memory.words) if memory.words else None


def _turn_failed(event: Event, memory: Memory) -> list[Entry]:
    words = text_of(at(event, "error", "message"))
    # The client says the same twice.
    return [] if words and words == memory.words else error(words, "the turn failed")


def _turn_completed(event: Event, _: Memory) -> list[Entry]:
    return usage(at(event, "usage", "input_tokens"), at(event, "usage", "output_tokens"))


def _message(event: Event, _: Memory) -> list[Entry]:
    if event.get("role") != "assistant":
        return []
    words = text_of(event.get("content"))
    return [Entry(Kind.SAID, words, goes_on=True)] if event.get("delta") is True else said(words)


def _tool_result(event: Event, _: Memory) -> list[Entry]:
    failed = event.get("status") == "error"
    told = at(event, "error", "message") if failed else None
    return result(told or event.get("output"), failed=failed)


def _gemini_result(event: Event, _: Memory) -> list[Entry]:
    spent = usage(at(event, "stats", "input_tokens"), at(event, "stats", "output_tokens"))
    if event.get("status") == "success":
        return spent
    return error(at(event, "error", "message"), "the run failed") + spent


def _opencode_error(event: Event, _: Memory) -> list[Entry]:
    told = at(event, "error", "data", "message") or at(event, "error", "name")
    return error(told, compact(event.get("error")))


_USES = frozenset({"command_execution", "mcp_tool_call", "web_search"})
_WHOLE_ITEMS: dict[str, Callable[[Event], list[Entry]]] = {
    "agent_message": lambda item: said(item.get("text")),
    "reasoning": lambda item: thought(item.get("text")),
    "error": lambda item: note(text_of(item.get("message"))),
    "todo_list": lambda item: _todo(item.get("items")),
    "file_change": _file_changes,
}
Format = dict[str, Callable[[Event, Memory], list[Entry] | None]]
"""How the events of a client are read, by type."""
MESSAGES: Format = {
    "assistant": _assistant,
    "user": _user,
    "result": _ended,
    "system": _system,
    "rate_limit_event": _limit,
    **dict.fromkeys(("stream_event", "control_request", "control_response", "keep_alive"), _nothing),
}
CODEX: Format = {
    "thread.started": _nothing,
    "turn.started": _nothing,
    **dict.fromkeys(("item.started", "item.updated", "item.completed"), _item),
    "turn.completed": _turn_completed,
    "turn.failed": _turn_failed,
    "error": _codex_error,
}
GEMINI: Format = {
    "init": _model,
    "message": _message,
    "tool_use": lambda event, _: tool(event.get("tool_name"), event.get("parameters")),
    "tool_result": _tool_result,
    "error": lambda event, _: error(event.get("message")),
    "result": _gemini_result,
}
OPENCODE: Format = {
    "step_start": _nothing,
    "text": lambda event, _: said(at(event, "part", "text")),
    "reasoning": lambda event, _: thought(at(event, "part", "text")),
    "tool_use": lambda event, _: _tool_part(event.get("part")),
    "step_finish": lambda event, memory: _step(event.get("part"), memory),
    "error": _opencode_error,
}
FORMATS: dict[str, Format] = {
    "claude-code": MESSAGES,
    "qwen-code": MESSAGES,
    "codex": CODEX,
    "gemini": GEMINI,
    "opencode": OPENCODE,
    "openai": {},
}
"""The format of each kind of engine whose output has a transcript; a model server prints lines and no events."""


def read_event(form: Format, event: Event, memory: Memory) -> list[Entry] | None:
    """The entries of an event; None for one that is not understood."""
    read = form.get(text_of(event.get("type")))
    found = tapped(event)
    return found if read is None or found is not None else read(event, memory)
