"""Stored hours: the services on real tables for hours of virtual time, and what this process keeps of each job.

Time passes as in the tests: every instant that is still to come, or is waited from, becomes that much older.
Enqueueing, routing, starting, settling and ticks are the product's own, all in this one process, so that what any of
them keeps of a job is seen to the byte; only engines are missing, whose outcomes are drawn by the seed. Messages for
workers, which nobody takes, are thrown away at each step.
"""

from __future__ import annotations

import gc
import heapq
import os
import random
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis

from tests.support.chaos.plan import Plan
from tests.support.chaos.run import ENGINES, POLICY, order_of
from tests.support.databases import create, drop, query
from tests.support.installation import Bench
from tests.support.soak.flat import Bounds, Finding, judged
from tests.support.soak.series import MEMORY, Series
from vibey import embedded
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Outcome, Success
from vibey.services import control
from vibey.services.audit import audit
from vibey.services.enqueue import place
from vibey.services.measure import measure
from vibey.services.route import run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import tick
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vibey.embedded import Services

DATABASE = "vibey_stored"
HOUR = 3600
STEP_SECONDS = 10
JOBS_A_STEP = 4
LOOKS = 40
WARM_PART = 0.25
MEASURE_STEPS = 30
MEMORY_BYTES = 500_000
JOB_BYTES = 100.0
LEASE_SECONDS = 120
LONGEST_SECONDS = 60
OUTCOMES: tuple[Outcome, ...] = (
    *[Success()] * 12,
    Success({"answer": 42}),
    Failure(FailureClass.WORK, "work"),
    Failure(FailureClass.ENGINE, "engine"),
    Failure(FailureClass.HANDOFF, "handoff"),
    Failure(FailureClass.CAPACITY, "busy", CapacityKind.BUSY),
    Failure(FailureClass.CAPACITY, "window", CapacityKind.WINDOW, resets_in_ms=30_000),
)
AGED = {
    "runs": ("ended_at is null", ("lease_expires_at", "sent_at")),
    "jobs": ("state in ('queued', 'granted', 'running')", ("not_before", "deadline_at", "held_at")),
    "accounts": ("true", ("probe_at", "resets_at", "failure_at")),
    "engines": ("true", ("busy_until", "demoted_until")),
    "sessions": ("true", ("expires_at",)),
}


class Stored:
    """One installation on a database of its own, for some virtual hours."""

    def __init__(self, services: Services, folder: Path, seed: int = 1) -> None:
        """Open it on a migrated database and a Redis that it may empty."""
        policy = {**POLICY, "lease_seconds": LEASE_SECONDS, "run_timeout_seconds": 600, "slot_poll_seconds": 20}
        tables: dict[str, Any] = {"engine": {name: {"kind": "noop", **each} for name, each in ENGINES.items()}}
        tables["engine"] = {name: {"tier": "local", **each} for name, each in tables["engine"].items()}
        tables["engines"] = {**policy, "overflow_after_seconds": STEP_SECONDS, "session_ttl_seconds": 600}
        self.bench = Bench(services.database_url, services.redis_url, folder, tables)
        self.installation = self.bench.installation
        self._redis = redis.Redis.from_url(services.redis_url)
        self._chance = random.Random(seed)
        self._seed = seed
        self._held: list[tuple[int, int, Held]] = []
        self._now = 0
        for project in ("web", "lab"):
            control.new_project(self.installation, project)
            control.set_project(self.installation, project, {"paid_daily_cap": "100000"})
        self.memory = Series("services", MEMORY)
        self.files = Series("services", "files")
        self.connections = Series("services to postgres", "connections")

    @classmethod
    @contextmanager
    def beside(cls, services: Services, folder: Path, seed: int) -> Iterator[Stored]:
        """One on servers that another installation uses: a database, and a number of Redis, of its own."""
        url = create(services.database_url, DATABASE)
        try:
            migrate.upgrade(url)
            stored = cls(embedded.Services(url, f"{services.redis_url.rsplit('/', 1)[0]}/1"), folder, seed)
            try:
                yield stored
            finally:
                stored.close()
        finally:
            drop(services.database_url, DATABASE)

    def live(self, hours: float) -> list[Finding]:
        """Live so many hours; what became of memory, files and connections."""
        steps = max(LOOKS, round(hours * HOUR / STEP_SECONDS))
        jobs = Plan.of(self._seed, steps * JOBS_A_STEP, 0).jobs
        tracemalloc.start()
        try:
            for step in range(steps):
                placed = place(self.installation, [order_of(job) for job in jobs[step * JOBS_A_STEP :][:JOBS_A_STEP]])
                self._step(step)
                del placed
                if step % (steps // LOOKS) == 0:
                    self._look()
        finally:
            tracemalloc.stop()
        seconds = steps * STEP_SECONDS
        bounds = Bounds(WARM_PART * seconds, 0, MEMORY_BYTES, JOB_BYTES)
        many = round(len(jobs) * (1 - WARM_PART))
        return [judged(series, bounds, many) for series in (self.memory, self.files, self.connections)]

    def close(self) -> None:
        """Close connections."""
        self._redis.close()
        self.bench.close()

    def _step(self, step: int) -> None:
        self._now = step * STEP_SECONDS
        self.bench.staff()
        self._settle_due()
        tick(self.installation)
        while (passed := run_pass(self.installation, "main")) is not None and passed.granted:
            pass
        self._start_granted()
        if step % MEASURE_STEPS == 0:
            measure(self.installation, "lab", force=True)
            found = audit(self.installation).violations
            assert found == (), found
        self._redis.flushdb()
        self._pass_time()

    def _start_granted(self) -> None:
        """Start what was granted, for a time of its own."""
        for run, token in self.bench.rows("select id, token from runs where state = 'granted' order by id"):
            started = _start(self.installation, run, token)
            if started is not None:
                until = self._now + self._chance.randint(1, LONGEST_SECONDS)
                heapq.heappush(self._held, (until, run, Held.of(started, token)))

    def _settle_due(self) -> None:
        while self._held and self._held[0][0] <= self._now:
            _, _, held = heapq.heappop(self._held)
            settle(self.installation, held, self._chance.choice(OUTCOMES))

    def _pass_time(self) -> None:
        for table, (which, columns) in AGED.items():
            changed = ", ".join(f"{column} = {column} - interval '{STEP_SECONDS} seconds'" for column in columns)
            query(self.bench.url, f"update {table} set {changed} where {which}")
        query(self.bench.url, f"update installation set lease_clock_ms = lease_clock_ms + {STEP_SECONDS * 1000}")

    def _look(self) -> None:
        gc.collect()
        statistics = tracemalloc.take_snapshot().statistics("filename")
        sizes = {each.traceback[0].filename: each.size for each in statistics}
        mine = (__file__, tracemalloc.__file__)
        self.memory.add(1, self._now, sum(size for name, size in sizes.items() if name not in mine))
        self.files.add(1, self._now, len(os.listdir("/proc/self/fd")))  # noqa: PTH208
        found = query(
            self.bench.url,
            "select count(*)::int from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
        )
        self.connections.add(1, self._now, int(str(found[0][0])))
