"""Facts: all that the checker goes by, a database to ask and the log that the jobs' programs wrote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.support.clock import TRUE_TABLES
from tests.support.databases import query

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Work:
    """The time from a run's first sign of life to its last, in nanoseconds of the wall clock."""

    run: int
    job: int
    engine: str
    first: int
    last: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A run as its row tells it, its instants in nanoseconds of the wall clock; `ended` is now while it is live."""

    run: int
    job: int
    engine: str
    state: str
    granted: int
    started: int | None
    ended: int
    lease_until: int
    renewed: int
    over: bool


@dataclass
class Facts:
    """An installation's tables and its labour log.

    `lease_seconds`, where it is told, lets leases be judged; `calm_ns` is the instant from which no fault disturbed
    the fleet, so that a job beside a free slot is one; `at_rest` says that nothing is left to do.
    """

    url: str
    labour_log: Path
    lease_seconds: float | None = None
    calm_ns: int | None = None
    at_rest: bool = False

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return query(self.url, statement)

    @cached_property
    def tables(self) -> dict[str, str]:
        """What to ask for instants in place of the tables `runs`, `jobs`, `passes`, `ledger`: true ones if kept."""
        kept = self.rows("select to_regclass('truth.runs') is not null") == [(True,)]
        return TRUE_TABLES if kept else {name: name for name in TRUE_TABLES}

    @cached_property
    def works(self) -> list[Work]:
        """What the programs of the jobs wrote, one entry for each run that began."""
        return works(self.labour_log)

    @cached_property
    def spans(self) -> dict[int, Span]:
        """Every run by its number."""
        columns = (
            "granted_at",
            "started_at",
            "coalesce(ended_at, pg_catalog.clock_timestamp())",
            "lease_expires_at",
            "coalesce(renewed_at, started_at, granted_at)",
        )
        instants = ", ".join(f"(extract(epoch from {each}) * 1000000000)::bigint" for each in columns)
        rows = self.rows(
            f"select id, job_id, engine, state, {instants}, ended_at is not null from {self.tables['runs']} r"
        )
        return {row[0]: Span(*row) for row in rows}

    @cached_property
    def slots(self) -> dict[str, int]:
        """Each engine's slots."""
        return dict(self.rows("select name, slots from engines"))


def works(labour_log: Path) -> list[Work]:
    """Read a labour log: `WORD RUN JOB ENGINE PID NANOSECONDS` on each line."""
    signs: dict[tuple[int, int, str], tuple[int, int]] = {}
    ended = set()
    for line in labour_log.read_text(encoding="utf-8").splitlines():
        word, run, job, engine, _, instant = line.split()
        key, at = (int(run), int(job), engine), int(instant)
        first, last = signs.get(key, (at, at))
        signs[key] = min(first, at), max(last, at)
        if word == "end":
            ended.add(int(run))
    return [Work(*key, *seen, key[0] in ended) for key, seen in sorted(signs.items())]


def most_at_once(intervals: list[tuple[int, int]]) -> int:
    """The largest number of intervals that share an instant; one that ends where another begins shares none."""
    steps = sorted((instant, step) for first, last in intervals for instant, step in ((first, 1), (last, -1)))
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most
