"""A soak: an installation of real processes, a steady load, a look every few seconds, and the judgement.

The installation is what `vibey up` makes on one machine: Postgres and Redis, a control worker, a build worker, beat,
Flower and the exporter of metrics, with the same options but one: Flower remembers few tasks instead of ten thousand,
so that it is full, as it would be for ever after, before anything is judged.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.support.chaos.run import ENGINES, POLICY
from tests.support.fleet import ENDED, Fleet
from tests.support.soak.flat import Bounds, Finding, judged
from tests.support.soak.load import MEASURED, Load
from tests.support.soak.watch import Watch
from tests.support.wait import until
from vibey import embedded
from vibey.bench.machine import describe
from vibey.services import control
from vibey.services.audit import audit
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WARM_PART = 0.25
LEAST_WARM_SECONDS = 60.0
LOOKS = 120
MOST_PAUSE_SECONDS = 10.0
DRAIN_SECONDS = 240.0
TOLD_SECONDS = 30.0
FLOWER_TASKS = 500
SOAKED: dict[str, Any] = {**POLICY, "lease_seconds": 20, "paid_fallback": "count"}
CAPS = {"web": "100000", MEASURED: "40"}
FLOWER = f"""\
from vibey.flower import seam
from vibey.flower.defaults import *

max_tasks = {FLOWER_TASKS}
seam.install()
"""


@dataclass(frozen=True, slots=True)
class Length:
    """How long a soak is, in seconds: in all, warming up, and between two looks; with the jobs a second.

    On a machine with other work it takes longer: until `warm_jobs` have ended it is still warming up, and it goes on
    until `judged_jobs` have ended after that.
    """

    seconds: float
    warm: float
    pause: float
    rate: float
    warm_jobs: int = 0
    judged_jobs: int = 0

    @classmethod
    def of(cls, minutes: float, rate: float) -> Length:
        """The usual proportions: a quarter to warm up, at least a minute, and a look every ten seconds at most."""
        seconds = minutes * 60
        warm = max(WARM_PART * seconds, min(LEAST_WARM_SECONDS, seconds / 2))
        return cls(seconds, warm, min(MOST_PAUSE_SECONDS, (seconds - warm) / LOOKS), rate)


@dataclass
class Report:
    """What a soak did and what was found: `unsound` of the jobs by its own count, `audited` by `vibey audit`."""

    seed: int
    length: Length
    bounds: Bounds
    machine: dict[str, Any] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    judged_jobs: int = 0
    findings: list[Finding] = field(default_factory=list)
    unsound: list[str] = field(default_factory=list)
    audited: list[str] = field(default_factory=list)

    @property
    def growing(self) -> list[Finding]:
        """What grows."""
        return [each for each in self.findings if each.verdict == "grows"]

    @property
    def unjudged(self) -> list[Finding]:
        """What was there for too short a time to tell."""
        return [each for each in self.findings if each.verdict == "too short"]

    @property
    def ok(self) -> bool:
        """Whether all could be judged, and is flat and sound."""
        return not (self.growing or self.unjudged or self.unsound or self.audited)


class Soak:
    """One soak in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        length: Length,
        tell: Callable[[str], None],
        *,
        seed: int = 1,
        bounds: Bounds | None = None,
        application: str = "vibey",
        bugs: str = "",
    ) -> None:
        """Start the servers; `go` starts the fleet. `application` and `bugs` make it one that leaks, for the tests."""
        self._length, self._tell, self._seed = length, tell, seed
        self._bugs = bugs
        self._closing = ExitStack()
        settling = min(60.0, length.warm)
        self.report = Report(seed, length, bounds or Bounds(length.warm, settling))
        try:
            self._prepare(folder, application)
        except BaseException:
            self._closing.close()
            raise

    def _prepare(self, folder: Path, application: str) -> None:
        servers = folder / "servers"
        self._closing.callback(embedded.destroy, servers)
        self.services = embedded.ensure(servers)
        migrate.upgrade(self.services.database_url)
        self.report.machine = describe(embedded.status(servers))
        tables = {"engine": ENGINES, "engines": SOAKED}
        self.fleet = Fleet(folder, self.services, "soak:", tables, application, is_fresh=True)
        self._closing.callback(self.fleet.close)
        self.watch = Watch(self.fleet, servers)
        self._closing.callback(self.watch.close)
        length = self._length
        self.load = Load(
            self.fleet.installation, self.services, seed=self._seed, seconds=length.seconds, rate=length.rate
        )
        self._closing.callback(self.load.stop)

    def go(self) -> Report:
        """Start the fleet, load it, watch it, and judge."""
        self._open()
        self._watch()
        self.load.stop()
        self.load.check()
        self._drain()
        self._judge()
        return self.report

    def close(self) -> None:
        """End everything."""
        self._closing.close()

    def _open(self) -> None:
        fleet, spoiled = self.fleet, {"SPOILED": self._bugs} if self._bugs else {}
        fleet.control(environment=spoiled)
        fleet.build(environment=spoiled)
        fleet.beat()
        fleet.until_workers(2)
        for project, cap in CAPS.items():
            control.new_project(fleet.installation, project)
            control.set_project(fleet.installation, project, {"paid_daily_cap": cap})
        control.set_project(fleet.installation, MEASURED, {"mode": "auto"})
        configuration = fleet.folder / "flowerconfig.py"
        configuration.write_text(FLOWER, encoding="utf-8")
        options = (f"--conf={configuration}", "--address=127.0.0.1", "--port=0")
        flower = fleet.launch("flower", "celery", "-A", "vibey", "flower", *options)
        metrics = fleet.launch("metrics", "vibey.cli.main", "metrics", "--listen", "127.0.0.1:0")
        self.load.start(flower, metrics)

    def _watch(self) -> None:
        length, begun = self._length, time.monotonic()
        told, warm_ended, over = -TOLD_SECONDS, None, False
        while not over:
            self._wait_until(begun + self.report.looks * length.pause)
            at = time.monotonic() - begun
            self.watch.look(at)
            self.report.looks += 1
            ended = self._ended()
            if warm_ended is None and at >= length.warm and ended >= length.warm_jobs:
                warm_ended = ended
                self.report.bounds = replace(self.report.bounds, warm=at)
            if at - told >= TOLD_SECONDS:
                told = at
                self._progress(at, "warming up" if warm_ended is None else "judged")
            if warm_ended is not None:
                self.report.judged_jobs = ended - warm_ended
                judged_seconds = at - self.report.bounds.warm
                over = judged_seconds >= length.seconds - length.warm and self.report.judged_jobs >= length.judged_jobs

    def _wait_until(self, instant: float) -> None:
        """Wait, and see meanwhile that everything still runs."""
        while True:
            self.load.check()
            ended = [member.name for member in self.fleet.members if not member.running]
            assert not ended, f"{', '.join(ended)} ended; the logs are in {self.fleet.folder}"
            left = instant - time.monotonic()
            if left <= 0:
                return
            self.load.pause(min(left, 1.0))

    def _progress(self, at: float, part: str) -> None:
        states = self.fleet.states()
        ended = self._ended()
        own = sum(points[-1][1] for points in self._memory()) / 1e6
        self._tell(
            f"{at:5.0f} of {self._length.seconds:.0f} s, {part}: {ended} jobs ended, {states.get('queued', 0)} queued; "
            f"the fleet's processes have {own:.0f} MB"
        )

    def _memory(self) -> list[list[tuple[float, float]]]:
        newest = max(points[-1][0] for series in self.watch.series.values() for points in series.seen.values())
        found = [
            points
            for (subject, measure), series in self.watch.series.items()
            if measure == "memory" and subject.split(",")[0] in {member.name for member in self.fleet.members}
            for points in series.seen.values()
        ]
        return [points for points in found if points[-1][0] == newest]

    def _ended(self) -> int:
        return int(self.fleet.value(f"select count(*) from jobs where state in {ENDED}"))

    def _drain(self) -> None:
        """Let what is open end: a job may stay queued, but for a reason."""
        self._tell("all jobs are enqueued; the last ones end")
        still_open = f"select count(*) from jobs where state not in {ENDED}"
        try:
            until(lambda: self.fleet.value(still_open) == 0, seconds=DRAIN_SECONDS, what="the jobs to end")
            self.fleet.until_nothing_runs()
        except AssertionError as late:
            self._tell(str(late))

    def _judge(self) -> None:
        fleet, report = self.fleet, self.report
        report.states = fleet.states()
        report.runs = dict(fleet.rows("select state, count(*)::int from runs group by state"))
        excused = f"state in {ENDED} or (state = 'queued' and reason <> '')"
        standing = fleet.rows(f"select id, state from jobs where ({excused}) is not true order by id")
        report.unsound = [f"job {job} is {state} without a reason" for job, state in standing]
        if sum(report.states.values()) != self.load.enqueued:
            report.unsound.append(f"{self.load.enqueued} jobs were enqueued, {sum(report.states.values())} are there")
        report.audited = [f"{each.invariant}: {each.detail}" for each in audit(fleet.installation).violations]
        found = (judged(series, report.bounds, report.judged_jobs) for series in self.watch.series.values())
        report.findings = sorted(found, key=lambda each: (each.measure, each.subject))
