"""Run: the clock of a simulation.

At one instant: fleet events, then ends of runs in the order they were granted, then arrivals in the order of the
trace, with the jobs whose backoff is over; then one routing pass over all due jobs in queue order. Instants are those
of the trace, of ends and backoffs, the ends of holds, circuits' and busy servers' times, and, while jobs are queued,
each UTC midnight. A run on an engine that fails ends at the instant it began, which is then looked at once more.

Nothing in here is drawn by lot and nothing depends on the machine: the same trace gives the same bytes.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from json.encoder import encode_basestring
from typing import TYPE_CHECKING

from vibey.domain import settlement
from vibey.domain.decide import SHARED_PURSE, UNKNOWN, Assign, World, decide, prospect
from vibey.domain.engine import Tier
from vibey.domain.layer import DAY_MS
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.domain.settlement import Attempted, JobState
from vibey.simulate.fleet import Fleet
from vibey.simulate.line import FRONT
from vibey.simulate.memory import Memory
from vibey.simulate.order import ByTurns, InOrder
from vibey.simulate.queue import Job, Outlook, Queue, Surveys
from vibey.simulate.report import Report
from vibey.simulate.rules import Attempt, Rules
from vibey.simulate.runs import Run, line_of
from vibey.simulate.trace import Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vibey.domain.assessment import Survey
    from vibey.domain.decide import Decision
    from vibey.domain.engine import Usage
    from vibey.domain.outcome import Outcome
    from vibey.domain.settlement import Settlement
    from vibey.domain.turn import Lot
    from vibey.settings import Settings
    from vibey.simulate.line import Place
    from vibey.simulate.queue import Answer, Group
    from vibey.simulate.trace import FleetEvent, Trace

NEVER = 2**62
# A queue that no event will ever move is given this many midnights; `auto` may change its mind as its window empties.
IDLE_MIDNIGHTS = 2


def simulate(
    settings: Settings,
    trace: Trace,
    sink: Callable[[str], object] | None = None,
    progress: Callable[[int], object] | None = None,
    *,
    keeps_moments: bool = False,
) -> Report:
    """Play a trace on a configuration. `sink` takes each decision's line, `progress` the jobs that have arrived.

    A report that `keeps_moments` can be drawn.
    """
    simulation = Simulation(settings, trace, sink or _unheard, progress)
    simulation.report.keeps_moments = keeps_moments
    return simulation.played()


def _unheard(_: str) -> None:
    """Take a line nobody wants."""


class Simulation:
    """The state of one simulation."""

    def __init__(
        self,
        settings: Settings,
        trace: Trace,
        sink: Callable[[str], object],
        progress: Callable[[int], object] | None,
    ) -> None:
        self._settings = settings.engines
        self._patience_ms = settings.engines.overflow_after_seconds * 1000
        self._age_ms = settings.engines.priority_age_seconds * 1000
        self._trace = trace
        self._sink = sink
        self._progress = progress
        self._fleet = Fleet(settings)
        self._rules = Rules(settings)
        self._memory = Memory(settings.engines.session_ttl_seconds * 1000)
        self._queue = Queue()
        self.report = Report(self._fleet, self._rules)
        self._last: World | None = None
        self._moved = True
        self._freed: set[str] = set()
        self._state = 0
        self._holds: list[tuple[int, int, Job]] = []
        self._ends: list[tuple[int, int, Run]] = []
        self._backoffs: list[tuple[int, int, Job]] = []
        self._runs = 0
        self._jobs = 0
        self._now = 0

    def played(self) -> Report:
        """Play everything to its end."""
        happenings, at, idle = self._trace.happenings, 0, 0
        patience = IDLE_MIDNIGHTS + (self._settings.auto_window_hours // 24 + 2 if self._rules.is_auto else 0)
        while idle < patience:
            following = happenings[at].at_ms if at < len(happenings) else NEVER
            instant = min(following, self._next())
            waits_for_midnight = instant == NEVER
            if self._queue.length:
                midnight = (self._now // DAY_MS + 1) * DAY_MS
                instant = min(instant, midnight)
            if instant == NEVER:
                break
            self.report.until(instant, self._queue)
            self._now = instant
            begun = at
            while at < len(happenings) and happenings[at].at_ms == instant:
                at += 1
            granted = self._runs
            self._instant(happenings[begun:at])
            idle = idle + 1 if waits_for_midnight and self._runs == granted else 0
        self.report.close(self._now, self._queue)
        return self.report

    def _next(self) -> int:
        holds = self._holds
        while holds and not self._holds_until(holds[0][2], holds[0][0]):
            heapq.heappop(holds)
        soonest = self._ends[0][0] if self._ends else NEVER
        if holds and holds[0][0] < soonest:
            soonest = holds[0][0]
        if self._backoffs and self._backoffs[0][0] < soonest:
            soonest = self._backoffs[0][0]
        return min([soonest, *self._fleet.instants(self._now)]) if self._fleet.is_restless else soonest

    def _holds_until(self, job: Job, instant: int) -> bool:
        """Whether a job waits that will have been held for long enough only then."""
        return job.waits and job.held_ms is not None and job.held_ms + self._patience_ms == instant > self._now

    def _instant(self, happenings: tuple[Arrival | FleetEvent, ...]) -> None:
        now = self._now
        for each in happenings:
            if not isinstance(each, Arrival):
                self._happens(each)
        for run in self._ended():
            self._settle(run, run.verdict or Success())
        for each in happenings:
            if isinstance(each, Arrival):
                self._arrives(each)
        while self._backoffs and self._backoffs[0][0] <= now:
            self._queue.add(heapq.heappop(self._backoffs)[2])
        if self._queue.length:
            self._route()

    def _happens(self, event: FleetEvent) -> None:
        self.report.changing()
        self._fleet.happens(event)
        self._moved = True
        if event.event == "fail":
            for place, (_, number, run) in enumerate(self._ends):
                if run.engine == event.engine:
                    run.verdict = run.verdict or self._fleet.failing(event.engine)
                    self._ends[place] = (self._now, number, run)
            heapq.heapify(self._ends)

    def _arrives(self, arrival: Arrival) -> None:
        self._jobs += 1
        job = Job.of(self._jobs, arrival, encode_basestring(arrival.job), self._age_ms)
        self._queue.add(job)
        if self._progress is not None:
            self._progress(self._jobs)

    def _ended(self) -> list[Run]:
        """Runs that end now, in the order they were granted."""
        found = []
        while self._ends and self._ends[0][0] <= self._now:
            found.append(heapq.heappop(self._ends)[2])
        return sorted(found, key=lambda run: run.number) if len(found) > 1 else found

    def _settle(self, run: Run, outcome: Outcome) -> None:
        job, now = run.job, self._now
        self._moved = True
        self._freed.add(run.engine)
        early = self._fleet.end(run.engine, run.number, outcome, now)
        attempted = Attempted(
            job_id=job.number,
            engine=run.engine,
            attempt=job.attempts + 1,
            max_attempts=self._settings.max_attempts,
            effort=job.arrival.effort,
            refunds=job.refunds,
            handoffs=job.handoffs,
            avoided=job.avoided,
            handed_off=job.handed_off,
            affinity=job.affinity,
        )
        backoff_ms = self._settings.retry_backoff_seconds * 1000
        settled = settlement.settle(attempted, outcome, backoff_ms=backoff_ms, early=early)
        refused = isinstance(outcome, Failure) and outcome.failure_class is FailureClass.CAPACITY
        if self._rules.is_auto and run.wanted_local and not refused:
            self._rules.history.append(self._attempt(run))
        if settled.release and run.unit is not None:
            self._rules.release(run.unit)
        elif settled.release and run.tier is Tier.PAID:
            self.report.outside_cap -= 1
        self.report.ended(run.engine, now - run.begun_ms)
        self._move(job, settled)

    def _attempt(self, run: Run) -> Attempt:
        """A run as demand, with its running time up to now."""
        running_ms = self._now - run.begun_ms if run.tier is Tier.LOCAL else None
        return Attempt(run.job, run.job.attempts + 1, run.job.due_ms, running_ms)

    def _open(self) -> Iterator[Attempt]:
        """The attempts that want a local engine and have not ended: those under way, and those that wait."""
        for _, _, run in self._ends:
            if run.wanted_local:
                yield self._attempt(run)
        for job in self._queue.jobs():
            yield Attempt(job, job.attempts + 1, job.due_ms, None)

    def _move(self, job: Job, settled: Settlement) -> None:
        if settled.job_state is not JobState.QUEUED:
            self.report.finished(settled.job_state.value)
            if job.arrival.session and settled.job_state is JobState.SUCCEEDED:
                self._memory.keep(job.request(job.requirement(), self._now).session, self._now)
            return
        refunded = settled.attempts < job.attempts + 1
        job.attempts, job.refunds, job.handoffs = settled.attempts, settled.refunds, settled.handoffs
        job.avoided, job.handed_off = settled.avoided, settled.handed_off
        job.affinity, job.effort = settled.affinity, settled.effort
        if not refunded:
            job.held_ms, job.due_ms = None, self._now + settled.delay_ms
        if settled.delay_ms > 0:
            heapq.heappush(self._backoffs, (self._now + settled.delay_ms, job.number, job))
        else:
            self._queue.add(job)
            self._note_hold(job)

    def _note_hold(self, job: Job) -> None:
        if job.held_ms is not None:
            heapq.heappush(self._holds, (job.held_ms + self._patience_ms, job.number, job))

    def _world(self, groups: list[Group]) -> World:
        now, rules = self._now, self._rules
        usage, last = self._fleet.look(now), self._last
        same = last is not None and self._fleet.facts is last.engines and self._fleet.pool is last.pool
        if not same:
            self._state += 1
        projects = {group.requirement.project for group in groups}
        policies = rules.policies(projects, self._fleet, self._open, now)
        caps = rules.caps(policies, now)
        if last is not None and same and not self._moved and last.policies is policies and last.caps == caps:
            return last
        full = self._full(last, usage) if last is not None and same else UNKNOWN
        self._moved, self._freed = False, set()
        return World(
            self._fleet.pool,
            self._fleet.facts,
            usage,
            {} if last is None else last.credits,
            self._settings.cost_aware,
            policies,
            dict.fromkeys(policies, SHARED_PURSE) if SHARED_PURSE in caps else {},
            caps,
            full=full,
        )

    def _full(self, last: World, usage: Usage) -> frozenset[str]:
        """The engines without a free slot, where runs have ended since and all else is as it was."""
        if usage.probing or last.usage.probing:
            return UNKNOWN
        relieved = self._freed & last.full
        if not relieved:
            return last.full
        return last.full - {each.name for each in last.engines if each.name in relieved and usage.free_slots(each) > 0}

    def _survey(self, group: Group, affinity: str | None, world: World) -> Survey:
        known = self._known(group).by_affinity
        found = known.get(affinity)
        if found is None:
            found = known[affinity] = world.survey(replace(group.requirement, affinity=affinity))
        return found

    def _known(self, group: Group) -> Surveys:
        if group.surveys.state != self._state:
            group.surveys = Surveys(self._state)
        return group.surveys

    def _route(self) -> None:
        everyone = self._queue.groups()
        since_ms = self._now - self._patience_ms
        for group in everyone:
            if group.held:
                group.ripen(since_ms)
        world = self._world(everyone)
        groups: list[Group] = everyone
        standing: list[Group] = []
        if world is self._last:
            # Nothing has moved since the pass before: only who is new or has waited long enough can fare otherwise.
            groups = []
            for group in everyone:
                (standing if group.stands else groups).append(group)
        self._look(groups, world, FRONT)
        lines = self._grants(groups, standing, world)
        for group in everyone:
            if group.owes:
                lines += [(job.place, self._told(group, job, answer)) for job, answer in group.owed()]
        if len(lines) > 1:
            lines.sort()
        for _, line in lines:
            self._sink(line)
        self.report.decided(len(lines))

    def _grants(self, groups: list[Group], standing: list[Group], world: World) -> list[tuple[Place, str]]:
        """Grant what can be granted, in its order; groups that stood join in once anything has moved."""
        lines: list[tuple[Place, str]] = []
        order = ByTurns(self._now, self._age_ms) if self._settings.fair_share else InOrder()
        while found := order.next(groups, world):
            place, group = found
            decision = self._decided(group, place, world, order.lots)
            assert isinstance(decision, Assign)  # noqa: S101  (the group has room for this job)
            lines.append((order.line(place), self._granted(group, place, decision)))
            before, world = world, world.after(decision)
            if world.full is not before.full or decision.counted:
                for each in standing:
                    each.join()
                groups, standing = [each for each in (*groups, *standing) if each.line], []
                self._look(groups, world, order.reached)
        self._last = world
        return lines

    def _look(self, groups: list[Group], world: World, place: Place) -> None:
        full, policies, caps = world.full, world.policies, world.caps
        for group in groups:
            project = group.requirement.project
            case = (full, caps.get(world.purse(project), 0) > 0, policies[project].mode)
            known = self._known(group).outlooks
            found = known.get(case)
            if found is None:
                surveyed = self._survey(group, None, world)
                found = known[case] = Outlook.of(prospect(surveyed, world, group.request))
            group.see(found, place)

    def _decided(self, group: Group, place: Place, world: World, lots: tuple[Lot, ...]) -> Decision:
        job = group.jobs[place]
        requirement = job.requirement() if job.affinity is not None else group.requirement
        request = job.request(requirement, self._now, lots)
        if request.session is not None:
            world = replace(world, sessions=self._memory.of(request.session, self._now))
        return decide(request, world, self._survey(group, job.affinity, world))

    def _granted(self, group: Group, place: Place, decision: Assign) -> str:
        job, engine, now = self._queue.take(group, place), decision.engine, self._now
        self._runs += 1
        unit = self._rules.spend(job.arrival.project, now) if decision.counted else None
        verdict = self._fleet.failing(engine.name)
        run = Run(self._runs, job, engine.name, engine.tier, now, decision.why, unit, verdict)
        self._fleet.grant(engine, run.number)
        self._memory.learn(decision.memories(), now)
        ends_at = now + (0 if verdict else job.arrival.runs_for(engine.name))
        heapq.heappush(self._ends, (ends_at, run.number, run))
        self.report.granted(decision, now - job.due_ms)
        job.told = None
        return line_of(now, job, decision.outcome, engine)

    def _told(self, group: Group, job: Job, answer: Answer) -> str:
        outcome, reason = answer
        if outcome == "hold" and job.held_ms is None:
            group.hold(job, self._now)
            self._note_hold(job)
        return line_of(self._now, job, outcome, None, reason)
