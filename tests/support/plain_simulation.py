"""A simulation as plain as can be, to hold the real one against.

It has a loop, a clock and books of its own: at every instant it looks at everything there is, asks the domain about
every queued job in turn on a world made anew from those books, and remembers nothing that could be looked up. It shares
with `vibey.simulate` only the domain, what a trace is, and what settings mean.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any

from tests.support.plain_books import Engine, Job, Run, failure_of
from vibey import __version__
from vibey.domain import settlement
from vibey.domain.circuit import Circuit, OpenReason
from vibey.domain.decide import Assign, Decision, Hold, Request, World, decide
from vibey.domain.demand import Demand
from vibey.domain.effort import effort_of
from vibey.domain.engine import EngineFacts, Phase, Tier, Usage
from vibey.domain.layer import scheduled
from vibey.domain.measure import fingerprint, is_current, judge
from vibey.domain.offer import Mode, Why
from vibey.domain.outcome import Failure, Success
from vibey.domain.requirement import Requirement, conversation
from vibey.domain.settlement import Attempted, JobState
from vibey.domain.weight import decayed
from vibey.settings.facts import engine_facts, judge_of, policy_of, root_pool
from vibey.simulate.trace import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.domain.outcome import Outcome
    from vibey.domain.selection import SessionKey
    from vibey.settings import Settings
    from vibey.simulate.trace import FleetEvent, Trace

DAY_MS = 86_400_000
MONDAY_MS = 4 * DAY_MS
# More midnights than any window of `auto` has, so that whoever gives up earlier has to be right.
PATIENCE = 20
INSTALLATION = "the installation's"


@dataclass
class PlainSimulation:
    """Everything there is. `lines` are the decisions, as dicts in their order."""

    settings: Settings
    trace: Trace
    now: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    credits: dict[tuple[str, str], int] = field(default_factory=dict)
    turns: dict[str, Fraction] = field(default_factory=dict)
    sessions: dict[SessionKey, tuple[str, int]] = field(default_factory=dict)
    measured: dict[str, tuple[str, int, Mode]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = self.settings.engines
        declared = engine_facts(self.settings)
        self.tree = root_pool(self.settings, declared)
        self.engines = {each.name: Engine(each, each.slots, each.enabled) for each in declared}
        self.circuits = {each.account: Circuit(each.account, jitter=False) for each in declared}

    def play(self) -> str:
        """Everything that is decided, as the text of a file."""
        ahead = list(self.trace.happenings)
        idle = 0
        while idle < PATIENCE:
            instants = [*self._instants(), *(each.at_ms for each in ahead[:1])]
            idles = not instants
            if any(job.is_queued for job in self.jobs):
                instants.append((self.now // DAY_MS + 1) * DAY_MS)
            if not instants:
                break
            self.now = min(instants)
            happening = [each for each in ahead if each.at_ms == self.now]
            ahead = ahead[len(happening) :]
            before = len(self.runs)
            self._instant(happening)
            idle = idle + 1 if idles and len(self.runs) == before else 0
        return "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in self.lines)

    def _instants(self) -> Iterator[int]:
        """When anything is going to happen by itself, midnights aside."""
        threshold = self.keys.overflow_after_seconds * 1000
        yield from (run.ends for run in self._live())
        later = [job.due for job in self.jobs if job.is_queued]
        later += [job.held_at + threshold for job in self.jobs if job.is_queued and job.held_at is not None]
        later += [each.probe_at_ms for each in self.circuits.values() if each.probe_at_ms is not None]
        later += [each.busy_until for each in self.engines.values()]
        yield from (instant for instant in later if instant > self.now)

    def _live(self) -> list[Run]:
        return [run for run in self.runs if run.ended is None]

    def _instant(self, happening: list[Arrival | FleetEvent]) -> None:
        for each in happening:
            if not isinstance(each, Arrival):
                self._happens(each)
        for run in self._live():
            if run.ends <= self.now:
                self._end(run)
        for each in happening:
            if isinstance(each, Arrival):
                job = Job(len(self.jobs) + 1, each, effort_of(1, each.effort), self.now, looked_at=self.now)
                self.jobs.append(job)
        due = sorted([job for job in self.jobs if job.is_queued and job.due <= self.now], key=self._order)
        self._pass(due)

    def _pass(self, due: list[Job]) -> None:
        modes = {project: self._mode(project, due) for project in sorted({job.arrival.project for job in due})}
        while self.keys.fair_share and self._turn(due, modes):
            pass
        for job in due:
            if job.is_queued:
                self._decide(job, modes)

    def _order(self, job: Job) -> tuple[Fraction, int]:
        """Who has waited for a second has gained the part of a priority that a second is worth."""
        age = self.keys.priority_age_seconds * 1000
        grown = Fraction(self.now - job.arrival.at_ms, age) if age else 0
        return -(job.arrival.priority + Fraction(grown)), job.number

    def _turn(self, due: list[Job], modes: dict[str, Mode]) -> bool:
        """Grant the first job of the project whose turn it is; whether any could be granted."""
        first: dict[str, Job] = {}
        for job in due:
            if job.is_queued and job.arrival.project not in first and isinstance(self._answer(job, modes), Assign):
                first[job.arrival.project] = job
        if not first:
            return False
        levels = {project: floor(-self._order(job)[0]) for project, job in first.items()}
        rivals = [project for project in first if levels[project] == max(levels.values())]
        weights = {project: self.keys.fair_weights.get(project, 1) for project in rivals}
        if len(rivals) > 1:
            for project in rivals:
                self.turns[project] = self.turns.get(project, Fraction(0)) + Fraction(
                    weights[project], sum(weights.values())
                )
        best = max(rivals, key=lambda project: self.turns.get(project, Fraction(0)))
        if len(rivals) > 1:
            self.turns[best] -= 1
        self._decide(first[best], modes)
        return True

    def _happens(self, event: FleetEvent) -> None:
        engine = self.engines[event.engine]
        match event.event:
            case "up":
                engine.up, engine.ill = True, None
                if self.circuits[engine.facts.account].open_reason is OpenReason.LOGIN_FAILED:
                    self.circuits[engine.facts.account] = Circuit(engine.facts.account, jitter=False)
            case "down":
                engine.up = False
            case "slots":
                engine.slots = event.slots
            case "fail":
                engine.ill = failure_of(event)
                for run in self._live():
                    if run.engine is engine:
                        run.ends, run.verdict = self.now, run.verdict or engine.ill
            case _:
                engine.demoted = event.event == "demote"

    def _end(self, run: Run) -> None:
        run.ended = self.now
        outcome: Outcome = run.verdict or Success()
        account = run.engine.facts.account
        if settlement.is_busy(outcome):
            run.engine.busy_until = self.now + self.keys.slot_poll_seconds * 1000
        heard = outcome.dated(self.now) if isinstance(outcome, Failure) else outcome
        widest = max(each.slots for each in self.engines.values() if each.facts.account == account)
        half_life = self.keys.health_half_life_seconds * 1000
        recheck = self.keys.recheck_seconds * 1000
        before = self.circuits[account]
        expected = before.early_for(self.now)
        if isinstance(heard, Failure) and heard.resets_at_ms is not None and expected is not None:
            heard = replace(heard, resets_at_ms=expected)
        self.circuits[account] = settlement.feed(before, heard, self.now, half_life, widest, recheck_ms=recheck)
        early = settlement.concerns_circuit(outcome) and expected is not None
        self._settle(run, outcome, early=early)

    def _settle(self, run: Run, outcome: Outcome, *, early: bool) -> None:
        job = run.job
        attempted = Attempted(
            job.number,
            run.engine.facts.name,
            run.attempt,
            self.keys.max_attempts,
            job.arrival.effort,
            job.refunds,
            job.handoffs,
            job.avoided,
            job.handed_off,
            job.affinity,
        )
        backoff = self.keys.retry_backoff_seconds * 1000
        settled = settlement.settle(attempted, outcome, backoff_ms=backoff, early=early)
        if settled.release:
            run.unit = None
        if settled.job_state is JobState.SUCCEEDED:
            self._keep(conversation(job.arrival.project, job.arrival.session))
        if settled.job_state is not JobState.QUEUED:
            return
        job.is_queued, job.told = True, None
        job.refunds, job.handoffs, job.avoided = settled.refunds, settled.handoffs, settled.avoided
        job.handed_off = settled.handed_off
        job.affinity, job.effort, job.attempts = settled.affinity, settled.effort, settled.attempts
        job.due = self.now + settled.delay_ms
        if settled.attempts == run.attempt:
            job.held_at, job.looked_at = None, job.due

    def _keep(self, session: str | None) -> None:
        for key, (member, until) in self.sessions.items():
            if key[2] == session and until > self.now:
                self.sessions[key] = (member, self.now + self.keys.session_ttl_seconds * 1000)

    def _facts(self, engine: Engine) -> EngineFacts:
        circuit = self.circuits[engine.facts.account]
        half_life = self.keys.health_half_life_seconds * 1000
        return replace(
            engine.facts,
            enabled=engine.up,
            slots=circuit.slots(engine.slots),
            phase=circuit.phase(self.now),
            failure=decayed(circuit.failure, self.now - circuit.failure_at_ms, half_life),
            busy=engine.busy_until > self.now,
            demoted=engine.demoted,
        )

    def _world(self, modes: dict[str, Mode]) -> World:
        live = self._live()
        in_use: dict[str, int] = {}
        for run in live:
            in_use[run.engine.facts.name] = in_use.get(run.engine.facts.name, 0) + 1
        probing = frozenset(run.engine.facts.account for run in live if run.is_probe)
        layers = scheduled(self.settings.windows(), MONDAY_MS + self.now)
        weights = {name: each.facts.weight for name, each in self.engines.items()}
        poll = self.keys.slot_poll_seconds * 1000
        return World(
            pool=self.tree.laden(weights, layers),
            engines=tuple(map(self._facts, self.engines.values())),
            usage=Usage(in_use, probing),
            credits=dict(self.credits),
            cost_aware=self.keys.cost_aware,
            policies={name: policy_of(self.keys, mode, poll) for name, mode in modes.items()},
            purses={name: self._purse(name) for name in modes},
            caps={purse: self._left(purse) for purse in map(self._purse, modes)},
            sessions={key: member for key, (member, until) in self.sessions.items() if until > self.now},
        )

    def _purse(self, project: str) -> str:
        return INSTALLATION if self.keys.paid_daily_cap_scope == "installation" else project

    def _left(self, purse: str) -> int:
        taken = sum(run.unit == (purse, self.now // DAY_MS) for run in self.runs)
        return self.keys.paid_daily_cap - taken

    def _answer(self, job: Job, modes: dict[str, Mode]) -> Decision:
        arrival = job.arrival
        asked = ("main", arrival.project, job.effort, arrival.requires, arrival.exclude, job.avoided, job.affinity)
        requirement = Requirement(*asked, handed_off=job.handed_off)
        waited = 0 if job.held_at is None else self.now - job.held_at
        session = conversation(arrival.project, arrival.session)
        return decide(Request(job.number, job.attempts + 1, requirement, waited, session), self._world(modes))

    def _decide(self, job: Job, modes: dict[str, Mode]) -> None:
        decision = self._answer(job, modes)
        if isinstance(decision, Assign):
            self._grant(job, decision)
            return
        outcome, reason = ("hold", "held") if isinstance(decision, Hold) else ("wait", decision.reason.value)
        if outcome == "hold" and job.held_at is None:
            job.held_at = self.now
        if job.told != (outcome, reason):
            job.told = (outcome, reason)
            self._line(job, decision, reason)

    def _grant(self, job: Job, decision: Assign) -> None:
        self._line(job, decision, None)
        engine = self.engines[decision.engine.name]
        for step in decision.selection.steps:
            self.credits.update(zip(((step.pool, each) for each in step.members), step.after, strict=True))
        until = self.now + self.keys.session_ttl_seconds * 1000
        self.sessions.update({key: (member, until) for key, member in decision.memories().items()})
        takes = 0 if engine.ill else job.arrival.runs_for(decision.engine.name)
        unit = (self._purse(job.arrival.project), self.now // DAY_MS) if decision.counted else None
        probe = decision.engine.phase is Phase.HALF_OPEN
        number, attempt, ends = len(self.runs) + 1, job.attempts + 1, self.now + takes
        run = Run(
            number, job, attempt, engine, decision.why, self.now, job.looked_at, ends, unit, probe, verdict=engine.ill
        )
        self.runs.append(run)
        job.is_queued = False

    def _line(self, job: Job, decision: Decision, reason: str | None) -> None:
        engine = decision.engine if isinstance(decision, Assign) else None
        whole, rest = divmod(self.now, 1000)
        self.lines.append(
            {
                "at": self.now / 1000 if rest else whole,
                "job": job.arrival.job,
                "attempt": job.attempts + 1,
                "outcome": decision.outcome,
                "engine": engine.name if engine else None,
                "tier": engine.tier.value if engine else None,
                "reason": reason,
            }
        )

    def _mode(self, project: str, due: list[Job]) -> Mode:
        if self.keys.mode != "auto":
            return Mode(self.keys.mode)
        local = {name: each for name, each in self.engines.items() if each.up and each.facts.tier is Tier.LOCAL}
        if not local:
            return Mode.SINGLETON
        slots = {name: each.slots for name, each in local.items()}
        rules = judge_of(self.keys)
        mark = fingerprint(slots, rules, __version__)
        last = self.measured.get(project)
        if last and is_current(last[0], mark, self.now - last[1], self.keys.auto_max_age_hours * 3_600_000):
            return last[2]
        before = last[2] if last else Mode.SINGLETON
        winner = judge(self._demand(due, local), slots, project, rules, before).winner
        self.measured[project] = (mark, self.now, winner)
        return winner

    def _demand(self, due: list[Job], local: dict[str, Engine]) -> list[Demand]:
        """As the service reads it: attempts on a local engine with their time so far, paid exceptions, and who waits.

        None that was refused for want of capacity counts.
        """
        rows = []
        for run in self.runs:
            is_local = run.engine.facts.tier is Tier.LOCAL
            refused = run.ended is not None and run.verdict is not None and run.verdict.capacity_kind is not None
            if refused or not (is_local or run.why in {Why.OVERFLOW, Why.FALLBACK}):
                continue
            time = (self.now if run.ended is None else run.ended) - run.begun if is_local else None
            rows.append((run.job, run.attempt, run.looked_at, time))
        rows += [(job, job.attempts + 1, job.looked_at, None) for job in due]
        since = self.now - self.keys.auto_window_hours * 3_600_000
        rows = [row for row in rows if row[2] > since]
        known = sorted(time for *_, time in rows if time is not None)
        usual = known[(len(known) - 1) // 2] if known else 0
        found = []
        age = self.keys.priority_age_seconds * 1000
        for job, attempt, looked_at, time in rows:
            asked = job.arrival
            able = frozenset(
                name
                for name, each in local.items()
                if name in self.tree.leaves and name not in asked.exclude and asked.requires <= each.facts.capabilities
            )
            if able:
                taken = usual if time is None else time
                # The order among them, whatever the numbers.
                order = -asked.priority * 10**15 if not age else asked.at_ms - asked.priority * age
                found.append(Demand(job.number, attempt, asked.project, order, looked_at, taken, able))
        return found
