"""The child process of an `openai` engine: one streamed chat completion, from the job's prompt to a report.

It reads the job (`VIBEY_JOB_FILE`), what to ask and where (`VIBEY_CHAT`, a JSON object) and the key
(`VIBEY_CHAT_KEY`), prints the text as it comes, a model's thoughts included, and leaves text and token counts
in `VIBEY_RESULT_FILE`.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibey.domain.outcome import one_line
from vibey.domain.prompt import prompt_of
from vibey.engines.calling import DeclaredFailure, EngineFault, Misconfigured
from vibey.engines.causes import sentence_cause
from vibey.engines.ours import write_report
from vibey.engines.refusal import Refusal
from vibey.engines.resets import provider_clock
from vibey.engines.results import LARGEST_RESULT
from vibey.engines.sse import Event, EventStream, EventTooLong
from vibey.engines.web import below, connected

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

ORDER_VARIABLE = "VIBEY_CHAT"
KEY_VARIABLE = "VIBEY_CHAT_KEY"
LARGEST_ERROR = 64 * 1024
END_SECONDS = 5.0
"""How long an answer that has said that it is finished may still send token counts."""
FAILED_ENDINGS = frozenset(
    {
        "error",
        "failed",
        "server_error",
        "network_error",
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "timeout",
        "insufficient_system_resource",
    }
)
"""Finish reasons that say that the answer is not what the model would have said."""
_FAULT = re.compile(r"(?:error|exception|failure|failed)$", re.IGNORECASE)
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
    """The completion so far.

    `sent` is what was asked, in words. `finished` once the server has said that it is at its end, whatever the
    connection does. `heard` is the monotonic second of the last event that carried something.
    """

    model: str
    sent: str = ""
    parts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    finished: bool = False
    done: bool = False
    tokens_in: int | None = None
    tokens_out: int | None = None
    heard: float = field(default_factory=time.monotonic)

    def take(self, event: Event, headers: Mapping[str, str]) -> str:
        """Take in one event, or a whole completion; the text to print. Raises DeclaredFailure."""
        if event.data == "[DONE]":
            self.finished = self.done = True
            return ""
        document = _document(event, lambda words: self.refusal(words, headers).failure(self.model))
        if document is None:
            return ""
        if not self.finished:
            self.heard = time.monotonic()
        said = _error_of(document, event.name)
        if said is not None:
            raise self.refusal(said, headers).failure(self.model)
        self._count(document.get("usage"))
        choices = document.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        return self._take_choice(choice, event, headers) if isinstance(choice, dict) else ""

    def _take_choice(self, choice: Mapping[str, Any], event: Event, headers: Mapping[str, str]) -> str:
        said = choice.get("delta") or choice.get("message")
        words = said if isinstance(said, dict) else choice
        reason = choice.get("finish_reason")
        error = choice.get("error") or (words.get("error") if words is said else None)
        if error or (isinstance(reason, str) and reason.lower() in FAILED_ENDINGS):
            ending = {"code": reason, "message": f"the server ended the answer with finish_reason {reason}"}
            raise self.refusal(error or ending, headers).failure(self.model)
        text, thought = _parts(words.get("content") if words is said else words.get("text"))
        thought = thought or _text(words, "reasoning_content") or _text(words, "reasoning")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        ends = bool(self.finish_reason) or (event.name == "document" and "message" in choice)
        if text or thought or ends != self.finished:
            self.heard = time.monotonic()
        self.finished = self.finished or ends
        if text:
            self.parts.append(text)
        return thought + text if self.parts else thought

    def refusal(self, said: object, headers: Mapping[str, str]) -> Refusal:
        """The refusal that an event, or a text in the place of one, is."""
        return Refusal.told(said, headers, provider_clock(headers, time.time()), self.sent)

    def report(self) -> dict[str, object]:
        """The report of a completion that has come to its end."""
        text = "".join(self.parts)
        if self.tokens_out == 0 and sentence_cause(text) is not None:
            # No model wrote this: it is the gateway's or the provider's own sentence in the place of an answer.
            raise self.refusal(text, {}).failure(self.model)
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
            self.tokens_in = _counted(usage.get("prompt_tokens"), self.tokens_in)
            self.tokens_out = _counted(usage.get("completion_tokens"), self.tokens_out)


def messages_of(payload: Mapping[str, object]) -> list[dict[str, str]]:
    """The messages a job asks with; raises DeclaredFailure for a payload without a prompt."""
    prompt, system = prompt_of(payload), payload.get("system")
    if prompt is None:
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
        # The answer keeps the socket open, but the connection may forget it.
        line = connection.sock
        _read(connection.getresponse(), line, order, reply)


def _read(answer: http.client.HTTPResponse, line: socket.socket, order: Order, reply: Reply) -> None:
    headers = {name.lower(): value for name, value in answer.getheaders()}
    if not 200 <= answer.status < 300:
        body = answer.read(LARGEST_ERROR).decode("utf-8", "replace")
        clock = provider_clock(headers, time.time())
        raise Refusal.answered(answer.status, body, headers, clock, reply.sent).failure(order.model)
    stream = EventStream()
    for piece in _pieces(answer, line, order.silence, reply):
        for event in stream.feed(piece):
            _print(reply.take(event, headers))
            if reply.done:
                return
    for event in stream.rest():
        _print(reply.take(event, headers))
    if not reply.finished:
        kind = answer.headers.get_content_type()
        raise _unfinished(reply, reply.refusal(stream.stray, headers), kind)


def _pieces(answer: http.client.HTTPResponse, line: socket.socket, silence: float, reply: Reply) -> Iterator[bytes]:
    """Bytes as they come, to the end of the answer or of the patience with it.

    What keeps the line open but says nothing is silence, too. An answer that has said that it is finished may still
    count its tokens; whatever becomes of the connection then, it is complete.
    """
    while True:
        left = (min(silence, END_SECONDS) if reply.finished else silence) - (time.monotonic() - reply.heard)
        try:
            if left <= 0:
                raise TimeoutError
            line.settimeout(left)
            piece = answer.read1(_PIECE)
        except (OSError, http.client.HTTPException):
            if reply.finished:
                return
            raise
        if not piece:
            return
        yield piece


def _unfinished(reply: Reply, stray: Refusal, kind: str) -> DeclaredFailure:
    """What an answer means that came to no end: a refusal in bare words, another kind of document, or a cut."""
    if stray.known_cause is not None:
        return stray.failure(reply.model)
    if reply.parts or not stray.body:
        return EngineFault("the stream ended before the completion did")
    if kind.endswith("json"):
        return EngineFault(f"the server sent {kind} that is not JSON")
    return EngineFault(f"the server answered with {kind} instead of a stream of events")


def _document(event: Event, failure: Callable[[str], DeclaredFailure]) -> dict[str, Any] | None:
    """The object an event holds, None for an empty event; raises DeclaredFailure for anything else."""
    if not event.data.strip():
        return None
    try:
        found = json.loads(event.data)
    except (ValueError, RecursionError):
        if event.name == "error" or sentence_cause(event.data) is not None:
            raise failure(event.data) from None
        raise EngineFault("the server sent an event that is not JSON") from None
    if isinstance(found, list) and found and isinstance(found[0], dict):
        found = found[0]
    if isinstance(found, str) and event.name == "error":
        raise failure(found)
    if not isinstance(found, dict):
        raise EngineFault("the server sent an event that is no JSON object")
    return found


def _error_of(document: Mapping[str, Any], name: str) -> object:
    """The error that an event is, None if it is none: some servers answer 200 and then put it in here."""
    if document.get("error") or name == "error" or "error" in (document.get("object"), document.get("type")):
        return document
    if document.get("choices"):
        return None
    base = document.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):
        return document
    if name == "document" and "choices" not in document and (document.get("message") or document.get("msg")):
        return document
    tells = document.get("message") and (
        document.get("code") not in {None, 0, 200, "", "0", "200", "ok", "success"}
        or any(_FAULT.search(_text(document, name)) for name in ("type", "__type", "object", "status"))
    )
    told = any(document.get(key) for key in ("errors", "detail", "error_code", "error_msg"))
    return document if tells or told else None


def _print(text: str) -> None:
    if text:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def _text(said: Mapping[str, object], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


def _parts(content: object) -> tuple[str, str]:
    """Text and thoughts of a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content, ""
    text, thought = "", ""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict) and "thinking" in part:
            thought += "".join(_parts(part["thinking"]))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            thinks = part.get("type") in {"thinking", "reasoning"}
            thought, text = (thought + part["text"], text) if thinks else (thought, text + part["text"])
    return text, thought


def _counted(value: object, before: int | None) -> int | None:
    """A count as some servers write it, 12 or 1.2e1; the one before for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2**53:
        return before
    return int(value) if value == int(value) else before


def _fitting(text: str) -> str:
    """The beginning of a text that a result file can hold."""
    while (size := len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))) > _LARGEST_TEXT:
        text = text[: len(text) * _LARGEST_TEXT // size]
    return text


def complete(order: Order, key: str, payload: Mapping[str, object]) -> dict[str, object]:
    """The report of one completion, however it went."""
    reply = Reply(order.model)
    try:
        messages = messages_of(payload)
        reply.sent = "\n".join(message["content"] for message in messages)
        ask(order, key, messages, reply)
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
