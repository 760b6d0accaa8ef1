"""Signs: what a client, or its provider, shows of a refusal, and what it means for the run.

| cause (`vibey.engines.causes`) | the run |
|---|---|
| CAPACITY window, credits, login; a server that is loading or has no slot free | ends at once |
| MISCONFIGURED: a model nobody knows, settings that the client refuses | ends at once |
| ENGINE, and a provider that is overloaded | goes on for some tries (`reading`) |
| WORK, such as a prompt too long | goes on: the client may find a way |
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vibey.domain.outcome import CapacityKind, Failure, FailureClass, one_line
from vibey.engines.causes import Cause, sentence_cause
from vibey.engines.refusal import CLOCKED, Refusal
from vibey.engines.resets import provider_clock, reset_seconds
from vibey.engines.results import LONGEST_RESET_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign: the failure it means, and whether the client may still get over it.

    `resets_in` is seconds from now, `resets_at` Unix seconds; at most one of them is known.
    """

    failure_class: FailureClass
    kind: CapacityKind | None = None
    passing: bool = False
    detail: str = ""
    resets_in: float | None = None
    resets_at: float | None = None

    def saying(self, detail: str) -> Sign:
        """The same sign in these words."""
        return replace(self, detail=one_line(detail, 300) or self.failure_class.value)

    def failure(self) -> Failure:
        """The failure of a run that ends by this sign."""
        in_ms = None if self.resets_in is None else int(min(max(self.resets_in, 0.0), LONGEST_RESET_SECONDS) * 1000)
        at_ms = None if self.resets_at is None else int(self.resets_at * 1000)
        return Failure(self.failure_class, self.detail, self.kind, resets_at_ms=at_ms, resets_in_ms=in_ms)


WINDOW = Sign(FailureClass.CAPACITY, CapacityKind.WINDOW)
CREDITS = Sign(FailureClass.CAPACITY, CapacityKind.CREDITS)
LOGIN = Sign(FailureClass.CAPACITY, CapacityKind.LOGIN)
BUSY = Sign(FailureClass.CAPACITY, CapacityKind.BUSY)
MISCONFIGURED = Sign(FailureClass.MISCONFIGURED)
TROUBLE = Sign(FailureClass.ENGINE, passing=True)
WORK = Sign(FailureClass.WORK, passing=True)


def answered(status: int, body: str, headers: Mapping[str, str] | None = None, now: float | None = None) -> Sign:
    """What a provider's answer of this status means; `now` is our Unix second, default: this one."""
    named = {name.lower(): value for name, value in (headers or {}).items()}
    clock = provider_clock(named, time.time() if now is None else now)
    return _of_refusal(Refusal.answered(status, body, named, clock))


def worded(text: str, now: float | None = None) -> Sign | None:
    """What words of a provider, or of a client on its provider's behalf, mean; None if they say nothing known."""
    refusal = Refusal.told(text, {}, time.time() if now is None else now)
    return None if refusal.known_cause is None else _of_refusal(refusal)


def sentence(text: str, now: float | None = None) -> Sign | None:
    """What a text that is a refusal as a whole means; None for any other text, whatever it speaks of."""
    cause = sentence_cause(text)
    if cause is None:
        return None
    sign = _of_cause(cause)
    return replace(sign, resets_in=reset_of(sign, text, now)).saying(text)


def reset_of(sign: Sign, said: str, now: float | None = None) -> float | None:
    """Seconds until the reset that words name, for a sign that has one; None if they name none."""
    if sign.kind not in CLOCKED or not said:
        return None
    return reset_seconds({}, said, time.time() if now is None else now)


def _of_refusal(refusal: Refusal) -> Sign:
    sign = _of_cause(refusal.cause)
    if sign.kind in CLOCKED:
        sign = replace(sign, resets_in=refusal.resets_in)
    return sign.saying(refusal.detail)


def _of_cause(cause: Cause) -> Sign:
    if cause.kind is CapacityKind.BUSY:
        # To be full is a word of a server with slots; a provider that is overloaded is broken for now.
        return BUSY if cause.slots else TROUBLE
    if cause.kind is not None:
        return Sign(FailureClass.CAPACITY, cause.kind)
    if cause.failure_class is FailureClass.MISCONFIGURED:
        return MISCONFIGURED
    return TROUBLE if cause.failure_class is FailureClass.ENGINE else WORK
