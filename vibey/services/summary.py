"""Summary: watch a known set of jobs to its end, and say how the engines shared it.

Picks and expected shares are counters of the installation; those of one set of jobs are what the counters gained since
a `Tally` taken before they were enqueued, as long as nothing else was granted meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.offer import Why
from vibey.domain.rotation import UNIT
from vibey.domain.settlement import JobState
from vibey.store import fleet, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vibey.services.installation import Installation
    from vibey.store.statement import Row

ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Share:
    """One engine's part; `peak` is the most slots held at once, `expected` the sum of the shares offered, in picks."""

    name: str
    tier: str
    slots: int
    in_use: int
    peak: int
    picks: int
    expected: float
    succeeded: int


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job; `waited` is seconds from enqueueing to its first start, `stumbles` says why earlier runs failed.

    `overflows` counts its runs on a paid engine because the local ones were full.
    """

    job_id: int
    state: str
    attempt: int
    runs: int
    reason: str
    capabilities: tuple[str, ...]
    waited: float | None
    stumbles: tuple[str, ...]
    overflows: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDS


@dataclass(frozen=True, slots=True)
class Summary:
    """A set of jobs and the engines, at one instant; `holds` counts attempts that were held, `held_jobs` their jobs."""

    shares: tuple[Share, ...]
    jobs: tuple[JobLine, ...]
    holds: int = 0
    held_jobs: int = 0

    @property
    def states(self) -> Counter[str]:
        """How many jobs are in each state."""
        return Counter(job.state for job in self.jobs)

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return sum(job.has_ended for job in self.jobs)

    @property
    def succeeded(self) -> int:
        """How many jobs succeeded."""
        return self.states[JobState.SUCCEEDED]

    @property
    def overflows(self) -> int:
        """How many runs overflowed."""
        return sum(job.overflows for job in self.jobs)

    def waited(self, percent: int) -> float | None:
        """The wait, in seconds, that so many percent of the started jobs did not exceed; None before any started."""
        waits = sorted(job.waited for job in self.jobs if job.waited is not None)
        return waits[max(0, -(-percent * len(waits) // 100) - 1)] if waits else None


@dataclass(frozen=True, slots=True)
class Tally:
    """The engines' counters at some instant: picks, and shares offered in 10^-12 of a pick, by engine."""

    counts: Mapping[str, tuple[int, int]]


def tally(installation: Installation) -> Tally:
    """The counters now."""
    rows = installation.database.statement(lambda connection: summary.ENGINES.all(connection, jobs=[]))
    return Tally({row.name: (row.selected_count, int(row.expected)) for row in rows})


def summarise(installation: Installation, jobs: Sequence[int], since: Tally) -> Summary:
    """How these jobs and the engines are, counted since the tally."""
    engines, lines, runs, held = installation.database.run(lambda connection: summary.read(connection, jobs))
    peaks = peak_use((row.engine, row.begun, row.ended) for row in runs)
    stumbles: dict[int, list[str]] = {}
    overflows = Counter(row.job_id for row in runs if row.why == Why.OVERFLOW)
    for row in runs:
        if row.state in {"failed", "lost"}:
            stumbles.setdefault(row.job_id, []).append(f"{row.engine}: {row.detail or row.state}")
    return Summary(
        tuple(_share(row, peaks, since) for row in engines),
        tuple(_line(row, stumbles.get(row.id, []), overflows[row.id]) for row in lines),
        held.holds,
        held.jobs,
    )


def open_jobs(installation: Installation) -> list[int]:
    """The numbers of all jobs of the installation that have not ended."""
    return installation.database.statement(summary.open_jobs)


def worker_pids(installation: Installation) -> frozenset[int]:
    """The numbers of the main processes of the workers seen within the hour, on any machine."""
    return frozenset(row.pid for row in installation.database.statement(fleet.workers))


def peak_use(holds: Iterable[tuple[str, float, float]]) -> Counter[str]:
    """By engine, the most slots held at once; a hold is its engine, its begin and its end, the end not included."""
    changes = sorted(change for engine, begun, ended in holds for change in ((begun, 1, engine), (ended, -1, engine)))
    level: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for _, step, engine in changes:
        level[engine] += step
        peak[engine] = max(peak[engine], level[engine])
    return peak


def _share(row: Row[Any], peaks: Counter[str], since: Tally) -> Share:
    picks, expected = since.counts.get(row.name, (0, 0))
    return Share(
        name=row.name,
        tier=row.tier,
        slots=row.slots,
        in_use=row.in_use,
        peak=peaks[row.name],
        picks=row.selected_count - picks,
        expected=(int(row.expected) - expected) / UNIT,
        succeeded=row.succeeded,
    )


def _line(row: Row[Any], stumbles: Sequence[str], overflows: int) -> JobLine:
    return JobLine(
        job_id=row.id,
        state=row.state,
        attempt=row.attempt,
        runs=row.runs,
        reason=row.reason,
        capabilities=tuple(row.capabilities),
        waited=row.waited,
        stumbles=tuple(stumbles),
        overflows=overflows,
    )
