"""Rules: each project's mode and what is left of its cap, on the history of the simulation itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from vibey import __version__
from vibey.domain.assessment import misfit
from vibey.domain.decide import SHARED_PURSE
from vibey.domain.demand import Demand, lower_median, would_waits
from vibey.domain.layer import DAY_MS
from vibey.domain.measure import fingerprint, is_current, verdict
from vibey.domain.offer import Mode, Policy
from vibey.settings.facts import judge_of, policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vibey.domain.measure import Judge
    from vibey.settings import Settings
    from vibey.simulate.fleet import Fleet
    from vibey.simulate.queue import Job

    Open = Callable[[], Iterator["Attempt"]]

HOUR_MS = 3_600_000


@dataclass(slots=True)
class Attempt:
    """An attempt that wanted a local engine; `running_ms` is its time on one, None for one that went elsewhere."""

    job: Job
    number: int
    due_ms: int
    running_ms: int | None


class Rules:
    """Policies, caps and measurements of every project met so far."""

    def __init__(self, settings: Settings) -> None:
        self._keys = settings.engines
        self._poll_ms = settings.engines.slot_poll_seconds * 1000
        self._shared = settings.engines.paid_daily_cap_scope == "installation"
        self._judge = judge_of(settings.engines)
        self._policies: dict[str, Policy] = {}
        self._capped: dict[str, Policy] | None = None
        self._caps: tuple[int, dict[str, int]] | None = None
        self._spenders: set[str] = set()
        self._measured: dict[str, tuple[str, int, Mode]] = {}
        self._replay: tuple[int, dict[str, int], dict[str, list[int]]] | None = None
        self.history: list[Attempt] = []
        self.used: dict[tuple[str, int], int] = {}

    @property
    def is_auto(self) -> bool:
        """Whether modes follow from measurements."""
        return self._keys.mode == "auto"

    @property
    def cap(self) -> int:
        """Units a purse has a day."""
        return self._keys.paid_daily_cap

    def purse(self, project: str) -> str:
        """The name of the cap a project draws on."""
        return SHARED_PURSE if self._shared else project

    def policies(self, projects: set[str], fleet: Fleet, still_open: Open, now_ms: int) -> dict[str, Policy]:
        """The rules in force, the same object while none has changed; a measurement that is wanted is taken first.

        `still_open` yields the attempts that have not ended.
        """
        known = self._policies
        for project in sorted(projects) if self.is_auto else projects - known.keys():
            mode = self._mode(project, fleet, still_open, now_ms)
            if project not in known or known[project].mode is not mode:
                weight = self._keys.fair_weights.get(project, 1)
                self._policies = {**self._policies, project: policy_of(self._keys, mode, self._poll_ms, weight)}
        return self._policies

    def caps(self, policies: dict[str, Policy], now_ms: int) -> dict[str, int]:
        """Units left today, by purse, of every project that could ever take one."""
        day = now_ms // DAY_MS
        if self._capped is not policies:
            self._capped = policies
            self._spenders = {self.purse(name) for name, each in policies.items() if each.may_spend}
            self._caps = None
        if self._caps is None or self._caps[0] != day:
            left = {purse: self.cap - self.used.get((purse, day), 0) for purse in self._spenders}
            self._caps = (day, left)
        return self._caps[1]

    def units(self, now_ms: int) -> dict[str, int]:
        """Units taken today, by purse."""
        day = now_ms // DAY_MS
        return {purse: used for (purse, when), used in self.used.items() if when == day}

    def spend(self, project: str, now_ms: int) -> tuple[str, int]:
        """Take a unit; returns where it was taken, to give it back."""
        unit = (self.purse(project), now_ms // DAY_MS)
        self.used[unit] = self.used.get(unit, 0) + 1
        self._caps = None
        return unit

    def release(self, unit: tuple[str, int]) -> None:
        """Give a unit back to the day it was taken from."""
        self.used[unit] -= 1
        self._caps = None

    def _mode(self, project: str, fleet: Fleet, still_open: Open, now_ms: int) -> Mode:
        if not self.is_auto:
            return Mode(self._keys.mode)
        local = {name: facts.slots for name, facts in fleet.local().items()}
        if not local:
            return Mode.SINGLETON
        print_ = _fingerprint(tuple(sorted(local.items())), self._judge)
        measured = self._measured.get(project)
        max_age_ms = self._keys.auto_max_age_hours * HOUR_MS
        if measured is None or not is_current(measured[0], print_, now_ms - measured[1], max_age_ms):
            before = measured[2] if measured else Mode.SINGLETON
            waits = self._waits(fleet, local, still_open, now_ms).get(project, [])
            measured = self._measured[project] = (print_, now_ms, verdict(waits, self._judge, before).winner)
        return measured[2]

    def _waits(self, fleet: Fleet, local: dict[str, int], still_open: Open, now_ms: int) -> dict[str, list[int]]:
        """Would-waits by project: one replay of demand for all that are measured at an instant."""
        if self._replay is None or self._replay[:2] != (now_ms, local):
            waits: dict[str, list[int]] = {}
            for each, wait in would_waits(self._demand(fleet, still_open, now_ms), local):
                waits.setdefault(each.project, []).append(wait)
            self._replay = (now_ms, local, waits)
        return self._replay[2]

    def _demand(self, fleet: Fleet, still_open: Open, now_ms: int) -> list[Demand]:
        since_ms = now_ms - self._keys.auto_window_hours * HOUR_MS
        self.history = [each for each in self.history if each.due_ms > since_ms]
        attempts = [*self.history, *(each for each in still_open() if each.due_ms > since_ms)]
        usual_ms = lower_median(each.running_ms for each in attempts if each.running_ms is not None)
        local = {name: facts for name, facts in fleet.local().items() if name in fleet.pool.leaves}
        found = []
        for each in attempts:
            arrival, asked = each.job.arrival, each.job.requirement()
            eligible = frozenset(
                name
                for name, facts in local.items()
                if misfit(asked, name, facts.capabilities, calls_only=facts.calls_only) is None
            )
            if eligible:
                running_ms = usual_ms if each.running_ms is None else each.running_ms
                found.append(
                    Demand(
                        each.job.number,
                        each.number,
                        arrival.project,
                        each.job.standing,
                        each.due_ms,
                        running_ms,
                        eligible,
                    )
                )
        return found


@lru_cache(maxsize=64)
def _fingerprint(slots: tuple[tuple[str, int], ...], judge: Judge) -> str:
    return fingerprint(dict(slots), judge, __version__)
