"""Oracles: the rules of the domain told a second time, as plainly as can be, to judge the first telling.

None of them calls the code under test; they share its values and nothing else, and count in exact fractions where it
counts in scaled integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from vibey.domain.engine import Phase, Tier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vibey.domain.engine import EngineFacts, Usage
    from vibey.domain.requirement import Requirement

WHOLE = 1_000_000
MINUTE = 60_000


@dataclass
class Rotation:
    """Smooth weighted round robin in exact fractions; members may come, go and change weight between draws.

    `entitled` is the sum of the shares a member was offered, `picks` how often it won.
    """

    entitled: dict[str, Fraction] = field(default_factory=dict)
    picks: dict[str, int] = field(default_factory=dict)

    def credit(self, key: str) -> Fraction:
        """What the member is owed."""
        return self.entitled.get(key, Fraction(0)) - self.picks.get(key, 0)

    def draw(self, weights: Mapping[str, int]) -> str:
        """Offer each member its share, and pick the one owed most; ties go to the earlier."""
        total = sum(weights.values())
        for key, weight in weights.items():
            self.entitled[key] = self.entitled.get(key, Fraction(0)) + Fraction(weight, total)
        winner = max(weights, key=self.credit)
        self.picks[winner] = self.picks.get(winner, 0) + 1
        return winner


def swrr(weights: Sequence[int], draws: int) -> list[int]:
    """The index sequence of nginx's smooth weighted round robin, in whole weights, ties to the earlier."""
    credit = [0] * len(weights)
    sequence = []
    for _ in range(draws):
        credit = [owed + weight for owed, weight in zip(credit, weights, strict=True)]
        winner = credit.index(max(credit))
        credit[winner] -= sum(weights)
        sequence.append(winner)
    return sequence


def harmonic(members: int) -> Fraction:
    """1 + 1/2 + … + 1/members."""
    return sum((Fraction(1, n) for n in range(1, members + 1)), Fraction(0))


def exclusion(engine: EngineFacts, requirement: Requirement) -> str | None:
    """The first reason, in the documented order, why an engine is gone; avoidance and handoffs aside."""
    sick = engine.phase is Phase.CLOSED and engine.failure >= WHOLE
    reasons = {
        "disabled": not engine.enabled,
        "not_installed": not engine.installed,
        "conformance_failed": not engine.conformant,
        "login_stale": not engine.login_ok,
        "circuit_open": engine.phase is Phase.OPEN,
        "excluded_by_job": engine.name in requirement.excluded,
        "not_pinned": requirement.pinned != frozenset() and engine.name not in requirement.pinned,
        "no_workspace": requirement.workspace is not None and engine.name not in requirement.workspace,
        "missing_capability": bool(requirement.capabilities - engine.capabilities)
        or (engine.calls_only and "routed-tasks" not in requirement.capabilities),
        "no_weight": sick or engine.weight == 0,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def beyond_handoff(
    requirement: Requirement, engines: Sequence[EngineFacts], *, may_pay: bool = True
) -> tuple[list[EngineFacts], bool]:
    """What handoffs leave of the live engines of all tiers, and whether they had to be waived.

    `may_pay` is False where the rules keep paid engines from jobs that no local engine can serve.
    """
    live = [engine for engine in engines if exclusion(engine, requirement) is None]
    untried = [engine for engine in live if engine.name not in requirement.handed_off]
    owned = any(engine.tier is Tier.LOCAL for engine in engines)
    usable = [engine for engine in untried if engine.tier is Tier.LOCAL or may_pay or not owned]
    return (untried, False) if usable else (live, len(untried) < len(live))


def candidates(
    requirement: Requirement, engines: Sequence[EngineFacts], tier: Tier, *, may_pay: bool = True
) -> tuple[list[EngineFacts], bool]:
    """A tier's candidates, and whether avoidance was waived to keep it from being empty."""
    live = [engine for engine in beyond_handoff(requirement, engines, may_pay=may_pay)[0] if engine.tier is tier]
    kept = [engine for engine in live if engine.name not in requirement.avoided]
    return (kept, False) if kept else (live, bool(live))


def is_waived(
    engine: EngineFacts, requirement: Requirement, engines: Sequence[EngineFacts], *, may_pay: bool = True
) -> bool:
    """Whether an engine is a candidate only because an exclusion by a rise or by a handoff was waived."""
    found, risen = candidates(requirement, engines, engine.tier, may_pay=may_pay)
    back = engine.name in requirement.handed_off
    return engine in found and (back or (risen and engine.name in requirement.avoided))


def preferred(requirement: Requirement, engines: Sequence[EngineFacts]) -> tuple[list[EngineFacts], bool]:
    """The candidates of the local tier, or of the paid one when there is no local candidate; and the waiver."""
    local, waived = candidates(requirement, engines, Tier.LOCAL)
    return (local, waived) if local else candidates(requirement, engines, Tier.PAID)


def free_slots(engine: EngineFacts, usage: Usage) -> int:
    """How many runs an engine could take, one after another."""
    if engine.busy or not engine.staffed:
        return 0
    left = max(engine.slots - usage.in_use.get(engine.name, 0), 0)
    if engine.phase is not Phase.HALF_OPEN:
        return left
    return min(left, 1) if engine.account not in usage.probing else 0


def takers(requirement: Requirement, engines: Sequence[EngineFacts], usage: Usage) -> list[str]:
    """Names of the engines a job may run on at once."""
    return [engine.name for engine in preferred(requirement, engines)[0] if free_slots(engine, usage) > 0]


def wait_reason(requirement: Requirement, engines: Sequence[EngineFacts]) -> str:
    """Why a job waits that nothing takes."""
    offered, _ = preferred(requirement, engines)
    if not offered:
        return "no_eligible_engine"
    return "slots_full" if any(engine.staffed for engine in offered) else "no_worker"


def weight(engine: EngineFacts, requirement: Requirement, engines: Sequence[EngineFacts]) -> Fraction:
    """The effective weight as an exact product, 1 being the weight of a healthy engine that declares none."""
    health = Fraction(1, 4) if engine.phase is Phase.HALF_OPEN else 1 - Fraction(engine.failure, WHOLE)
    prices = sorted(each.price for each in engines if each.price)
    cost = Fraction(1)
    if engine.price:
        cost = min(max(Fraction(prices[(len(prices) - 1) // 2], engine.price), Fraction(1, 2)), Fraction(3, 2))
    affinity = 2 if requirement.affinity == engine.name else 1
    return Fraction(engine.weight, WHOLE) * health * fidelity(requirement.effort, engine.efforts) * cost * affinity


def fidelity(asked: int, offered: Sequence[int]) -> Fraction:
    """1, 0.7 or 0.5 by the levels missing between the request and the nearest level at or below it."""
    missing = 0
    while offered and asked - missing not in offered and asked - missing > min(offered):
        missing += 1
    return (Fraction(1), Fraction(7, 10), Fraction(1, 2))[min(missing, 2)]


@dataclass
class Guard:
    """A circuit told as a story: what is open, why, between which instants the probe is due, and which step is next.

    `recheck` is the wait before a reset further away than that is probed ahead of its time, 0 for never; `resets` the
    reset the provider named, and `ramp` how many slots of each engine are back, None for all. `jitter` is in percent.
    """

    recheck: int = 0
    jitter: int = 10
    reason: str | None = None
    due: tuple[int, int] | None = None
    step: int = 0
    in_a_row: int = 0
    resets: int | None = None
    ramp: int | None = None

    def phase(self, now: int) -> str | None:
        """The phase at an instant; None while the probe's jitter leaves it undecided."""
        if self.reason is None:
            return "closed"
        if self.due is None or now < self.due[0]:
            return "open"
        return "half_open" if now >= self.due[1] else None

    def hear(self, event: str, now: int, resets_at: int | None = None, widest: int = 1) -> None:
        """Take in `success`, `engine`, `window`, `credits` or `login`, at an instant whose phase is decided."""
        if event == "success":
            self._close(widest)
            return
        phase, resets = self.phase(now), resets_at if event == "window" else None
        self.in_a_row += 1
        if event == "login":
            self.reason, self.due, self.resets, self.ramp = "login_failed", None, None, None
        elif phase == "open":
            self._straggle(now, resets)
        elif phase == "half_open" and self.resets is not None and self.resets > now and event != "credits":
            self._await(resets if resets is not None and resets > now else self.resets, now)
        elif event != "engine" or phase == "half_open" or self.in_a_row >= 3:
            self._open(event, now, resets)

    def _close(self, widest: int) -> None:
        back = 1 if self.reason is not None else None if self.ramp is None else self.ramp + 1
        self.ramp = None if back is None or back >= widest else back
        self.reason, self.due, self.step, self.in_a_row, self.resets = None, None, 0, 0, None

    def _await(self, resets: int, now: int) -> None:
        soon = min(resets, now + self.recheck) if self.recheck else resets
        self.reason, self.due, self.resets, self.ramp = "window_exhausted", (soon, soon), resets, None

    def _straggle(self, now: int, resets: int | None) -> None:
        if resets is None or self.due is None:
            return
        before, known = self.due, self.due[1] if self.resets is None else self.resets
        if resets <= known:
            return
        is_early = self.resets is not None and before[1] < self.resets
        self._await(resets, now)
        assert self.due is not None
        later = max(before[0], self.due[0]), max(before[1], self.due[1])
        self.due = before if is_early else later

    def _open(self, event: str, now: int, resets: int | None) -> None:
        steps = [5, 10, 20, 30] if event == "engine" else [10, 20, 30]
        pause = steps[min(self.step, len(steps) - 1)] * MINUTE
        self.step += 1
        self.reason = {"engine": "engine_failures", "credits": "credits_exhausted"}.get(event, "window_exhausted")
        self.due, self.resets, self.ramp = (now + pause, now + pause * (100 + self.jitter) // 100), None, None
        if resets is not None and resets > now:
            self._await(resets, now)
        elif resets is not None:
            self.due = now + MINUTE, now + MINUTE


def atoms(value: object) -> Iterator[object]:
    """Every value inside a value: through dataclasses, mappings, sequences and sets, down to what has no parts."""
    if is_dataclass(value):
        for part in fields(value):
            yield from atoms(getattr(value, part.name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from atoms(key)
            yield from atoms(item)
    elif isinstance(value, tuple | list | frozenset | set):
        for item in value:
            yield from atoms(item)
    else:
        yield value
