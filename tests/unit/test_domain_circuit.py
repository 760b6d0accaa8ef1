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


HOUR = 60 * MINUTE
RECHECK = 30 * MINUTE
SPENT = CLOSED.refused(CapacityKind.WINDOW, NOW + 5 * HOUR, NOW, HALF_LIFE, recheck_ms=RECHECK)


def looked(
    circuit: Circuit, kind: CapacityKind | None, resets_at: int | None = None, recheck: int = RECHECK
) -> Circuit:
    """The circuit after its next probe came at its instant and failed like this."""
    assert circuit.probe_at_ms is not None
    if kind is None:
        return circuit.engine_failed(circuit.probe_at_ms, HALF_LIFE, recheck_ms=recheck)
    return circuit.refused(kind, resets_at, circuit.probe_at_ms, HALF_LIFE, recheck_ms=recheck)


def waits(circuit: Circuit) -> tuple[OpenReason | None, float | None, float | None]:
    """Why it is open, and the hours from NOW until its probe and its reset."""
    probe, reset = circuit.probe_at_ms, circuit.resets_at_ms
    return (
        circuit.open_reason,
        None if probe is None else (probe - NOW) / HOUR,
        None if reset is None else (reset - NOW) / HOUR,
    )


def test_a_reset_is_looked_at_ahead_of_its_time_again_and_again_but_never_after_it() -> None:
    """Five hours by thirty minutes: nine early probes, the tenth at the reset; none of the early ones is a step."""
    circuit, instants = SPENT, []
    for _ in range(9):
        instants.append(waits(circuit)[1])
        circuit = looked(circuit, CapacityKind.WINDOW)
        assert (circuit.probes, circuit.resets_at_ms) == (1, NOW + 5 * HOUR)
    assert instants == [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]
    assert waits(circuit) == (OpenReason.WINDOW_EXHAUSTED, 5, 5)
    refused_at_reset = looked(circuit, CapacityKind.WINDOW)
    assert (refused_at_reset.probes, refused_at_reset.resets_at_ms) == (2, None)
    minutes = ((refused_at_reset.probe_at_ms or 0) - NOW - 5 * HOUR) / MINUTE
    assert 20 <= minutes <= 22


@pytest.mark.parametrize(
    ("away", "recheck", "probe"),
    [(300, 0, 300), (300, 30, 30), (300, 299, 299), (300, 300, 300), (300, 301, 300), (20, 30, 20)],
)
def test_only_a_reset_further_away_than_the_recheck_is_looked_at_early(away: int, recheck: int, probe: int) -> None:
    """In minutes; 0 is off."""
    opened = CLOSED.refused(CapacityKind.WINDOW, NOW + away * MINUTE, NOW, HALF_LIFE, recheck_ms=recheck * MINUTE)
    assert opened.probe_at_ms == NOW + probe * MINUTE
    assert opened.phase(NOW + probe * MINUTE - 1) is Phase.OPEN
    assert opened.phase(NOW + probe * MINUTE) is Phase.HALF_OPEN


@pytest.mark.parametrize("kind", [CapacityKind.CREDITS, CapacityKind.LOGIN, CapacityKind.WINDOW, None])
def test_a_recheck_is_for_known_resets_alone(kind: CapacityKind | None) -> None:
    """Credits, logins, failures, and windows without a reset keep their schedule whatever the recheck is."""
    opened = failed(CLOSED, 2)
    plain = failed(opened, 1) if kind is None else refused(opened, kind)
    early = (
        opened.engine_failed(NOW, HALF_LIFE, recheck_ms=MINUTE)
        if kind is None
        else opened.refused(kind, None, NOW, HALF_LIFE, recheck_ms=MINUTE)
    )
    assert early == plain


@pytest.mark.parametrize(
    ("kind", "named", "expected"),
    [
        (CapacityKind.WINDOW, None, (OpenReason.WINDOW_EXHAUSTED, 1, 5)),
        (CapacityKind.WINDOW, 0.25, (OpenReason.WINDOW_EXHAUSTED, 1, 5)),
        (CapacityKind.WINDOW, 0.75, (OpenReason.WINDOW_EXHAUSTED, 0.75, 0.75)),
        (CapacityKind.WINDOW, 3, (OpenReason.WINDOW_EXHAUSTED, 1, 3)),
        (CapacityKind.WINDOW, 9, (OpenReason.WINDOW_EXHAUSTED, 1, 9)),
        (None, None, (OpenReason.WINDOW_EXHAUSTED, 1, 5)),
        (CapacityKind.LOGIN, 9, (OpenReason.LOGIN_FAILED, None, None)),
    ],
)
def test_what_an_early_probe_s_failure_says(
    kind: CapacityKind | None, named: float | None, expected: tuple[OpenReason, float | None, float | None]
) -> None:
    """Half an hour in: the newest reset still to come counts, else the one known; no step is taken either way."""
    after = looked(SPENT, kind, None if named is None else NOW + int(named * HOUR))
    assert waits(after) == expected
    assert after.probes == SPENT.probes
    assert after.failures_in_a_row == 2


def test_an_early_probe_that_finds_the_credits_spent_has_no_clock_left() -> None:
    """Which is a new reason to be open, and so the next step of the schedule."""
    after = looked(SPENT, CapacityKind.CREDITS, NOW + 9 * HOUR)
    assert (after.open_reason, after.resets_at_ms, after.probes) == (OpenReason.CREDITS_EXHAUSTED, None, 2)
    assert 20 * MINUTE <= (after.probe_at_ms or 0) - NOW - RECHECK <= 22 * MINUTE


def test_a_recheck_turned_off_ends_with_the_next_refusal() -> None:
    """The probe that was to come still does; after it only the reset counts. Turned on again, it begins anew."""
    assert waits(looked(SPENT, CapacityKind.WINDOW, recheck=0)) == (OpenReason.WINDOW_EXHAUSTED, 5, 5)


@pytest.mark.parametrize("kind", [None, CapacityKind.CREDITS, CapacityKind.WINDOW])
@pytest.mark.parametrize("named", [None, 0.2, 2, 5])
def test_a_straggler_leaves_an_early_probe_and_its_reset(kind: CapacityKind | None, named: float | None) -> None:
    """Whatever it says short of a later reset."""
    now, reset = NOW + 10 * MINUTE, None if named is None else NOW + int(named * HOUR)
    if kind is None:
        after = SPENT.engine_failed(now, HALF_LIFE, recheck_ms=RECHECK)
    else:
        after = SPENT.refused(kind, reset, now, HALF_LIFE, recheck_ms=RECHECK)
    assert (waits(after), after.probes) == (waits(SPENT), 1)


def test_stragglers_that_name_ever_later_resets_do_not_put_off_the_early_probe() -> None:
    """Each lengthens the wait for the reset; the probe in half an hour still comes in half an hour."""
    circuit = SPENT
    for minute in range(1, 30):
        now = NOW + minute * MINUTE
        circuit = circuit.refused(CapacityKind.WINDOW, now + 5 * HOUR, now, HALF_LIFE, recheck_ms=RECHECK)
    assert waits(circuit) == (OpenReason.WINDOW_EXHAUSTED, 0.5, 5 + 29 / 60)


@pytest.mark.parametrize(("recheck", "probe"), [(0, 600), (3, 6), (30, 31), (700, 600)])
def test_a_straggler_s_reset_is_looked_at_early_but_not_sooner_than_the_probe_was(recheck: int, probe: int) -> None:
    """An account open for its failures, whose probe comes at six minutes, hears at one that its window is spent."""
    opened = replace(failed(CLOSED, 3), probe_at_ms=NOW + 6 * MINUTE)
    now, reset = NOW + MINUTE, NOW + 600 * MINUTE
    after = opened.refused(CapacityKind.WINDOW, reset, now, HALF_LIFE, recheck_ms=recheck * MINUTE)
    assert (after.open_reason, after.resets_at_ms) == (OpenReason.WINDOW_EXHAUSTED, reset)
    assert after.probe_at_ms == NOW + probe * MINUTE


@pytest.mark.parametrize(
    "opened", [SPENT, refused(CLOSED, CapacityKind.CREDITS), refused(CLOSED, CapacityKind.LOGIN), failed(CLOSED, 3)]
)
def test_any_success_closes_at_once(opened: Circuit) -> None:
    """Also that of a run begun before, long ahead of any probe; nothing of the reset is left, and the ramp begins."""
    closed = opened.succeeded(NOW + 1, HALF_LIFE, 3)
    assert closed.phase(NOW + 1) is Phase.CLOSED
    assert (closed.probe_at_ms, closed.resets_at_ms, closed.probes, closed.ramp) == (None, None, 0, 1)


def test_a_refused_login_ends_a_ramp() -> None:
    """As whatever else opens the circuit does."""
    ramped = replace(CLOSED, ramp=2)
    assert refused(ramped, CapacityKind.LOGIN).ramp is None
