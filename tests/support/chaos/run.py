"""A chaos run: the plan's jobs and strikes on a real fleet, in the time given, then a calm end and the judgement.

The strikes fall evenly over the time, and so do the jobs, as far as the fleet keeps up: few more than a hundred wait at
once, and on a slow machine the strikes wait for the jobs, up to twice the time. The last jobs are kept for the calm:
when every fault is over and the fleet has had time to notice, they are enqueued, and from then on no job may stand
beside a free slot for longer than a tick.

A person looks after the fleet meanwhile, as one would in life: what has ended is started again (`vibey up` and init
systems do that), and a circuit that faults have opened is reset (`vibey engine reset`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg2

from tests.support import checker
from tests.support.chaos.crew import Crew, stopped
from tests.support.chaos.faults import Faults
from tests.support.chaos.plan import LEASE_SECONDS
from tests.support.chaos.servers import Servers
from tests.support.databases import plain, query
from tests.support.fleet import Fleet
from tests.support.wait import until
from vibey.domain.errors import Contended, Refused, ServiceUnavailable, VibeyError
from vibey.services import control
from vibey.services.audit import audit
from vibey.services.enqueue import Order, place
from vibey.services.installation import Installation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.chaos.plan import Job, Plan, Strike

ENGINES: dict[str, dict[str, Any]] = {
    "near": {"weight": 3, "account": "house"},
    "side": {"account": "house"},
    "far": {"tier": "paid", "weight": 2, "account": "cloud"},
    "outer": {"tier": "paid", "account": "cloud"},
}
POLICY: dict[str, Any] = {
    "mode": "hybrid",
    "slots": {"near": 4, "side": 2, "far": 3, "outer": 2},
    "overflow_after_seconds": 1,
    "paid_fallback": "count",
    "paid_daily_cap": 400,
    "slot_poll_seconds": 2,
    "lease_seconds": LEASE_SECONDS,
    "run_timeout_seconds": 60,
    "retry_backoff_seconds": 1,
}
CAPS = {"web": "300", "lab": "40"}
WAITING = 120
CHUNK = 10
CALM_PART = 0.04
# The longest until leases of dead holders are over, and the time in which a silent worker's row goes.
RECOVERY_SECONDS = 3 * LEASE_SECONDS
DRAIN_SECONDS = 300.0
# A worker kills a process of its pool that has been stopped for fifteen seconds; three times that on a slow machine.
STOPPED_SECONDS = 45.0
TOLD_SECONDS = 10.0
TABLES = ("jobs", "runs", "ledger", "passes", "decisions", "credits", "engines", "accounts", "installation", "workers")
SEEN = "select count(*) from workers where seen_at > clock_timestamp() - interval '5 seconds'"
LEFT = """
    select jsonb_build_object('id', j.id, 'state', j.state, 'attempt', j.attempt, 'reason', j.reason, 'waits', g.reason,
             'excluded', j.excluded, 'avoided', j.avoided, 'handed_off', j.handed_off,
             'due_in', extract(epoch from j.not_before - clock_timestamp()))
    from jobs j left join group_states g on g.pool = j.pool and g.requirement_key = j.requirement_key
    where j.ended_at is null order by j.id limit 20"""
ENDED = "state in ('succeeded', 'failed', 'cancelled')"


@dataclass
class Report:
    """What a run did and what was found."""

    seed: int
    jobs: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    states: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    audited: list[str] = field(default_factory=list)
    seconds: float = 0

    @property
    def faults(self) -> int:
        """How many faults struck something."""
        return sum(self.struck.values())

    def to_json(self) -> dict[str, Any]:
        """As one object for programs."""
        return {
            "seed": self.seed,
            "ok": not self.violations and not self.audited,
            "jobs": self.jobs,
            "faults": self.faults,
            "struck": dict(sorted(self.struck.items())),
            "missed": dict(sorted(self.missed.items())),
            "states": self.states,
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
            "violations": self.violations,
            "audit": self.audited,
        }


class Chaos:
    """One run of one plan in a folder of its own."""

    def __init__(self, plan: Plan, folder: Path, seconds: float, tell: Callable[[str], None], **spoiled: Any) -> None:
        """Start the servers; `go` starts the fleet. `spoiled` makes it one with a bug, see `_prepare`."""
        self.report = Report(plan.seed)
        self._plan, self._seconds, self._tell = plan, seconds, tell
        self._calm_from = len(plan.jobs) - max(1, round(CALM_PART * len(plan.jobs)))
        self._cancelling: list[int] = []
        self._fed = threading.Event()
        self._enqueued = 0
        self._ending = threading.Event()
        self._broken: list[BaseException] = []
        self._closing = ExitStack()
        try:
            self._prepare(folder, **spoiled)
        except BaseException:
            self._closing.close()
            raise

    def _prepare(
        self, folder: Path, application: str = "vibey", bug: str | None = None, patience: float = DRAIN_SECONDS
    ) -> None:
        """Servers, fleet, crew. `patience` is how long jobs may take to end, in seconds, once the faults are over."""
        self._patience = patience
        self.servers = Servers(folder / "servers")
        self._closing.callback(self.servers.close)
        engines = {**POLICY, "fair_share": self._plan.fair_share}
        self.fleet = Fleet(folder, self.servers.proxied, "chaos:", {"engine": ENGINES, "engines": engines}, application)
        self._closing.callback(self.fleet.close)
        # Enqueueing and looking after the fleet go past the proxies, so that the run's own hand is steady.
        settings = self.fleet.settings
        services = settings.services.model_copy(update=asdict(self.servers.direct))
        self._own = Installation.open(replace(settings, services=services))
        self._closing.callback(self._own.close)
        self.crew = Crew(self.fleet, {} if bug is None else {"SPOILED": bug})
        self._closing.callback(self.crew.close)
        self.faults = Faults(self.crew, self.servers)
        self._closing.callback(self.faults.undo)
        self._closing.callback(self._ending.set)

    def go(self) -> Report:
        """Do everything the plan says, and judge."""
        began = time.monotonic()
        self._open()
        feeder = threading.Thread(target=self._guarded, args=[self._feed], name="chaos-feeder")
        keeper = threading.Thread(target=self._guarded, args=[self._keep], name="chaos-keeper")
        for thread in (feeder, keeper):
            thread.start()
        try:
            self._strike_all()
            patience = max(self._patience, self._seconds)
            with suppress(AssertionError):
                until(lambda: self._broken or not feeder.is_alive(), seconds=patience, what="all jobs to be enqueued")
            # A fleet that has come to a halt takes no more jobs; that these are missing is told by the verdict.
            self._fed.set()
            self._calm_down()
        finally:
            self._ending.set()
            for thread in (feeder, keeper):
                thread.join(60)
        self.report.seconds = time.monotonic() - began
        return self.report

    def close(self) -> None:
        """Kill and stop everything."""
        self._closing.close()

    def _open(self) -> None:
        self.crew.complete()
        until(lambda: self._value("select count(*) from workers") >= 4, seconds=60, what="four workers at work")
        for project, cap in CAPS.items():
            control.new_project(self._own, project)
            control.set_project(self._own, project, {"paid_daily_cap": cap})
        control.set_project(self._own, "lab", {"paid_fallback": "never"})
        self._began = time.monotonic()

    def _strike_all(self) -> None:
        told = 0.0
        pace = self._seconds / max(1, len(self._plan.strikes))
        for strike in self._plan.strikes:
            self._ending.wait(max(0.0, self._began + strike.number * pace - time.monotonic()))
            self._await_jobs(strike.number / len(self._plan.strikes))
            if self._broken:
                raise self._broken[0]
            struck = self.faults.strike(strike)
            self._note(strike, struck)
            (self.report.struck if struck else self.report.missed)[strike.kind] += 1
            self.crew.complete()
            if time.monotonic() - told > TOLD_SECONDS:
                told = time.monotonic()
                self._progress(str(strike))

    def _await_jobs(self, part: float) -> None:
        """On a slow machine, let the faults wait for the jobs they are to strike, but not beyond twice the time."""
        while self._enqueued < part * self._calm_from - WAITING and time.monotonic() < self._began + 2 * self._seconds:
            if self._broken or self._ending.wait(0.2):
                return

    def _note(self, strike: Strike, struck: str | None) -> None:
        with (self.fleet.folder / "faults.log").open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC).isoformat()} {strike}: {struck or 'nothing to strike'}\n")

    def _progress(self, last: str) -> None:
        states = self._states()
        ended = sum(states.get(state, 0) for state in ("succeeded", "failed", "cancelled"))
        waiting = states.get("queued", 0)
        at = time.monotonic() - self._began
        self._tell(f"{at:5.0f} s  {ended:5d} of {len(self._plan.jobs)} jobs ended, {waiting:3d} queued; {last}")

    def _calm_down(self) -> None:
        self.faults.undo()
        self.servers.start()
        self.crew.complete()
        self._tell("the faults are over; the fleet recovers")
        self._ending.wait(RECOVERY_SECONDS)
        self.crew.complete()
        until(lambda: self._value(SEEN) >= 4, seconds=60, what="four workers at work")
        with suppress(AssertionError):
            until(lambda: not self._stopped(), seconds=STOPPED_SECONDS, what="the end of stopped processes")
        self.report.violations += [f"slots: process {pid} of a pool is still stopped" for pid in self._stopped()]
        with suppress(AssertionError):
            until(lambda: self._open_jobs() <= 0, seconds=self._patience / 2, what="the faults' jobs to end")
        calm_ns = time.time_ns()
        self._enqueue_all(self._plan.jobs[self._calm_from :])
        with suppress(AssertionError):
            until(lambda: self._open_jobs() <= 0, seconds=self._patience / 2, what="the last jobs to end")
            self.fleet.until_nothing_runs()
        self._judge(calm_ns)

    def _judge(self, calm_ns: int) -> None:
        url, report = self.servers.direct.database_url, self.report
        report.jobs = self._value("select count(*) from jobs")
        report.states = self._states()
        report.runs = dict(query(url, "select state, count(*)::int from runs group by state"))  # type: ignore[arg-type]
        facts = checker.Facts(url, self.fleet.labour_log, LEASE_SECONDS, calm_ns, at_rest=True)
        report.violations += checker.judged(facts)
        # Each of the plan's jobs can end, and has had minutes for it.
        report.violations += [f"I3: a job was left: {row}" for row in self._left()]
        if report.jobs != len(self._plan.jobs):
            report.violations.append(f"I3: {len(self._plan.jobs)} jobs were enqueued, {report.jobs} are there")
        if report.violations:
            self._keep_tables()
        report.audited = [f"{each.invariant}: {each.detail}" for each in audit(self._own).violations]

    def _left(self) -> list[dict[str, Any]]:
        """What there is to know of the jobs that have not ended."""
        url = self.servers.direct.database_url
        return [row for (row,) in query(url, LEFT)]

    def _stopped(self) -> list[int]:
        """Processes of the build workers' pools that are stopped."""
        return [pid for pid in self.crew.pools("build") if stopped(pid)]

    def _keep_tables(self) -> None:
        """Copy the tables into the run's folder, where they outlive the server."""
        url = plain(self.servers.direct.database_url)
        with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            for table in TABLES:
                with (self.fleet.folder / f"{table}.csv").open("w", encoding="utf-8") as file:
                    cursor.copy_expert(f"copy {table} to stdout with csv header", file)

    def _feed(self) -> None:
        jobs = self._plan.jobs[: self._calm_from]
        pace = self._seconds / max(1, len(jobs))
        for start in range(0, len(jobs), CHUNK):
            self._ending.wait(max(0.0, self._began + start * pace - time.monotonic()))
            while self._open_jobs() > WAITING and not self._fed.is_set() and not self._ending.wait(0.5):
                pass
            if self._ending.is_set() or self._fed.is_set():
                return
            self._enqueue_all(jobs[start : start + CHUNK])

    def _enqueue_all(self, jobs: Sequence[Job]) -> None:
        """Enqueue, however often it takes: the keys make it once; then cancel what is to be cancelled of the last."""
        for start in range(0, len(jobs), CHUNK):
            chunk = jobs[start : start + CHUNK]
            placed = self._stubbornly(lambda chunk=chunk: place(self._own, [order_of(job) for job in chunk]))  # type: ignore[misc]
            for job_id in self._cancelling:
                self._stubbornly(lambda job_id=job_id: control.cancel(self._own, job_id))  # type: ignore[misc]
            self._enqueued += len(chunk)
            self._cancelling = [at.job_id for job, at in zip(chunk, placed, strict=True) if job.cancelled]

    def _stubbornly(self, work: Callable[[], Any]) -> Any:
        """Ask until there is an answer; a refusal is one."""
        while True:
            try:
                return work()
            except Refused:
                return None
            except (ServiceUnavailable, Contended):
                if self._ending.wait(0.3):
                    raise

    def _keep(self) -> None:
        """Reset circuits that faults have opened."""
        while not self._ending.wait(3.0):
            for (account,) in self._asked("select name from accounts where open_reason is not null"):
                engine = next(name for name, table in ENGINES.items() if table["account"] == account)
                with suppress(VibeyError):
                    control.reset_engine(self._own, engine, by="chaos")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._broken.append(error)
            raise

    def _open_jobs(self) -> int:
        rows = self._asked(f"select count(*) from jobs where not {ENDED}")
        return int(rows[0][0]) if rows else WAITING + 1

    def _states(self) -> dict[str, int]:
        return dict(self._asked("select state, count(*)::int from jobs group by state"))

    def _value(self, statement: str) -> Any:
        rows = self._asked(statement)
        return rows[0][0] if rows else 0

    def _asked(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows, or none while the database is away."""
        with suppress(psycopg2.Error):
            return query(self.servers.direct.database_url, statement)
        return []


def order_of(job: Job) -> Order:
    """What enqueues a job of a plan."""
    return Order(
        project=job.project,
        payload=job.payload,
        priority=job.priority,
        session=job.session,
        exclude=job.exclude,
        idempotency_key=job.key,
        max_attempts=job.max_attempts,
        deadline_seconds=job.deadline_seconds,
    )
