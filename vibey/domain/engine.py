"""Engine facts: everything routing knows of an engine, and how full the fleet is, at one instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.domain.effort import Effort

MILLION = 1_000_000


class Tier(StrEnum):
    """Where an engine runs: the operator's own hardware (price 0), or something paid. Preference in this order."""

    LOCAL = "local"
    PAID = "paid"


NOT_NEEDED = "not needed so far"
"""Said of an engine that was never offered a job while others served: one of a lower tier, at rest."""


class Phase(StrEnum):
    """What a circuit lets through: everything, one probe, or nothing."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine as of the snapshot. `ordinal` is its declared order and settles ties.

    `weight` and `failure` are millionths, `price` is micro-dollars for a million tokens in and out together
    (0: free or unknown). `failure` is the account's failure average, already decayed to the snapshot's instant.
    `staffed` says a live worker serves it; `busy` that its server answered so within the last poll; `demoted` that
    its quota is nearly spent, so that others should be taken first; `calls_only` that it runs nothing but calls of
    Celery tasks.
    """

    name: str
    tier: Tier
    ordinal: int
    slots: int
    account: str
    weight: int = MILLION
    enabled: bool = True
    installed: bool = True
    conformant: bool = True
    login_ok: bool = True
    phase: Phase = Phase.CLOSED
    failure: int = 0
    capabilities: frozenset[str] = frozenset()
    efforts: tuple[Effort, ...] = ()
    price: int = 0
    staffed: bool = True
    busy: bool = False
    demoted: bool = False
    calls_only: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """How full the fleet is: live runs per engine, and accounts whose half-open probe is out."""

    in_use: Mapping[str, int] = field(default_factory=dict)
    probing: frozenset[str] = frozenset()

    def free_slots(self, engine: EngineFacts) -> int:
        """Slots a run could take now; full is 0, whatever filled it. A half-open account grants one probe in all."""
        if engine.busy or not engine.staffed:
            return 0
        unused = engine.slots - self.in_use.get(engine.name, 0)
        if unused <= 0:
            return 0
        if engine.phase is Phase.HALF_OPEN:
            return 0 if engine.account in self.probing else 1
        return unused

    def with_run(self, engine: EngineFacts) -> Usage:
        """The usage once a run has been granted on this engine."""
        in_use = dict(self.in_use)
        in_use[engine.name] = in_use.get(engine.name, 0) + 1
        probing = self.probing | {engine.account} if engine.phase is Phase.HALF_OPEN else self.probing
        return Usage(in_use, probing)
