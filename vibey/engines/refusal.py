"""Refusal: what an OpenAI-compatible server means by an answer that is no completion. One table for all of them.

| the answer | failure |
|---|---|
| credit words (`insufficient_quota`, …), 402 | CAPACITY credits |
| 401, 403 | CAPACITY login |
| 429 | CAPACITY window, with the reset it names; busy, if it says that it is overloaded |
| 529; 503 that says busy, loading, no slot, or when to retry | CAPACITY busy |
| 408, any other 5xx | ENGINE |
| 3xx; 404 and 405; a model it does not know | MISCONFIGURED, with what to do |
| any other 4xx, such as a prompt longer than the context | WORK |

Servers that have answered 200 already put the same words into an event `{"error": …}`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from vibey.domain.outcome import CapacityKind, one_line
from vibey.engines.calling import CapacityRefused, DeclaredFailure, EngineFault, Misconfigured
from vibey.engines.resets import reset_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_CREDITS = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|credit balance|billing_(?:hard_limit|not_active)|out of credits"
)
_BUSY = re.compile(
    r"loading model|no slots? available|slots? (?:is|are) (?:busy|full)|server (?:is )?busy|overloaded|\bqueue"
    r"|(?:maximum|too many) (?:pending|concurrent)|at capacity"
)
_NO_MODEL = re.compile(
    r"model_not_found|model\b.{0,200}?(?:not found|does not exist|not exist|is unknown)|no such model|invalid model"
)
_CODES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "insufficient_quota": 402,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "invalid_request_error": 400,
    "content_filter": 400,
}
_LOGIN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no completion. `headers` have lowercase names; `now` is the server's Unix second."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0

    @classmethod
    def in_event(cls, said: object, headers: Mapping[str, str], now: float) -> Refusal:
        """The refusal that the value of an event's `error` is; 500 unless it says what it is."""
        words = said if isinstance(said, dict) else {}
        for name in ("code", "status", "type"):
            value = words.get(name)
            if isinstance(value, int) and 400 <= value < 600:
                return cls(value, json.dumps({"error": said}), headers, now)
            if isinstance(value, str) and value in _CODES:
                return cls(_CODES[value], json.dumps({"error": said}), headers, now)
        return cls(500, json.dumps({"error": said}), headers, now)

    def failure(self, model: str) -> DeclaredFailure:
        """What it means for a run that asked for this model."""
        text = self.body.lower()
        if 300 <= self.status < 400:
            return Misconfigured(f"{self._said()}: it redirects, and the key is not sent along; correct base_url")
        kind = self._kind(text)
        if kind is not None:
            clocked = kind in {CapacityKind.WINDOW, CapacityKind.BUSY}
            return CapacityRefused(kind, self._reset() if clocked else None, self._said())
        if self.status >= 500 or self.status == HTTPStatus.REQUEST_TIMEOUT:
            return EngineFault(self._said())
        return self._of_the_request(text, model)

    def _kind(self, text: str) -> CapacityKind | None:
        if self.status == HTTPStatus.PAYMENT_REQUIRED or (self.status < 500 and _CREDITS.search(text)):
            return CapacityKind.CREDITS
        if self.status in _LOGIN:
            return CapacityKind.LOGIN
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            return CapacityKind.BUSY if _BUSY.search(text) else CapacityKind.WINDOW
        return CapacityKind.BUSY if self._is_busy(text) else None

    def _of_the_request(self, text: str, model: str) -> DeclaredFailure:
        if _NO_MODEL.search(text):
            fix = f"run: ollama pull {model}" if "pull" in text else "see GET /models for those it has"
            return Misconfigured(f"{self._said()}; {fix}")
        if self.status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            return Misconfigured(f"{self._said()}; base_url is usually an address that ends in /v1")
        return DeclaredFailure(self._said())

    def _is_busy(self, text: str) -> bool:
        if self.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return _BUSY.search(text) is not None or "retry-after" in self.headers
        return self.status == 529

    def _reset(self) -> float | None:
        return reset_seconds(self.headers, self.body, self.now)

    def _said(self) -> str:
        return one_line(f"HTTP {self.status}: {message_of(self.body) or 'no reason given'}", 300)


def message_of(body: str) -> str:
    """The words for people in an error's body: its message if it has the usual form, else its text."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if isinstance(said, list) and said:
        said = said[0]
    for _ in range(2):
        if isinstance(said, dict):
            said = said.get("error") or said.get("message") or said.get("detail")
    return said if isinstance(said, str) else body
