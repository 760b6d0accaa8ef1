"""What the router promises, read off a file of decisions and the trace they were made on; no simulator takes part.

Of circuits only this is known here: an engine none of whose account's runs was ever ill has a closed one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vibey.simulate.trace import Arrival, FleetEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vibey.settings import Settings
    from vibey.simulate.trace import Trace

DAY_MS = 86_400_000
CAPACITY = {"window", "credits", "login", "busy"}


@dataclass
class Run:
    """A run as its line and the trace tell it. `unit` is the purse and day it took a unit of the cap from."""

    job: str
    engine: str
    begun: int
    ends: int
    unit: tuple[str, int] | None


@dataclass
class Reader:
    """Reads decisions in order, with the fleet as the trace says it was; `broken` tells every broken promise."""

    settings: Settings
    slots: dict[str, int]
    down: set[str] = field(default_factory=set)
    ill: dict[str, str] = field(default_factory=dict)
    suspect: set[str] = field(default_factory=set)
    runs: list[Run] = field(default_factory=list)
    units: dict[tuple[str, int], int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def happens(self, event: FleetEvent) -> None:
        """Let something happen to the fleet."""
        if event.event == "fail":
            self.ill[event.engine] = event.failure
            self.suspect.add(self.settings.engine[event.engine].account)
            for run in self.runs:
                if run.engine == event.engine and run.ends > event.at_ms:
                    self._cut_short(run, event.at_ms, event.failure)
        elif event.event == "slots":
            self.slots[event.engine] = event.slots
        elif event.event == "down":
            self.down.add(event.engine)
        elif event.event == "up":
            self.down.discard(event.engine)
            self.ill.pop(event.engine, None)

    def reads(self, line: Mapping[str, Any], arrival: Arrival) -> None:
        """Take a decision to the books."""
        if line["engine"] is None:
            return
        now, engine = round(line["at"] * 1000), line["engine"]
        live = [run for run in self.runs if run.ends > now]
        if sum(run.engine == engine for run in live) >= self.slots[engine]:
            self.broken.append(f"I1: {line}: its slots are in use")
        if any(run.job == arrival.job for run in live):
            self.broken.append(f"I2: {line}: it runs already")
        if engine in self.down or engine in arrival.exclude:
            self.broken.append(f"eligible: {line}")
        if not arrival.requires <= set(self.settings.engine[engine].capabilities):
            self.broken.append(f"eligible: {line}")
        if line["outcome"] == "overflow":
            self._overflows(line, arrival, now)
        self._begins(line, arrival, now)

    def _overflows(self, line: Mapping[str, Any], arrival: Arrival, now: int) -> None:
        for name, engine in self.settings.engine.items():
            eligible = (
                engine.tier == "local"
                and name not in self.down
                and name not in arrival.exclude
                and arrival.requires <= set(engine.capabilities)
                and engine.account not in self.suspect
                and line["attempt"] == 1
            )
            # A run that took no time may have held its slot when this was decided.
            held = sum(run.engine == name and (run.ends > now or run.begun == now) for run in self.runs)
            if eligible and held < self.slots[name]:
                self.broken.append(f"I5: {line}: {name} had a free slot")

    def _begins(self, line: Mapping[str, Any], arrival: Arrival, now: int) -> None:
        engine, policy = line["engine"], self.settings.engines
        counted = line["outcome"] == "overflow" or (line["outcome"] == "fallback" and policy.paid_fallback == "count")
        if policy.paid_daily_cap_covers == "all":
            counted = self.settings.engine[engine].tier == "paid"
        unit = None
        if counted:
            purse = "" if policy.paid_daily_cap_scope == "installation" else arrival.project
            unit = (purse, now // DAY_MS)
            self.units[unit] = self.units.get(unit, 0) + 1
            if self.units[unit] > policy.paid_daily_cap:
                self.broken.append(f"I4: {line}: the cap was spent")
        run = Run(arrival.job, engine, now, now + arrival.runs_for(engine), unit)
        self.runs.append(run)
        if engine in self.ill:
            self._cut_short(run, now, self.ill[engine])

    def _cut_short(self, run: Run, now: int, failure: str) -> None:
        run.ends = now
        if run.unit is not None and failure in CAPACITY:
            self.units[run.unit] -= 1
            run.unit = None


def broken(settings: Settings, trace: Trace, lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every promise these decisions break."""
    reader = Reader(settings, {name: settings.slots_of(name) for name in settings.engine})
    arrivals = {each.job: each for each in trace.happenings if isinstance(each, Arrival)}
    events = [each for each in trace.happenings if isinstance(each, FleetEvent)]
    looked_at: dict[str, float] = {}
    for line in lines:
        arrival = arrivals[line["job"]]
        while events and events[0].at_ms <= round(line["at"] * 1000):
            reader.happens(events.pop(0))
        if looked_at.setdefault(arrival.job, line["at"]) * 1000 < arrival.at_ms:
            reader.broken.append(f"time: {line}: it had not arrived")
        reader.reads(line, arrival)
    late = [name for name, each in arrivals.items() if round(looked_at.get(name, -1) * 1000) != each.at_ms]
    return [*reader.broken, *(f"I3: {name} was not decided on when it arrived" for name in late)]
