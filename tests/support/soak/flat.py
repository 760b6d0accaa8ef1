"""Flat: whether a series grows. Pure: series and bounds in, a finding out.

Each track is judged by its own growth, so that a process that is replaced now and then hides nothing: Celery ends a
pool's process after two thousand tasks, and the sum over a pool would only be a saw's teeth.

Counts (files, threads, processes, connections, keys) may not grow at all, but for a small constant: what the slope
comes to over the track's time, less what the swing of the count alone can make of it. Memory moves in steps for many
reasons, as an arena of the allocator, or one large audit, and creeps up to a level. It grows when it does so over the
whole time and in both halves of it, at the rate of the slowest of the three: a step is in one half only, and what nears
a level has reached it in the second. Its bounds are two: what one process may grow by, and what all processes of a
subject together may grow by for each job, so that a small leak in each is not lost among many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.support.soak.series import MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.soak.series import Series, Track

HOUR = 3600.0
MEGABYTE = 1_000_000.0
COUNTS = {"files": 3.0, "threads": 2.0, "processes": 3.0, "connections": 3.0, "clients": 10.0, "keys": 5.0}
# Backends open a table's files, and keep plans of statements, when they first meet them, be it late. Redis has a file
# for each client.
FILES = {"postgres, backends": 10.0, "redis": COUNTS["clients"]}
# A measurement holds the demand of its window while it is at work: its peak grows with the runs on record.
MEASURING = "control, pool"
DEMAND_BYTES = 1000.0
WITHOUT_JOBS = frozenset({"postgres, backends", MEASURING})


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may grow by how much over the judged time, and what of it is not judged.

    `memory` are bytes of one process: a few of the allocator's arenas, of a megabyte each. `job` are bytes for each
    job, of all of a subject's processes together. `files` are for subjects with a bound of their own. `warm` and
    `settling` are seconds, see `Series.tracks`.
    """

    warm: float
    settling: float
    memory: float = 3 * MEGABYTE
    job: float = 1000.0
    counts: Mapping[str, float] = field(default_factory=lambda: COUNTS)
    files: Mapping[str, float] = field(default_factory=lambda: FILES)

    def allowed(self, series: Series, jobs: int) -> float:
        """What one of a subject's things may grow by while so many jobs end."""
        if series.measure == MEMORY:
            return self.memory + (DEMAND_BYTES * jobs if series.subject == MEASURING else 0)
        usual = self.counts[series.measure]
        return self.files.get(series.subject, usual) if series.measure == "files" else usual

    def allowed_together(self, series: Series, jobs: int) -> float | None:
        """What all of them together may grow by while so many jobs end; None where that is not judged."""
        if series.measure != MEMORY or series.subject in WITHOUT_JOBS:
            return None
        return max(self.memory, self.job * jobs)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a series.

    `first`, `last` and `per_hour` are of the median track; `worst` is the growth of the one that grew most, `total`
    that of all; `allowed` is what `worst` was held against, `allowed_total` what `total` was, None where it is not.
    """

    subject: str
    measure: str
    tracks: int
    first: float
    last: float
    per_hour: float
    worst: float
    total: float
    allowed: float
    allowed_total: float | None
    jobs: int

    @property
    def verdict(self) -> str:
        """`flat`, `grows`, or `too short` when nothing was there for long enough to judge."""
        if not self.tracks:
            return "too short"
        within = self.allowed_total is None or self.total <= self.allowed_total
        return "flat" if within and self.worst <= self.allowed else "grows"

    @property
    def per_job(self) -> float:
        """The growth of all by each job."""
        return self.total / self.jobs if self.jobs else 0.0

    def to_json(self) -> dict[str, Any]:
        """As one object for programs; memory in bytes."""
        return {
            "subject": self.subject,
            "measure": self.measure,
            "tracks": self.tracks,
            "first_fifth": round(self.first, 3),
            "last_fifth": round(self.last, 3),
            "per_hour": round(self.per_hour, 3),
            "growth": round(self.worst, 3),
            "allowed": round(self.allowed, 3),
            "total_growth": round(self.total, 3),
            "allowed_total": None if self.allowed_total is None else round(self.allowed_total, 3),
            "per_job": round(self.per_job, 6),
            "verdict": self.verdict,
        }


def judged(series: Series, bounds: Bounds, jobs: int) -> Finding:
    """Whether a series grew while so many jobs ended."""
    tracks = series.tracks(bounds.warm, bounds.settling)
    slopes = [track.slope for track in tracks]
    is_memory = series.measure == MEMORY
    worst, total = (_memory_growth if is_memory else _count_growth)(tracks, slopes)
    return Finding(
        subject=series.subject,
        measure=series.measure,
        tracks=len(tracks),
        first=_middle([track.first for track in tracks]),
        last=_middle([track.last for track in tracks]),
        per_hour=_middle(slopes) * HOUR,
        worst=worst,
        total=total,
        allowed=bounds.allowed(series, jobs),
        allowed_total=bounds.allowed_together(series, jobs),
        jobs=jobs,
    )


def _memory_growth(tracks: Sequence[Track], slopes: Sequence[float]) -> tuple[float, float]:
    """The worst track's growth, and that of all: by the whole time or one of its halves, whichever says least."""
    looks = [
        (slope * track.seconds, *(half.slope * track.seconds for half in track.halves))
        for track, slope in zip(tracks, slopes, strict=True)
    ]
    together = [sum(look) for look in zip(*looks, strict=True)]
    return max(map(min, looks), default=0.0), min(together, default=0.0)


def _count_growth(tracks: Sequence[Track], slopes: Sequence[float]) -> tuple[float, float]:
    """The worst track's growth that is not chance, and that of all, chance included."""
    rises = [slope * track.seconds for track, slope in zip(tracks, slopes, strict=True)]
    chances = [track.chance(slope) for track, slope in zip(tracks, slopes, strict=True)]
    return max((rise - chance for rise, chance in zip(rises, chances, strict=True)), default=0.0), sum(rises)


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0
