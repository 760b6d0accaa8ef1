"""Circuits step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vibey.domain.circuit import Circuit, OpenReason
from vibey.domain.engine import Phase
from vibey.domain.outcome import CapacityKind

NOW = 1_700_000_000_000
MINUTE = 60_000
HALF_LIFE = 1_800_000
CLOSED = Circuit("a")


def refused(circuit: Circuit, kind: CapacityKind, now: int = NOW, resets_at: int | None = None) -> Circuit:
    """The circuit after such a refusal."""
    return circuit.refused(kind, resets_at, now, HALF_LIFE)


def failed(circuit: Circuit, times: int, now: int = NOW) -> Circuit:
    """The circuit after so many engine failures in a row."""
    for _ in range(times):
        circuit = circuit.engine_failed(now, HALF_LIFE)
    return circuit


def test_the_third_engine_failure_in_a_row_opens() -> None:
    """Two are tolerated, and a success between starts the count again."""
    assert failed(CLOSED, 2).phase(NOW) is Phase.CLOSED
    assert failed(failed(CLOSED, 2).succeeded(NOW, HALF_LIFE, 1), 2).phase(NOW) is Phase.CLOSED
    opened = failed(CLOSED, 3)
    assert (opened.phase(NOW), opened.open_reason) == (Phase.OPEN, OpenReason.ENGINE_FAILURES)


@pytest.mark.parametrize(
    ("kind", "minutes"),
    [
        (None, [5, 10, 20, 30, 30, 30]),
        (CapacityKind.CREDITS, [10, 20, 30, 30, 30]),
        (CapacityKind.WINDOW, [10, 20, 30, 30, 30]),
    ],
)
def test_failing_probes_follow_the_schedule(kind: CapacityKind | None, minutes: list[int]) -> None:
    """Each probe that fails doubles the pause up to half an hour, with at most a tenth of jitter."""
    circuit, now = failed(CLOSED, 2), NOW
    for pause in minutes:
        circuit = failed(circuit, 1, now) if kind is None else refused(circuit, kind, now)
        assert circuit.probe_at_ms is not None
        assert pause * MINUTE <= circuit.probe_at_ms - now <= pause * MINUTE * 11 // 10
        assert circuit.phase(circuit.probe_at_ms - 1) is Phase.OPEN
        now = circuit.probe_at_ms
        assert circuit.phase(now) is Phase.HALF_OPEN


def test_jitter_differs_between_accounts() -> None:
    """Accounts that fail together are not probed together."""
    assert len({failed(Circuit(f"a{number}"), 3).probe_at_ms for number in range(20)}) > 15


def test_a_window_reopens_exactly_at_its_reset() -> None:
    """The provider's word counts to the millisecond."""
    opened = refused(CLOSED, CapacityKind.WINDOW, resets_at=NOW + 5_000_001)
    assert opened.phase(NOW + 5_000_000) is Phase.OPEN
    assert opened.phase(NOW + 5_000_001) is Phase.HALF_OPEN


def test_a_reset_already_past_is_looked_at_again_in_a_minute() -> None:
    """A provider that refuses and says it is back already cannot make a job spin."""
    opened = refused(CLOSED, CapacityKind.WINDOW, resets_at=NOW - 5)
    assert opened.probe_at_ms == NOW + MINUTE


def test_credits_have_no_reset_clock() -> None:
    """A reset time beside spent credits is not believed."""
    opened = refused(CLOSED, CapacityKind.CREDITS, resets_at=NOW + 1)
    assert opened.probe_at_ms is not None
    assert opened.probe_at_ms >= NOW + 10 * MINUTE


def test_a_refused_login_stays_open_for_ever() -> None:
    """Only a person, or a run begun before that still succeeds, closes it."""
    opened = refused(CLOSED, CapacityKind.LOGIN)
    assert (opened.phase(NOW + 10**12), opened.probe_at_ms) == (Phase.OPEN, None)
    assert opened.succeeded(NOW, HALF_LIFE, 1).phase(NOW) is Phase.CLOSED


@pytest.mark.parametrize("kind", [None, CapacityKind.CREDITS, CapacityKind.WINDOW])
@pytest.mark.parametrize(
    "opened",
    [
        refused(CLOSED, CapacityKind.LOGIN),
        refused(CLOSED, CapacityKind.WINDOW, resets_at=NOW + 300 * MINUTE),
        refused(CLOSED, CapacityKind.CREDITS),
        failed(CLOSED, 3),
    ],
    ids=lambda opened: opened.open_reason.value,
)
def test_a_straggler_changes_only_the_average(opened: Circuit, kind: CapacityKind | None) -> None:
    """A run begun before the circuit opened takes no step of the schedule, and its failure opens nothing sooner."""
    later = NOW + MINUTE
    after = failed(opened, 1, later) if kind is None else refused(opened, kind, later)
    assert after.failure > 0
    assert replace(after, failure=opened.failure, failure_at_ms=NOW, failures_in_a_row=1) == replace(
        opened, failures_in_a_row=1
    )


def test_a_straggler_that_names_a_later_reset_is_believed() -> None:
    """A window that ends later than the next probe moves it there."""
    reset = NOW + 600 * MINUTE
    after = refused(failed(CLOSED, 3), CapacityKind.WINDOW, resets_at=reset)
    assert (after.open_reason, after.probe_at_ms) == (OpenReason.WINDOW_EXHAUSTED, reset)


def test_a_straggler_without_credits_names_no_reset() -> None:
    """A reset time beside spent credits lengthens nothing either."""
    opened = failed(CLOSED, 3)
    after = refused(opened, CapacityKind.CREDITS, resets_at=NOW + 600 * MINUTE)
    assert after.probe_at_ms == opened.probe_at_ms


def test_success_closes_and_forgets_all_but_the_average() -> None:
    """The schedule starts afresh; the average eases, and is forgotten below a thousandth."""
    closed = failed(CLOSED, 4).succeeded(NOW, HALF_LIFE, 1)
    assert (closed.open_reason, closed.probe_at_ms, closed.probes, closed.failures_in_a_row) == (None, None, 0, 0)
    assert closed.failure == 343_900 * 9 // 10
    assert not closed.is_pristine
    assert closed.succeeded(NOW + 100 * HALF_LIFE, HALF_LIFE, 1).is_pristine
    assert CLOSED.is_pristine


def test_slots_come_back_one_by_one_after_a_probe() -> None:
    """One slot after the probe, one more for each further success, and all of them at the widest engine's count."""
    opened = CLOSED.refused(CapacityKind.WINDOW, NOW + MINUTE, NOW, HALF_LIFE)
    assert (opened.slots(4), opened.slots(1)) == (4, 1)
    circuit, seen = opened, []
    for number in range(5):
        circuit = circuit.succeeded(NOW + (number + 2) * MINUTE, HALF_LIFE, 4)
        seen.append([circuit.slots(configured) for configured in (1, 2, 4)])
        assert circuit.phase(NOW + 10 * MINUTE) is Phase.CLOSED
    assert seen == [[1, 1, 1], [1, 2, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4]]
    assert circuit.ramp is None


def test_a_ramp_needs_slots_to_climb_and_a_circuit_that_was_open() -> None:
    """An account of one slot has none; a success without an opening before it starts none."""
    opened = CLOSED.refused(CapacityKind.CREDITS, None, NOW, HALF_LIFE)
    assert opened.succeeded(NOW, HALF_LIFE, 1).ramp is None
    assert CLOSED.succeeded(NOW, HALF_LIFE, 4).ramp is None
    assert failed(CLOSED, 2).succeeded(NOW, HALF_LIFE, 4).ramp is None


def test_a_failure_leaves_the_ramp_and_an_opening_ends_it() -> None:
    """One failure on the way keeps the slots as they are; what opens the circuit again starts over."""
    ramped = CLOSED.refused(CapacityKind.CREDITS, None, NOW, HALF_LIFE).succeeded(NOW, HALF_LIFE, 4)
    assert ramped.ramp == 1
    assert not ramped.is_pristine
    assert failed(ramped, 1).ramp == 1
    assert failed(ramped, 3).ramp is None
    assert ramped.refused(CapacityKind.WINDOW, None, NOW, HALF_LIFE).ramp is None


def test_without_jitter_a_probe_comes_at_its_minute() -> None:
    """What a simulation wants; and it stays so through every opening and closing."""
    still = Circuit("a", jitter=False)
    opened = failed(still, 3)
    assert opened.probe_at_ms == NOW + 5 * MINUTE
    closed = opened.succeeded(NOW, HALF_LIFE, 2)
    assert failed(closed, 3).probe_at_ms == NOW + 5 * MINUTE
    assert closed.refused(CapacityKind.CREDITS, None, NOW, HALF_LIFE).probe_at_ms == NOW + 10 * MINUTE
    assert {failed(Circuit(name), 3).probe_at_ms for name in "abcdef"} != {NOW + 5 * MINUTE}
