"""Signs: what a client, or its provider, shows of a refusal, and what it means for the run.

| what is shown | meaning | the run |
|---|---|---|
| 429, a spent window | CAPACITY window, with the reset it names | ends at once |
| no credits, 402 | CAPACITY credits | ends at once |
| 401, 403 | CAPACITY login | ends at once |
| a server that is loading or has no slot free | CAPACITY busy | ends at once |
| 404, a model nobody knows, settings the client refuses | MISCONFIGURED | ends at once |
| 408, any 5xx, an overloaded provider, a broken connection | ENGINE | goes on for some tries (`reading`) |
| any other 4xx, such as a prompt too long; the client's own word | WORK | goes on: the client may find a way |
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from vibey.domain.outcome import CapacityKind, Failure, FailureClass, one_line
from vibey.engines.refusal import Refusal, message_of
from vibey.engines.resets import provider_clock, reset_seconds
from vibey.engines.results import LONGEST_RESET_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_SLOT = re.compile(
    r"loading model|no slots? available|slots? (?:is|are) (?:busy|full)|server (?:is )?busy"
    r"|(?:maximum|too many) (?:pending|concurrent)"
)
_CLOCKED = (CapacityKind.WINDOW, CapacityKind.BUSY)


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
    declared = Refusal(status, body, named, clock).failure("")
    sign = _of_class(status, body.lower(), declared.failure_class, declared.kind)
    if sign.kind in _CLOCKED:
        sign = replace(sign, resets_in=reset_seconds(named, body, clock))
    return sign.saying(f"HTTP {status}: {message_of(body) or 'no reason given'}")


def _of_class(status: int, text: str, failure_class: FailureClass, kind: CapacityKind | None) -> Sign:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or kind is CapacityKind.BUSY:
        # To be full is a word of a server with slots; a provider that is overloaded is broken for now.
        return BUSY if _NO_SLOT.search(text) else TROUBLE
    if kind is not None:
        return Sign(FailureClass.CAPACITY, kind)
    if failure_class is FailureClass.MISCONFIGURED:
        return MISCONFIGURED
    return TROUBLE if failure_class is FailureClass.ENGINE else WORK
