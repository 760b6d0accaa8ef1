"""Outcome: the one answer a run ends with, and the classes of failure that decide what happens next.

An outcome is what an engine's adapter says about work that ended by itself or was ended for taking too long.
A run that was told to stop (cancelled, lease lost) has no outcome: its end is somebody else's decision.

Beside its end an outcome may warn: `near_quota_ms` says that the quota behind the engine is nearly spent, and for how
long from now, so that others are taken first meanwhile. A refusal is another thing: there the quota is spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DETAIL_LENGTH = 500
LARGEST_COST = Decimal("999999.999999")
"""The largest cost of a run that is stored, in US dollars; its exponent is the precision of every cost."""
LARGEST_COUNT = 2**53
"""The largest number of tokens of a run that is stored."""


class FailureClass(StrEnum):
    """Whose fault a failure is, and so who pays for it."""

    WORK = "work"
    """The job's own: its program failed, its result was unusable."""
    ENGINE = "engine"
    """The engine's: crash, timeout, stall."""
    CAPACITY = "capacity"
    """The provider refused for want of capacity; `CapacityKind` says which."""
    VIBEY = "vibey"
    """Our own: a bug or a broken host."""
    HANDOFF = "handoff"
    """The engine wound down early and saved its state, so that another can go on."""
    MISCONFIGURED = "misconfigured"
    """Nothing can run here until a person acts."""


class CapacityKind(StrEnum):
    """What ran out."""

    WINDOW = "window"
    """A usage window; it ends by the clock."""
    CREDITS = "credits"
    """Money; it comes back when somebody pays."""
    LOGIN = "login"
    """The login is stale or refused."""
    BUSY = "busy"
    """Every slot of the server is in use just now: full, not broken."""


@dataclass(frozen=True, slots=True)
class Success:
    """The work is done. Cost is US dollars; None means the engine did not say."""

    result: Mapping[str, object] | None = None
    cost_usd: Decimal | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    near_quota_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The work is not done, for a classified reason.

    `detail` is one printable line. A capacity failure has a kind, and may say when to come back: either
    `resets_at_ms`, an instant the provider named (Unix epoch), or `resets_in_ms`, a wait counted from now. A
    wait becomes an instant only by the database's clock: see `dated`. A `final` failure of the work is its last word:
    another attempt would lead to the same. `unstarted` means that the engine provably did no work: no process of
    it was ever started. Vibey sets it for kinds of its own (see `vibey.engines.contract`).
    """

    failure_class: FailureClass
    detail: str
    capacity_kind: CapacityKind | None = None
    resets_at_ms: int | None = None
    resets_in_ms: int | None = None
    cost_usd: Decimal | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    near_quota_ms: int | None = None
    final: bool = False
    unstarted: bool = False

    def __post_init__(self) -> None:
        if (self.failure_class is FailureClass.CAPACITY) != (self.capacity_kind is not None):
            raise ValueError(f"{self.failure_class.value}: a capacity failure has a kind, and no other has one")
        if self.final and self.failure_class is not FailureClass.WORK:
            raise ValueError(f"{self.failure_class.value}: only a failure of the work is final")

    def dated(self, now_ms: int) -> Failure:
        """The same failure, its wait turned into an instant; `now_ms` is the database's clock, Unix epoch."""
        if self.resets_in_ms is None:
            return self
        return replace(self, resets_at_ms=now_ms + self.resets_in_ms, resets_in_ms=None)

    @property
    def did_no_work(self) -> bool:
        """Whether the engine refused or failed before it spent anything, so that an allowance may be given back."""
        spent = self.tokens_in or self.tokens_out or self.cost_usd
        return (self.failure_class is FailureClass.CAPACITY or self.unstarted) and not spent


Outcome = Success | Failure


def one_line(text: str, length: int = DETAIL_LENGTH) -> str:
    """Text fit for a detail: one line, printable (no NUL, no lone surrogate), at most `length` characters."""
    flat = " ".join(text[: 4 * length].split())
    clean = "".join(mark if mark.isprintable() else "\ufffd" for mark in flat)
    return clean if len(clean) <= length else f"{clean[: length - 1]}…"
