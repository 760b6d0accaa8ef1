"""A circuit against the story of what it should do."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracles
from vibey.domain.circuit import Circuit
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Outcome, Success
from vibey.domain.settlement import concerns_circuit, feed, is_busy, is_misconfigured

HALF_LIFE = 1_800_000
DAY = 86_400_000
EVENTS = ["success", "engine", "window", "credits", "login"]
happenings = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.sampled_from([1, 1000, 5 * 60_000, 12 * 60_000, 40 * 60_000]) | st.integers(0, DAY),
        st.none() | st.integers(-DAY, DAY),
    ),
    max_size=25,
)


def outcome(event: str, resets_at: int | None = None) -> Outcome:
    """The outcome a circuit hears as this event."""
    if event == "success":
        return Success()
    if event == "engine":
        return Failure(FailureClass.ENGINE, "crashed")
    return Failure(FailureClass.CAPACITY, event, CapacityKind(event), resets_at_ms=resets_at)


@given(happenings, st.sampled_from([0, 0, 1000, 12 * 60_000, 3_600_000]), st.integers(1, 4))
def test_a_circuit_follows_its_story(history: list[tuple[str, int, int | None]], recheck: int, widest: int) -> None:
    """At any instant, after any history, it is closed, open or half-open as told, for the reason told."""
    circuit, guard, now = Circuit("a"), oracles.Guard(recheck), 1_700_000_000_000
    for event, pause, reset in history:
        now += pause
        if guard.phase(now) is None and guard.due is not None:
            now = guard.due[1]
        resets_at = None if reset is None else now + reset
        if guard.due is not None and resets_at is not None and guard.due[0] <= resets_at <= guard.due[1]:
            resets_at = guard.due[1] + 1
        guard.hear(event, now, resets_at, widest)
        circuit = feed(circuit, outcome(event, resets_at), now, HALF_LIFE, widest, recheck_ms=recheck)
        assert (circuit.resets_at_ms, circuit.ramp) == (guard.resets, guard.ramp)
        assert (circuit.open_reason.value if circuit.open_reason else None) == guard.reason
        assert circuit.failures_in_a_row == guard.in_a_row
        assert circuit.probes == guard.step
        if guard.due is None:
            assert circuit.probe_at_ms is None
        else:
            assert circuit.probe_at_ms is not None
            assert guard.due[0] <= circuit.probe_at_ms <= guard.due[1]
        for instant in (now, now + oracles.MINUTE, now + DAY, now + 1000 * DAY):
            expected = guard.phase(instant)
            assert expected in {None, circuit.phase(instant).value}


@given(happenings)
def test_the_failure_average_is_the_documented_one(history: list[tuple[str, int, int | None]]) -> None:
    """It moves by a tenth of the way at each outcome, decays with time, and stays between nothing and whole."""
    circuit, now, exact = Circuit("a"), 1_700_000_000_000, Fraction(0)
    for event, pause, _ in history:
        halvings, rest = divmod(pause if circuit.failure_at_ms else 0, HALF_LIFE)
        exact = exact * (1 - Fraction(rest, 2 * HALF_LIFE)) / 2**halvings * Fraction(9, 10)
        exact += Fraction(0 if event == "success" else 1, 10)
        now += pause
        circuit = feed(circuit, outcome(event), now, HALF_LIFE, 1)
        assert 0 <= circuit.failure <= 1_000_000
        forgotten = 1000 if event == "success" else 0
        assert abs(circuit.failure - exact * 1_000_000) <= forgotten + 20
        exact = Fraction(circuit.failure, 1_000_000)


@given(happenings, st.sampled_from(["work", "vibey", "handoff", "misconfigured"]))
def test_what_is_not_the_account_s_doing_touches_nothing(history: list[tuple[str, int, int | None]], name: str) -> None:
    """The job's own fault, Vibey's, a handoff, a misconfiguration and a busy server leave the circuit alone."""
    circuit, now = Circuit("a"), 1_700_000_000_000
    for event, pause, _ in history:
        now += pause
        circuit = feed(circuit, outcome(event), now, HALF_LIFE, 1)
    busy = outcome("busy")
    other = Failure(FailureClass(name), "x")
    for quiet in (other, busy):
        assert feed(circuit, quiet, now + 1, HALF_LIFE, 1) is circuit
        assert not concerns_circuit(quiet)
    assert is_busy(busy)
    assert not is_busy(other)
    assert is_misconfigured(other) == (name == "misconfigured")


@given(happenings, st.integers(0, 1000 * DAY))
def test_a_refused_login_waits_for_a_person(history: list[tuple[str, int, int | None]], later: int) -> None:
    """Whatever came before and whatever fails after, only a success or a person lets anything through again."""
    circuit, now = Circuit("a"), 1_700_000_000_000
    for event in ("login", *(event for event, _, _ in history if event != "success")):
        now += 1000
        circuit = feed(circuit, outcome(event, now + 5000), now, HALF_LIFE, 1)
    assert circuit.phase(now + later).value == "open"
    assert feed(circuit, Success(), now, HALF_LIFE, 1).phase(now).value == "closed"
    assert not circuit.is_pristine
