"""Refusal: an answer of an OpenAI-compatible server that is no completion, as the failure of the run that asked.

Whose fault it is, the table in `vibey.engines.causes` says; when to come back, `vibey.engines.resets`. Servers that
have answered 200 already put the same words into an event, or into a choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibey.domain.outcome import CapacityKind, FailureClass, one_line
from vibey.domain.shell import command
from vibey.engines.calling import CapacityRefused, DeclaredFailure, EngineFault, Misconfigured
from vibey.engines.causes import Cause, cause_of, sentence_cause, spoken_cause
from vibey.engines.errorbody import ErrorBody
from vibey.engines.resets import reset_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCKED = (CapacityKind.WINDOW, CapacityKind.BUSY)
"""What comes back by itself, so that a reset says something."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no completion. `status` is None where there was none, as in an event of a stream.

    `headers` have lowercase names; `now` is the server's Unix second.
    """

    status: int | None
    body: str
    said: ErrorBody
    headers: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0

    @classmethod
    def answered(
        cls, status: int, body: str, headers: Mapping[str, str] | None = None, now: float = 0.0, sent: str = ""
    ) -> Refusal:
        """The refusal that an answer of this status is; `sent` is what was asked, which a server may repeat."""
        return cls(status, body, ErrorBody.of(body, sent), headers or {}, now)

    @classmethod
    def told(cls, said: object, headers: Mapping[str, str] | None = None, now: float = 0.0, sent: str = "") -> Refusal:
        """The refusal that a text, or the value of an error's field, is; its status is the one it names."""
        found = ErrorBody.of({"error": said}, sent)
        return cls(found.status, said if isinstance(said, str) else "", found, headers or {}, now)

    @property
    def known_cause(self) -> Cause | None:
        """The row of the table that the words or codes lead to, None if they say nothing known."""
        spoken = spoken_cause(self.said, self.status)
        return spoken or (sentence_cause(self.said.whole_text) if self.status is None else None)

    @property
    def cause(self) -> Cause:
        """The row of the table, by the status where nothing known was said."""
        return self.known_cause or cause_of(self.said, self.status, may_retry="retry-after" in self.headers)

    @property
    def resets_in(self) -> float | None:
        """Seconds until the server serves again, by its own word; None where that says nothing."""
        return self._resets_in(self.cause)

    @property
    def detail(self) -> str:
        """What was said, for people."""
        words = self.said.whole_text or self.body.strip() or "no reason given"
        return one_line(words if self.status is None else f"HTTP {self.status}: {words}", 300)

    def failure(self, model: str) -> DeclaredFailure:
        """What it means for a run that asked for this model."""
        cause = self.cause
        if cause.kind is not None:
            return CapacityRefused(cause.kind, self._resets_in(cause), self.detail)
        if cause.failure_class is FailureClass.ENGINE:
            return EngineFault(self.detail)
        if cause.failure_class is FailureClass.MISCONFIGURED:
            return Misconfigured(f"{self.detail}{self._fix(cause, model)}")
        return DeclaredFailure(self.detail)

    def _resets_in(self, cause: Cause) -> float | None:
        return reset_seconds(self.headers, self.said, self.now) if cause.kind in CLOCKED else None

    def _fix(self, cause: Cause, model: str) -> str:
        if self.status is not None and 300 <= self.status < 400:
            return ": it redirects, and the key is not sent along; correct base_url"
        if cause.name == "unknown_model":
            pulls = "pull" in self.body.lower()
            return f"; run: {command('ollama pull', model)}" if pulls else "; see GET /models for those it has"
        return "; base_url is usually an address that ends in /v1"


def message_of(body: str) -> str:
    """The words for people in an error's body: its messages if it has a usual form, else its text."""
    return ErrorBody.of(body).whole_text or body
