"""Circuit: the guard of an account.

States. *Closed* lets runs through. *Open* lets nothing through, until `probe_at_ms`, or, when that is None, until
a person acts (`vibey doctor`, `vibey engine reset`). From that instant the circuit is *half-open*: it lets one
run through, the probe, fleet-wide, and the run is an ordinary job. Half-open is not stored: it is what an open circuit
looks like once its time has come, so no timer has to fire for it.

What opens it. A spent window opens until the provider's reset time, or, when that is unknown, on the probe schedule.
Spent credits have no clock and are probed at 10, 20, 30, 30… minutes. A refused login has no clock and no probe. Three
engine failures in a row open it, with probes at 5, 10, 20, 30, 30… minutes. A probe that fails in any of these ways
reopens with the next step. A job's own failure and a fault of Vibey's touch nothing.

The recheck. Providers sometimes reset a window before the instant they named. With `recheck_ms` above 0, an account
whose reset is known and further away than that is probed every `recheck_ms`, and never later than the reset itself.
Such an early probe is a probe like any other, except when it fails: as the account was expected back only later, that
is no step of the schedule. A reset named by the refused early probe is the provider's newest word and replaces the one
known; an early probe that crashed, or was refused without a reset still to come, leaves that as it was. Only spent
credits and a refused login, which have no clock, end the wait for the reset. The job that was refused early does not
pay for it (see `settlement`). `resets_at_ms` is the reset while it is
known; without a recheck `probe_at_ms` is the same.

While it is open, whatever fails there was begun before. Such a straggler is no probe: it takes no step of the
schedule and never shortens the wait; only a refused login, or a window that ends later still, lengthens it. A later
reset told by a straggler moves no early probe that is already to come.

What closes it. Any success, at any time and also of a run begun before it opened; a person's reset; and, for a refused
login, a good `doctor`. After a success each engine of the account gets its slots back one by one: one slot, then one
more for each further success anywhere on the account, so that whatever queued up meanwhile does not arrive all at once.
A failure on the way leaves the ramp where it is. What a person closes needs no ramp.

The failure average moves with every outcome that says something about the engine: e ← 0.9e + 0.1 on failure, 0.9e on
success, and it halves with time (see `weight.decayed`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from vibey.domain.backoff import fraction
from vibey.domain.engine import MILLION, Phase
from vibey.domain.outcome import CapacityKind
from vibey.domain.weight import decayed

MINUTE_MS = 60_000
FAILURES_TO_OPEN = 3
ENGINE_PROBES = (5, 10, 20, 30)
CAPACITY_PROBES = (10, 20, 30)
JITTER_PERCENT = 10
LONGEST_PROBE_MS = max(*ENGINE_PROBES, *CAPACITY_PROBES) * MINUTE_MS * (100 + JITTER_PERCENT) // 100


class OpenReason(StrEnum):
    """Why a circuit is open."""

    ENGINE_FAILURES = "engine_failures"
    WINDOW_EXHAUSTED = "window_exhausted"
    CREDITS_EXHAUSTED = "credits_exhausted"
    LOGIN_FAILED = "login_failed"


@dataclass(frozen=True, slots=True)
class Circuit:
    """An account's guard as stored. Instants are milliseconds since the Unix epoch; `failure` is in millionths.

    `ramp` is how many slots each engine of the account has after a probe, None for all of them. Without `jitter` probes
    come at their very minute, which only a simulation wants. `resets_at_ms` is when a spent window ends by the
    provider's word, None while that is not known; the probe is never later.
    """

    account: str
    open_reason: OpenReason | None = None
    probe_at_ms: int | None = None
    probes: int = 0
    failures_in_a_row: int = 0
    failure: int = 0
    failure_at_ms: int = 0
    ramp: int | None = None
    jitter: bool = True
    resets_at_ms: int | None = None

    def phase(self, now_ms: int) -> Phase:
        """What the circuit lets through at this instant."""
        if self.open_reason is None:
            return Phase.CLOSED
        due = self.probe_at_ms is not None and now_ms >= self.probe_at_ms
        return Phase.HALF_OPEN if due else Phase.OPEN

    def early_for(self, now_ms: int) -> int | None:
        """The reset a probe at this instant would be ahead of; None when it would not be early, or may not be made."""
        known = self.resets_at_ms is not None and now_ms < self.resets_at_ms
        return self.resets_at_ms if known and self.phase(now_ms) is Phase.HALF_OPEN else None

    @property
    def is_pristine(self) -> bool:
        """Whether a success would change nothing."""
        untroubled = self.open_reason is None and self.ramp is None
        return untroubled and self.failure == 0 and self.failures_in_a_row == 0

    def slots(self, configured: int) -> int:
        """How many of an engine's slots may be used, circuit phase aside."""
        return configured if self.ramp is None else min(configured, self.ramp)

    def succeeded(self, now_ms: int, half_life_ms: int, widest: int) -> Circuit:
        """After a run that ended well: closed, and its failure average eased; below a thousandth it is forgotten.

        `widest` is the most slots any engine of the account is configured with, at which a ramp ends.
        """
        eased = self._decayed(now_ms, half_life_ms) * 9 // 10
        ramp = 1 if self.open_reason is not None else None if self.ramp is None else self.ramp + 1
        return Circuit(
            self.account,
            failure=eased if eased >= MILLION // 1000 else 0,
            failure_at_ms=now_ms,
            ramp=None if ramp is None or ramp >= widest else ramp,
            jitter=self.jitter,
        )

    def engine_failed(self, now_ms: int, half_life_ms: int, *, recheck_ms: int = 0) -> Circuit:
        """After a crash, timeout or stall; opens at three in a row, and at once when it was the probe that failed."""
        failed = self._failed(now_ms, half_life_ms)
        phase = self.phase(now_ms)
        is_tolerated = phase is Phase.CLOSED and failed.failures_in_a_row < FAILURES_TO_OPEN
        if is_tolerated or phase is Phase.OPEN:
            return failed
        expected = self.early_for(now_ms)
        if expected is not None:
            return _until(failed, expected, now_ms, recheck_ms)
        return _opened(failed, OpenReason.ENGINE_FAILURES, now_ms, ENGINE_PROBES)

    def refused(
        self, kind: CapacityKind, resets_at_ms: int | None, now_ms: int, half_life_ms: int, *, recheck_ms: int = 0
    ) -> Circuit:
        """After the provider said no for want of capacity; `resets_at_ms` is its own word on when to come back."""
        failed = self._failed(now_ms, half_life_ms)
        if kind is CapacityKind.LOGIN:
            return _shut(failed, OpenReason.LOGIN_FAILED)
        named = resets_at_ms if kind is CapacityKind.WINDOW else None
        if self.phase(now_ms) is Phase.OPEN:
            return _prolonged(failed, named, now_ms, recheck_ms)
        if kind is CapacityKind.CREDITS:
            return _opened(failed, OpenReason.CREDITS_EXHAUSTED, now_ms, CAPACITY_PROBES)
        expected = self.early_for(now_ms)
        if expected is not None:
            reset = named if named is not None and named > now_ms else expected
            return _until(failed, reset, now_ms, recheck_ms)
        opened = _opened(failed, OpenReason.WINDOW_EXHAUSTED, now_ms, CAPACITY_PROBES)
        return opened if named is None else _reset(opened, named, now_ms, recheck_ms)

    def _decayed(self, now_ms: int, half_life_ms: int) -> int:
        return decayed(self.failure, now_ms - self.failure_at_ms, half_life_ms)

    def _failed(self, now_ms: int, half_life_ms: int) -> Circuit:
        average = self._decayed(now_ms, half_life_ms) * 9 // 10 + MILLION // 10
        in_a_row = self.failures_in_a_row + 1
        return replace(self, failures_in_a_row=in_a_row, failure=average, failure_at_ms=now_ms)


def _shut(circuit: Circuit, reason: OpenReason) -> Circuit:
    return replace(circuit, open_reason=reason, probe_at_ms=None, resets_at_ms=None, ramp=None)


def _opened(circuit: Circuit, reason: OpenReason, now_ms: int, schedule: tuple[int, ...]) -> Circuit:
    step = schedule[min(circuit.probes, len(schedule) - 1)] * MINUTE_MS
    spread = step * JITTER_PERCENT // 100 + 1 if circuit.jitter else 1
    jitter = fraction(f"{circuit.account}:{circuit.probes}:{now_ms}", spread)
    return replace(_shut(circuit, reason), probe_at_ms=now_ms + step + jitter, probes=circuit.probes + 1)


def _until(circuit: Circuit, resets_at_ms: int, now_ms: int, recheck_ms: int) -> Circuit:
    """Open until a reset still to come, and probed ahead of it if it is further away than a recheck."""
    probe_at_ms = min(resets_at_ms, now_ms + recheck_ms) if recheck_ms else resets_at_ms
    shut = _shut(circuit, OpenReason.WINDOW_EXHAUSTED)
    return replace(shut, probe_at_ms=probe_at_ms, resets_at_ms=resets_at_ms)


def _prolonged(circuit: Circuit, named_ms: int | None, now_ms: int, recheck_ms: int) -> Circuit:
    """What a straggler makes of an open circuit; `named_ms` is the reset it was told."""
    probe_at_ms, resets_at_ms = circuit.probe_at_ms, circuit.resets_at_ms
    if probe_at_ms is None or named_ms is None or named_ms <= (resets_at_ms or probe_at_ms):
        return circuit
    longer = _until(circuit, named_ms, now_ms, recheck_ms)
    if resets_at_ms is not None and probe_at_ms < resets_at_ms:
        return replace(longer, probe_at_ms=probe_at_ms)
    return replace(longer, probe_at_ms=max(probe_at_ms, longer.probe_at_ms or 0))


def _reset(opened: Circuit, named_ms: int, now_ms: int, recheck_ms: int) -> Circuit:
    """The provider's word; a reset already past, yet refused, is looked at again in a minute, not at once."""
    if named_ms > now_ms:
        return _until(opened, named_ms, now_ms, recheck_ms)
    return replace(opened, probe_at_ms=now_ms + MINUTE_MS)
