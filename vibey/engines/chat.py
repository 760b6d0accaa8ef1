"""The child process of an `openai` engine: one streamed chat completion, from the job's prompt to a report.

It reads the job (`VIBEY_JOB_FILE`), what to ask and where (`VIBEY_CHAT`, a JSON object) and the key
(`VIBEY_CHAT_KEY`), prints the text as it comes, a model's thoughts included, and leaves text and token counts
in `VIBEY_RESULT_FILE`.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibey.domain.outcome import one_line
from vibey.engines.calling import DeclaredFailure, EngineFault, Misconfigured
from vibey.engines.ours import write_report
from vibey.engines.refusal import Refusal
from vibey.engines.resets import provider_clock
from vibey.engines.results import LARGEST_RESULT
from vibey.engines.sse import EventStream, EventTooLong
from vibey.engines.web import below, connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ORDER_VARIABLE = "VIBEY_CHAT"
KEY_VARIABLE = "VIBEY_CHAT_KEY"
LARGEST_ERROR = 64 * 1024
_LARGEST_PLAIN_REPLY = 4 * 1024 * 1024
_PIECE = 64 * 1024
_LARGEST_TEXT = LARGEST_RESULT - 4096


@dataclass(frozen=True, slots=True)
class Order:
    """Where to ask and what: `fields` go into the request beside the messages; `silence` is seconds."""

    base_url: str
    model: str
    fields: Mapping[str, object]
    silence: float

    def packed(self) -> str:
        """The order as the variable holds it."""
        return json.dumps(
            {"base_url": self.base_url, "model": self.model, "fields": self.fields, "silence": self.silence}
        )


@dataclass(slots=True)
class Reply:
    """The completion so far."""

    model: str
    parts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    done: bool = False
    tokens_in: int | None = None
    tokens_out: int | None = None

    def take(self, document: object, headers: Mapping[str, str]) -> str:
        """Take in one event, or a whole completion; the text to print. Raises DeclaredFailure."""
        if not isinstance(document, dict):
            raise EngineFault("the server sent an event that is no JSON object")
        if document.get("error"):
            now = provider_clock(headers, time.time())
            raise Refusal.in_event(document["error"], headers, now).failure(self.model)
        self._count(document.get("usage"))
        choices = document.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return ""
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        said = choice.get("delta") or choice.get("message")
        if not isinstance(said, dict):
            return ""
        text = _text(said, "content")
        if text:
            self.parts.append(text)
        return _text(said, "reasoning_content") or _text(said, "reasoning") or text

    def report(self) -> dict[str, object]:
        """The report of a completion that has come to its end."""
        text = "".join(self.parts)
        result: dict[str, object] = {"text": text}
        if self.finish_reason not in {None, "stop"}:
            result["finish_reason"] = self.finish_reason
        if not text.strip():
            raise DeclaredFailure(f"the model answered nothing (finish_reason {self.finish_reason})")
        fitting = _fitting(text)
        if fitting != text:
            result = {**result, "text": fitting, "truncated": True}
        return {"result": result}

    def tokens(self) -> dict[str, object]:
        """The counts the server gave."""
        return {"tokens_in": self.tokens_in, "tokens_out": self.tokens_out}

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.tokens_in = _count(usage.get("prompt_tokens"), self.tokens_in)
            self.tokens_out = _count(usage.get("completion_tokens"), self.tokens_out)


def messages_of(payload: Mapping[str, object]) -> list[dict[str, str]]:
    """The messages a job asks with; raises DeclaredFailure for a payload without a prompt."""
    prompt, system = payload.get("prompt"), payload.get("system")
    if not isinstance(prompt, str) or not prompt.strip():
        raise DeclaredFailure("payload.prompt is missing: an openai engine needs its text")
    if system is not None and not isinstance(system, str):
        raise DeclaredFailure("payload.system is not text")
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": prompt}]


def ask(order: Order, key: str, messages: list[dict[str, str]], reply: Reply) -> None:
    """Have the server complete the messages into the reply, printing as it comes. Raises DeclaredFailure."""
    body = {
        **order.fields,
        "model": order.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        route = connected(below(order.base_url, "/chat/completions"), os.environ, patience=order.silence)
    except ssl.SSLCertVerificationError as error:
        fix = "name its certificate authority in SSL_CERT_FILE"
        raise Misconfigured(f"{order.base_url}: {error.verify_message}; {fix}") from None
    headers = {
        "Accept": "text/event-stream",
        "Content-Type": "application/json",
        "User-Agent": "vibey",
        **({"Authorization": f"Bearer {key}"} if key else {}),
        **route.headers,
    }
    with closing(route.connection) as connection:
        connection.request("POST", route.target, json.dumps(body).encode(), headers)
        _read(connection.getresponse(), order, reply)


def _read(answer: http.client.HTTPResponse, order: Order, reply: Reply) -> None:
    headers = {name.lower(): value for name, value in answer.getheaders()}
    if answer.status != http.client.OK:
        body = answer.read(LARGEST_ERROR).decode("utf-8", "replace")
        now = provider_clock(headers, time.time())
        raise Refusal(answer.status, body, headers, now).failure(order.model)
    kind = answer.headers.get_content_type()
    if kind == "application/json":
        _print(reply.take(_parsed(answer.read(_LARGEST_PLAIN_REPLY)), headers))
        reply.done = True
    elif kind != "text/event-stream":
        raise EngineFault(f"the server answered with {kind} instead of a stream of events")
    for event in _events(answer, order.silence):
        if event == "[DONE]":
            reply.done = True
            break
        _print(reply.take(_parsed(event), headers))
    if not reply.done and reply.finish_reason is None:
        raise EngineFault("the stream ended before the completion did")


def _events(answer: http.client.HTTPResponse, silence: float) -> Iterator[str]:
    """Events as they come. What keeps the line open but says nothing is silence, too."""
    stream = EventStream()
    heard = time.monotonic()
    while piece := answer.read1(_PIECE):
        for event in stream.feed(piece):
            heard = time.monotonic()
            yield event
        if time.monotonic() - heard > silence:
            raise TimeoutError


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise EngineFault("the server sent an event that is not JSON") from None


def _print(text: str) -> None:
    if text:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def _text(said: Mapping[str, object], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


def _count(value: object, before: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else before


def _fitting(text: str) -> str:
    """The beginning of a text that a result file can hold."""
    while (size := len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))) > _LARGEST_TEXT:
        text = text[: len(text) * _LARGEST_TEXT // size]
    return text


def complete(order: Order, key: str, payload: Mapping[str, object]) -> dict[str, object]:
    """The report of one completion, however it went."""
    reply = Reply(order.model)
    try:
        ask(order, key, messages_of(payload), reply)
        report = reply.report()
    except DeclaredFailure as declared:
        report = {"failure": declared.document()}
    except TimeoutError:
        report = {"failure": EngineFault(f"{order.base_url} was silent for {order.silence:g} s").document()}
    except (OSError, http.client.HTTPException, EventTooLong) as error:
        detail = one_line(f"{order.base_url}: {str(error) or type(error).__name__}")
        report = {"failure": EngineFault(detail).document()}
    _print("\n")
    return {**report, **reply.tokens()}


def main() -> int:
    """Exit status 0: the report says how it went."""
    said: dict[str, Any] = json.loads(os.environ[ORDER_VARIABLE])
    job = json.loads(Path(os.environ["VIBEY_JOB_FILE"]).read_text(encoding="utf-8"))
    report = complete(Order(**said), os.environ.get(KEY_VARIABLE, ""), job["payload"])
    write_report(Path(os.environ["VIBEY_RESULT_FILE"]), report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
