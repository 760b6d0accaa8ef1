"""Measure: would hybrid dispatch have helped? Judged from recorded demand, replayed on the local slots alone.

Algorithm `local-demand-replay/1`. All of the installation's demand of a window is replayed (`vibey.domain.demand`); an
attempt is *contended* if its would-wait is positive. A project's own attempts are judged. Hybrid wins when there are
enough of them, enough of those are contended, and the lower median would-wait of the contended ones reaches the
overflow threshold; equality favours hybrid. Otherwise hybrid would hold jobs and overflow none, and singleton stands.

While the mode is hybrid, contention and wait are held against six tenths of their thresholds, so that demand near one
does not toggle the mode with every measurement.

A measurement is *current* while what it depends on besides demand is unchanged (its fingerprint) and it is not too
old, nor from the future.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any

from vibey.domain.demand import Demand, would_waits
from vibey.domain.offer import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALGORITHM = "local-demand-replay/1"
HYSTERESIS_PERCENT = 60
MILLION = 1_000_000

__all__ = [
    "ALGORITHM",
    "Demand",
    "Judge",
    "Measurement",
    "Verdict",
    "fingerprint",
    "is_current",
    "judge",
    "verdict",
    "would_waits",
]


@dataclass(frozen=True, slots=True)
class Judge:
    """The thresholds a project is judged by. `min_contention` is in millionths."""

    overflow_after_ms: int
    window_hours: int
    min_sessions: int
    min_contention: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a measurement with the evidence for it. `contention` is in millionths."""

    winner: Mode
    demand: int
    contended: int
    contention: int
    median_wait_ms: int
    reason: str


def judge(demand: Sequence[Demand], slots: Mapping[str, int], project: str, rules: Judge, current: Mode) -> Verdict:
    """Replay the whole demand and judge the project's part of it; `current` is the mode now in force."""
    return verdict([wait for each, wait in would_waits(demand, slots) if each.project == project], rules, current)


def verdict(waits: Sequence[int], rules: Judge, current: Mode) -> Verdict:
    """Judge a project by the would-waits of its attempts, in milliseconds and any order."""
    contended = sorted(wait for wait in waits if wait > 0)
    share = len(contended) * MILLION // len(waits) if waits else 0
    median = contended[(len(contended) - 1) // 2] if contended else 0
    winner, reason = _compared(len(waits), len(contended), median, rules, _percent(current))
    return Verdict(winner, len(waits), len(contended), share, median, reason)


def fingerprint(slots: Mapping[str, int], rules: Judge, version: str) -> str:
    """What a measurement depends on besides demand: local engines and slots, rules, algorithm and version, digested."""
    value = {"slots": sorted(slots.items()), "rules": asdict(rules), "algorithm": ALGORITHM, "version": version}
    return sha256(dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_current(measured: str, now: str, age_ms: int, max_age_ms: int) -> bool:
    """Whether a measurement may be used: its fingerprint is the one of now, and it is neither too old nor to come."""
    return measured == now and 0 <= age_ms <= max_age_ms


@dataclass(frozen=True, slots=True)
class Measurement:
    """A verdict as it is recorded: by which rules, on which local slots, and which mode was in force before it.

    `replayed` counts the attempts of all projects that were replayed for it.
    """

    verdict: Verdict
    rules: Judge
    fingerprint: str
    before: Mode
    slots: Mapping[str, int]
    replayed: int

    def to_json(self) -> dict[str, Any]:
        """The measurement as JSON values: shares are fractions of 1, thresholds those it was really held against."""
        found, rules, percent = self.verdict, self.rules, _percent(self.before)
        return {
            "winner": found.winner.value,
            "demand": found.demand,
            "contended": found.contended,
            "contention": found.contention / MILLION,
            "median_wait_seconds": found.median_wait_ms / 1000,
            "reason": found.reason,
            "algorithm": ALGORITHM,
            "fingerprint": self.fingerprint,
            "mode_before": self.before.value,
            "thresholds": {
                "sessions": rules.min_sessions,
                "contention": rules.min_contention * percent / (100 * MILLION),
                "wait_seconds": rules.overflow_after_ms * percent / 100_000,
                "window_hours": rules.window_hours,
            },
            "local_slots": dict(self.slots),
            "replayed": self.replayed,
        }


def _percent(current: Mode) -> int:
    return HYSTERESIS_PERCENT if current is Mode.HYBRID else 100


def _compared(demand: int, contended: int, median_ms: int, rules: Judge, percent: int) -> tuple[Mode, str]:
    """The winner, compared in whole numbers, and the comparison that decided."""
    share = f"{contended} of {demand} attempts would have waited for a local slot"
    if demand < rules.min_sessions:
        return Mode.SINGLETON, f"{demand} attempts wanted a local engine, fewer than {rules.min_sessions}"
    if contended * 100 * MILLION < rules.min_contention * percent * demand:
        return Mode.SINGLETON, f"{share}, less than {rules.min_contention * percent / MILLION:g} %"
    least = f"{rules.overflow_after_ms * percent / 100_000:g} s"
    if median_ms * 100 < rules.overflow_after_ms * percent:
        return Mode.SINGLETON, f"{share}, but half of those less than {least}: {median_ms / 1000:g} s in the median"
    return Mode.HYBRID, f"{share}, {median_ms / 1000:g} s in the median, {least} or more"
