"""Dialects: how each provider's API words questions, answers and refusals."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCENARIOS = ("rate_limited", "credits", "login", "overloaded", "broken", "unknown_model", "bad_request")
SHELLS = ("Bash", "bash", "shell", "exec_command", "shell_command", "local_shell", "run_shell_command")

Answer = tuple[int, "Mapping[str, str]", Any]


class Dialect(Protocol):
    """One provider's way of speaking; `turn` is a `provider.Say`, `Use` or `Cut`."""

    def tools(self, document: Any) -> list[Any]:
        """The tools offered."""

    def results(self, document: Any) -> int:
        """How many results of tools the conversation holds."""

    def streams(self, document: Any, path: str) -> bool:
        """Whether a stream is asked for."""

    def stream(self, turn: Any, document: Any) -> Iterator[bytes]:
        """The answer as events."""

    def whole(self, turn: Any, document: Any) -> Any:
        """The answer in one piece."""

    def refusal(self, scenario: str, resets_in: int | None) -> Answer:
        """Status, headers and body of a refusal."""


def of(path: str) -> Dialect | None:
    """The dialect spoken at this path; None for any other path."""
    plain = path.partition("?")[0]
    if plain.endswith("/messages"):
        return Anthropic()
    if plain.endswith("/responses"):
        return Responses()
    if plain.endswith("/chat/completions"):
        return Chat()
    if plain.endswith(("enerateContent",)):
        return Gemini()
    return None


def _event(document: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def _pieces(turn: Any) -> list[str]:
    text, count = turn.text, getattr(turn, "pieces", 2)
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def _usage(turn: Any) -> tuple[int, int]:
    return getattr(turn, "tokens_in", 12), getattr(turn, "tokens_out", 3)


def _arguments(command: str, schema: Any) -> dict[str, Any]:
    """Arguments for a client's own shell tool: its schema says under which name the command goes."""
    properties = (schema or {}).get("properties") or {}
    name = "cmd" if "cmd" in properties else "command"
    listed = (properties.get(name) or {}).get("type") == "array"
    said: dict[str, Any] = {name: ["bash", "-lc", command] if listed else command}
    for extra in (schema or {}).get("required") or []:
        said.setdefault(extra, False if (properties.get(extra) or {}).get("type") == "boolean" else "run it")
    return said


class Anthropic:
    """The messages API."""

    def tools(self, document: Any) -> list[Any]:
        """Tools that the client itself runs."""
        return [tool for tool in document.get("tools") or [] if "input_schema" in tool]

    def results(self, document: Any) -> int:
        """Blocks of the type `tool_result`."""
        contents = [message.get("content") for message in document.get("messages") or []]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        return sum(block.get("type") == "tool_result" for block in blocks)

    def streams(self, document: Any, path: str) -> bool:  # noqa: ARG002
        """By the body."""
        return bool(document.get("stream"))

    def stream(self, turn: Any, document: Any) -> Iterator[bytes]:
        """A message in its events."""
        tokens_in, tokens_out = _usage(turn)
        message = {**self._message(document), "content": [], "stop_reason": None, "stop_sequence": None}
        start = {**message, "usage": {"input_tokens": tokens_in, "output_tokens": 1}}
        yield _event({"type": "message_start", "message": start}, "message_start")
        if hasattr(turn, "command"):
            yield from self._tool_use(turn, document)
        else:
            block = {"type": "text", "text": ""}
            yield _event({"type": "content_block_start", "index": 0, "content_block": block}, "content_block_start")
            for piece in _pieces(turn):
                delta = {"type": "text_delta", "text": piece}
                yield _event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
        yield _event({"type": "content_block_stop", "index": 0}, "content_block_stop")
        ending = {"stop_reason": "tool_use" if hasattr(turn, "command") else "end_turn", "stop_sequence": None}
        usage = {"output_tokens": tokens_out}
        yield _event({"type": "message_delta", "delta": ending, "usage": usage}, "message_delta")
        yield _event({"type": "message_stop"}, "message_stop")

    def whole(self, turn: Any, document: Any) -> Any:
        """A message in one piece."""
        tokens_in, tokens_out = _usage(turn)
        usage = {"input_tokens": tokens_in, "output_tokens": tokens_out}
        content = [{"type": "text", "text": getattr(turn, "text", "")}]
        return {**self._message(document), "content": content, "stop_reason": "end_turn", "usage": usage}

    def refusal(self, scenario: str, resets_in: int | None) -> Answer:
        """In the words of the real one."""
        status, kind, words = {
            "rate_limited": (429, "rate_limit_error", "This request would exceed your account's rate limit."),
            "credits": (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
            "login": (401, "authentication_error", "invalid x-api-key"),
            "overloaded": (529, "overloaded_error", "Overloaded"),
            "broken": (500, "api_error", "Internal server error"),
            "unknown_model": (404, "not_found_error", "model: nosuchmodel"),
            "bad_request": (400, "invalid_request_error", "prompt is too long: 300000 tokens > 200000 maximum"),
        }[scenario]
        headers = {"request-id": "req_011"}
        if scenario == "rate_limited":
            headers["x-should-retry"] = "false"
            headers["anthropic-ratelimit-unified-status"] = "rejected"
        if resets_in is not None:
            headers["retry-after"] = str(resets_in)
            headers["anthropic-ratelimit-unified-reset"] = str(int(time.time()) + resets_in)
            headers["anthropic-ratelimit-unified-representative-claim"] = "five_hour"
        return status, headers, {"type": "error", "error": {"type": kind, "message": words}}

    def _message(self, document: Any) -> dict[str, Any]:
        return {
            "id": f"msg_{self.results(document)}",
            "type": "message",
            "role": "assistant",
            "model": document.get("model"),
        }

    def _tool_use(self, turn: Any, document: Any) -> Iterator[bytes]:
        tool = next(tool for tool in self.tools(document) if tool["name"] in SHELLS)
        block = {"type": "tool_use", "id": f"toolu_{self.results(document)}", "name": tool["name"], "input": {}}
        yield _event({"type": "content_block_start", "index": 0, "content_block": block}, "content_block_start")
        said = json.dumps(_arguments(turn.command, tool["input_schema"]))
        delta = {"type": "input_json_delta", "partial_json": said}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")


def _openai_refusal(scenario: str, resets_in: int | None) -> Answer:
    status, code, words = {
        "rate_limited": (429, "rate_limit_exceeded", "Rate limit reached for m."),
        "credits": (429, "insufficient_quota", "You exceeded your current quota, please check your plan."),
        "login": (401, "invalid_api_key", "Incorrect API key provided"),
        "overloaded": (503, "server_overloaded", "The server is overloaded"),
        "broken": (500, "server_error", "The server had an error"),
        "unknown_model": (404, "model_not_found", "The model `nosuchmodel` does not exist"),
        "bad_request": (400, "context_length_exceeded", "This model's maximum context length is 8192 tokens."),
    }[scenario]
    headers = {}
    if resets_in is not None:
        words = f"{words} Please try again in {resets_in}s."
        headers["retry-after"] = str(resets_in)
    return status, headers, {"error": {"message": words, "type": code, "code": code, "param": None}}


class Responses:
    """OpenAI's responses API."""

    def tools(self, document: Any) -> list[Any]:
        """Functions and the built-in shell."""
        return [tool for tool in document.get("tools") or [] if tool.get("type") in {"function", "local_shell"}]

    def results(self, document: Any) -> int:
        """Outputs of calls."""
        items = document.get("input")
        outputs = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
        return sum(item.get("type") in outputs for item in items) if isinstance(items, list) else 0

    def streams(self, document: Any, path: str) -> bool:  # noqa: ARG002
        """By the body."""
        return bool(document.get("stream"))

    def stream(self, turn: Any, document: Any) -> Iterator[bytes]:
        """A response in its events."""
        whole = self.whole(turn, document)
        started = {**whole, "status": "in_progress", "output": [], "usage": None}
        yield _event({"type": "response.created", "response": started}, "response.created")
        item = whole["output"][0]
        added: dict[str, Any] = {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "content": []},
        }
        yield _event(added, added["type"])
        for piece in _pieces(turn) if hasattr(turn, "text") else []:
            delta = {"type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "delta": piece}
            yield _event({**delta, "content_index": 0}, "response.output_text.delta")
        done: dict[str, Any] = {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield _event(done, done["type"])
        yield _event({"type": "response.completed", "response": whole}, "response.completed")

    def whole(self, turn: Any, document: Any) -> Any:
        """A response in one piece."""
        tokens_in, tokens_out = _usage(turn)
        number = self.results(document)
        if hasattr(turn, "command"):
            tool = next(tool for tool in self.tools(document) if tool.get("name") in SHELLS)
            said = json.dumps(_arguments(turn.command, tool.get("parameters")))
            item: dict[str, Any] = {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": f"call_{number}",
                "name": tool["name"],
            }
            item = {**item, "arguments": said, "status": "completed"}
        else:
            content = [{"type": "output_text", "text": turn.text, "annotations": []}]
            item = {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed"}
            item = {**item, "content": content}
        usage = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        common = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": document.get("model")}
        return {**common, "output": [item], "usage": {**usage, **details}}

    def refusal(self, scenario: str, resets_in: int | None) -> Answer:
        """In the words of the real one."""
        return _openai_refusal(scenario, resets_in)


class Chat:
    """OpenAI's chat completions API."""

    def tools(self, document: Any) -> list[Any]:
        """Functions."""
        return list(document.get("tools") or [])

    def results(self, document: Any) -> int:
        """Messages of the role `tool`."""
        return sum(message.get("role") == "tool" for message in document.get("messages") or [])

    def streams(self, document: Any, path: str) -> bool:  # noqa: ARG002
        """By the body."""
        return bool(document.get("stream"))

    def stream(self, turn: Any, document: Any) -> Iterator[bytes]:
        """A completion in its chunks."""
        common = {**self._common(document), "object": "chat.completion.chunk"}
        if hasattr(turn, "command"):
            deltas: list[Any] = [{"role": "assistant", "content": None, "tool_calls": [self._call(turn, document)]}]
        else:
            deltas = [{"role": "assistant", "content": piece} for piece in _pieces(turn)]
        for delta in deltas:
            yield _event({**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        reason = "tool_calls" if hasattr(turn, "command") else "stop"
        yield _event({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        yield _event({**common, "choices": [], "usage": self._spent(turn)})
        yield b"data: [DONE]\n\n"

    def whole(self, turn: Any, document: Any) -> Any:
        """A completion in one piece."""
        message = {"role": "assistant", "content": getattr(turn, "text", "")}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        common = {**self._common(document), "object": "chat.completion"}
        return {**common, "choices": [choice], "usage": self._spent(turn)}

    def refusal(self, scenario: str, resets_in: int | None) -> Answer:
        """In the words of the real one."""
        return _openai_refusal(scenario, resets_in)

    def _common(self, document: Any) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "created": int(time.time()), "model": document.get("model")}

    def _spent(self, turn: Any) -> dict[str, int]:
        tokens_in, tokens_out = _usage(turn)
        return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}

    def _call(self, turn: Any, document: Any) -> dict[str, Any]:
        tool = next(tool["function"] for tool in self.tools(document) if tool["function"]["name"] in SHELLS)
        said = json.dumps(_arguments(turn.command, tool.get("parameters")))
        named = {"name": tool["name"], "arguments": said}
        return {"index": 0, "id": f"call_{self.results(document)}", "type": "function", "function": named}


class Gemini:
    """Google's generateContent."""

    def tools(self, document: Any) -> list[Any]:
        """Functions declared."""
        return [each for tool in document.get("tools") or [] for each in tool.get("functionDeclarations") or []]

    def results(self, document: Any) -> int:
        """Parts that answer a function call."""
        parts = [part for content in document.get("contents") or [] for part in content.get("parts") or []]
        return sum("functionResponse" in part for part in parts)

    def streams(self, document: Any, path: str) -> bool:  # noqa: ARG002
        """By the path."""
        return "stream" in path

    def stream(self, turn: Any, document: Any) -> Iterator[bytes]:
        """An answer in its chunks."""
        if hasattr(turn, "command"):
            yield _event(self.whole(turn, document))
            return
        for piece in _pieces(turn):
            yield _event({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": piece}]}}]})
        ending = {"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}
        yield _event({"candidates": [ending], "usageMetadata": self._spent(turn)})

    def whole(self, turn: Any, document: Any) -> Any:
        """An answer in one piece."""
        part: dict[str, Any] = {"text": getattr(turn, "text", "")}
        if hasattr(turn, "command"):
            tool = next(tool for tool in self.tools(document) if tool["name"] in SHELLS)
            schema = tool.get("parametersJsonSchema") or tool.get("parameters")
            part = {"functionCall": {"name": tool["name"], "args": _arguments(turn.command, schema)}}
        content = {"role": "model", "parts": [part]}
        return {
            "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
            "usageMetadata": self._spent(turn),
        }

    def refusal(self, scenario: str, resets_in: int | None) -> Answer:
        """In the words of the real one."""
        status, word, text = {
            "rate_limited": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
            "credits": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan."),
            "login": (401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
            "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
            "broken": (500, "INTERNAL", "An internal error has occurred."),
            "unknown_model": (404, "NOT_FOUND", "models/nosuchmodel is not found for API version v1beta"),
            "bad_request": (400, "INVALID_ARGUMENT", "The input token count exceeds the maximum."),
        }[scenario]
        details: list[dict[str, Any]] = []
        if scenario == "credits":
            violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50"}
            kind = "type.googleapis.com/google.rpc.QuotaFailure"
            details.append({"@type": kind, "violations": [violation]})
        if resets_in is not None:
            details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{resets_in}s"})
        return status, {}, {"error": {"code": status, "message": text, "status": word, "details": details}}

    def _spent(self, turn: Any) -> dict[str, int]:
        tokens_in, tokens_out = _usage(turn)
        counts = {"promptTokenCount": tokens_in, "candidatesTokenCount": tokens_out}
        return {**counts, "totalTokenCount": tokens_in + tokens_out}
