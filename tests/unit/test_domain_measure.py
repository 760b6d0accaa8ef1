"""Measuring by example: what would have waited, and who wins."""

from __future__ import annotations

from dataclasses import replace

from vibey.domain.measure import Demand, Judge, Measurement, fingerprint, is_current, judge, verdict, would_waits
from vibey.domain.offer import Mode

MINUTE = 60_000
RULES = Judge(overflow_after_ms=10 * MINUTE, window_hours=168, min_sessions=20, min_contention=250_000)
ONE = {"ollama": 1}


def pairs(gap: int, *, count: int = 10, running: int = 60) -> list[Demand]:
    """Pairs of attempts far apart, an hour's work each; the second is looked at `gap` minutes after the first."""
    found = []
    for number in range(count):
        for place in (0, 1):
            at = (number * 1000 + place * gap) * MINUTE
            found.append(Demand(2 * number + place, 1, "p", 0, at, running * MINUTE, frozenset({"ollama", "second"})))
    return found


def waits(demand: list[Demand], slots: dict[str, int]) -> list[int]:
    """Would-waits in minutes, by job."""
    return [wait // MINUTE for _, wait in sorted(would_waits(demand, slots), key=lambda each: each[0].job_id)]


def test_waits_of_a_minute_leave_singleton() -> None:
    """Half of the attempts are contended, but each would have waited a minute: nothing would have overflowed."""
    demand = pairs(gap=59)
    assert waits(demand, ONE) == [0, 1] * 10
    found = judge(demand, ONE, "p", RULES, Mode.SINGLETON)
    assert (found.winner, found.demand, found.contended, found.median_wait_ms) == (Mode.SINGLETON, 20, 10, MINUTE)
    assert found.reason == (
        "10 of 20 attempts would have waited for a local slot, but half of those less than 600 s: 60 s in the median"
    )


def test_waits_of_most_of_an_hour_choose_hybrid() -> None:
    """The same load with would-waits of 59 minutes."""
    found = judge(pairs(gap=1), ONE, "p", RULES, Mode.SINGLETON)
    assert (found.winner, found.contention, found.median_wait_ms) == (Mode.HYBRID, 500_000, 59 * MINUTE)


def test_a_second_idle_local_engine_leaves_nothing_contended() -> None:
    """Nobody waits while another local engine could have served."""
    found = judge(pairs(gap=1), {"ollama": 1, "second": 1}, "p", RULES, Mode.SINGLETON)
    assert (found.winner, found.contended, found.median_wait_ms) == (Mode.SINGLETON, 0, 0)


def test_an_idle_local_engine_that_may_not_serve_is_no_help() -> None:
    """Only engines eligible for the attempt count."""
    demand = [replace(each, eligible=frozenset({"ollama"})) for each in pairs(gap=1)]
    assert waits(demand, {"ollama": 1, "second": 1}) == [0, 59] * 10


def test_of_two_slots_the_one_that_ends_first_is_taken() -> None:
    """Each start takes the slot that was free first, and the next waits for the other's end."""
    eligible = frozenset({"ollama"})
    lengths = (30, 50, 10, 10, 100)
    demand = [Demand(n, 1, "p", 0, n * MINUTE, length * MINUTE, eligible) for n, length in enumerate(lengths)]
    # taken at 0 and 1; free at 30, then at 40 and 50, and at 51
    assert waits(demand, {"ollama": 2}) == [0, 0, 28, 37, 46]


def test_a_slot_freed_at_the_very_instant_is_not_waited_for() -> None:
    """Ends come before arrivals."""
    assert waits(pairs(gap=60, count=1), ONE) == [0, 0]


def test_the_queue_is_served_by_priority_then_age() -> None:
    """Of those waiting the more urgent starts first, and among equals the older job."""
    eligible = frozenset({"ollama"})
    looks = ((1, 0, 0), (2, 0, 1), (4, 5, 2), (3, 5, 3), (5, 0, 4))
    demand = [Demand(job, 1, "p", -priority, at * MINUTE, 10 * MINUTE, eligible) for job, priority, at in looks]
    started = [each.job_id for each, _ in would_waits(demand, ONE)]
    assert started == [1, 3, 4, 2, 5]


def test_all_of_the_demand_is_replayed_and_only_the_project_judged() -> None:
    """Another project's attempts take slots, but are not counted."""
    demand = [replace(each, project="other" if each.job_id % 2 == 0 else "p") for each in pairs(gap=1, count=20)]
    found = judge(demand, ONE, "p", RULES, Mode.SINGLETON)
    assert (found.winner, found.demand, found.contended) == (Mode.HYBRID, 20, 20)


def test_equality_favours_hybrid() -> None:
    """Exactly enough attempts, contention and wait are enough; a millisecond less is not."""
    exactly = [0] * 15 + [10 * MINUTE] * 5
    assert verdict(exactly, RULES, Mode.SINGLETON).winner is Mode.HYBRID
    assert verdict(exactly[1:], RULES, Mode.SINGLETON).winner is Mode.SINGLETON
    assert verdict([0, *exactly], RULES, Mode.SINGLETON).winner is Mode.SINGLETON
    short = [0] * 15 + [10 * MINUTE - 1] * 3 + [10 * MINUTE] * 2
    assert verdict(short, RULES, Mode.SINGLETON).winner is Mode.SINGLETON


def test_hybrid_holds_down_to_six_tenths() -> None:
    """While hybrid is in force both thresholds count six tenths; the number of attempts counts whole."""
    fifteen_percent = [0] * 17 + [6 * MINUTE] * 3
    assert verdict(fifteen_percent, RULES, Mode.HYBRID).winner is Mode.HYBRID
    assert verdict(fifteen_percent, RULES, Mode.SINGLETON).winner is Mode.SINGLETON
    assert verdict([0, *fifteen_percent], RULES, Mode.HYBRID).winner is Mode.SINGLETON
    assert verdict([0] * 17 + [6 * MINUTE - 1] * 3, RULES, Mode.HYBRID).winner is Mode.SINGLETON
    assert verdict([0] * 16 + [6 * MINUTE] * 3, RULES, Mode.HYBRID).winner is Mode.SINGLETON


def test_the_median_is_the_lower_one() -> None:
    """Of an even number of waits the smaller middle one is judged."""
    assert verdict([1, 2, 3, 4] * 5, RULES, Mode.SINGLETON).median_wait_ms == 2


def test_current_is_the_same_fingerprint_and_an_age_within_bounds() -> None:
    """Neither too old, nor from the future, nor of anything else."""
    mark = fingerprint(ONE, RULES, "1")
    ages = [(age, is_current(mark, mark, age, 100)) for age in (-1, 0, 100, 101)]
    assert ages == [(-1, False), (0, True), (100, True), (101, False)]
    assert not is_current(mark, fingerprint({"ollama": 2}, RULES, "1"), 0, 100)


def test_a_measurement_as_recorded() -> None:
    """Fractions and seconds, with the thresholds it was really held against."""
    found = verdict([0] * 17 + [6 * MINUTE] * 3, RULES, Mode.HYBRID)
    value = Measurement(found, RULES, "mark", Mode.HYBRID, ONE, replayed=31).to_json()
    assert value["winner"] == "hybrid"
    assert (value["demand"], value["contended"], value["contention"], value["median_wait_seconds"]) == (
        20,
        3,
        0.15,
        360,
    )
    assert value["thresholds"] == {"sessions": 20, "contention": 0.15, "wait_seconds": 360, "window_hours": 168}
    assert value["algorithm"] == "local-demand-replay/1"
    assert (value["fingerprint"], value["mode_before"], value["local_slots"], value["replayed"]) == (
        "mark",
        "hybrid",
        {"ollama": 1},
        31,
    )
