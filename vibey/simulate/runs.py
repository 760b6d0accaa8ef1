"""Runs: jobs at work on an engine, and what is written of each decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.engine import Tier
from vibey.domain.offer import Why

if TYPE_CHECKING:
    from vibey.domain.engine import EngineFacts
    from vibey.domain.outcome import Failure
    from vibey.simulate.queue import Job


@dataclass(slots=True, eq=False)
class Run:
    """A run under way. `unit` is where its unit of the cap was taken; `verdict` how it ends, None when it ends well."""

    number: int
    job: Job
    engine: str
    tier: Tier
    begun_ms: int
    why: Why
    unit: tuple[str, int] | None = None
    verdict: Failure | None = None

    @property
    def wanted_local(self) -> bool:
        """Whether it runs on a local engine, or elsewhere only because none could take it."""
        return self.tier is Tier.LOCAL or self.why is not Why.ASSIGN


def line_of(now_ms: int, job: Job, outcome: str, engine: EngineFacts | None, reason: str | None = None) -> str:
    """The line of a decision: JSON in one form only, its keys in one order."""
    where = f'"engine":"{engine.name}","tier":"{engine.tier.value}"' if engine else '"engine":null,"tier":null'
    why = "null" if reason is None else f'"{reason}"'
    attempt = job.attempts + 1
    at = seconds(now_ms)
    return f'{{"at":{at},"job":{job.shown},"attempt":{attempt},"outcome":"{outcome}",{where},"reason":{why}}}\n'


def seconds(milliseconds: int) -> str:
    """Milliseconds as seconds, written in one way only."""
    whole, rest = divmod(milliseconds, 1000)
    return str(whole) if not rest else f"{whole}.{rest:03}".rstrip("0")
