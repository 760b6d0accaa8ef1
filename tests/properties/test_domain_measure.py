"""What holds of measurements: the replay agrees with a naive one, and verdicts move one way only."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.measure import Demand, Judge, Verdict, fingerprint, judge, verdict, would_waits
from vibey.domain.offer import Mode

ENGINES = ("a", "b", "c", "gone")
MILLION = 1_000_000

eligible = st.sets(st.sampled_from(ENGINES)).map(frozenset)
slots = st.dictionaries(st.sampled_from(ENGINES[:3]), st.integers(0, 3))
attempts = st.builds(
    Demand,
    job_id=st.integers(1, 9),
    attempt=st.integers(1, 3),
    project=st.sampled_from(["p", "q"]),
    standing=st.integers(-1, 1),
    looked_at_ms=st.integers(0, 30),
    running_ms=st.integers(0, 12),
    eligible=eligible,
)
demands = st.lists(attempts, max_size=25)
distinct = st.lists(attempts, max_size=25, unique_by=lambda each: (each.job_id, each.attempt))
judges = st.builds(
    Judge,
    overflow_after_ms=st.integers(0, 20),
    window_hours=st.integers(1, 200),
    min_sessions=st.integers(1, 10),
    min_contention=st.sampled_from([0, 1, 250_000, 333_333, 500_000, MILLION]),
)
modes = st.sampled_from(Mode)
waitings = st.lists(st.integers(0, 40), max_size=25)


def naive(demand: list[Demand], count: dict[str, int]) -> dict[tuple[int, int], int]:
    """Walk through time a millisecond at a time, looking at everything each time; would-waits by job and attempt."""
    queue = [each for each in demand if any(count.get(name, 0) for name in each.eligible)]
    held: list[tuple[str, int]] = []
    waits: dict[tuple[int, int], int] = {}
    now = 0
    while queue:
        while True:
            held = [(name, end) for name, end in held if end > now]
            due = sorted(
                (each for each in queue if each.looked_at_ms <= now),
                key=lambda each: (each.standing, each.job_id, each.attempt),
            )
            started = False
            for each in due:
                places = sorted(each.eligible)
                free = [name for name in places if count.get(name, 0) > sum(name == other for other, _ in held)]
                if free:
                    queue.remove(each)
                    held.append((free[0], now + each.running_ms))
                    waits[each.job_id, each.attempt] = now - each.looked_at_ms
                    started = True
            if not (started and any(end <= now for _, end in held)):
                break
        now += 1
    return waits


@given(distinct, slots)
def test_the_replay_agrees_with_a_naive_one(demand: list[Demand], count: dict[str, int]) -> None:
    """Event by event or millisecond by millisecond, everybody waits as long."""
    replayed = {(each.job_id, each.attempt): wait for each, wait in would_waits(demand, count)}
    assert replayed == naive(demand, count)


@given(demands, slots)
def test_everybody_who_can_be_served_is_and_nobody_waits_less_than_nothing(
    demand: list[Demand], count: dict[str, int]
) -> None:
    """The replay is total: each attempt with an engine that has slots starts once, at or after its first look."""
    served = would_waits(demand, count)
    possible = [each for each in demand if any(count.get(name, 0) for name in each.eligible)]
    assert sorted(map(repr, possible)) == sorted(repr(each) for each, _ in served)
    assert all(wait >= 0 for _, wait in served)


@given(demands, slots, st.sampled_from(["p", "q", "nobody"]), judges, modes)
def test_a_verdict_is_total_and_consistent(
    demand: list[Demand], count: dict[str, int], project: str, rules: Judge, current: Mode
) -> None:
    """There always is one; its numbers fit one another, and too few attempts never choose hybrid."""
    found = judge(demand, count, project, rules, current)
    assert 0 <= found.contended <= found.demand <= len(demand)
    assert (found.contended > 0) == (found.median_wait_ms > 0)
    assert found.contention == (found.contended * MILLION // found.demand if found.demand else 0)
    assert found.reason
    if found.demand < rules.min_sessions:
        assert found.winner is Mode.SINGLETON


@given(demands.flatmap(lambda demand: st.tuples(st.just(demand), st.permutations(demand))), slots, judges, modes)
def test_the_order_of_input_changes_nothing(
    orders: tuple[list[Demand], list[Demand]], count: dict[str, int], rules: Judge, current: Mode
) -> None:
    """Neither the order of attempts nor that of engines matters, even among attempts alike in job and number."""
    turned = dict(reversed(count.items()))
    assert judge(orders[0], count, "p", rules, current) == judge(orders[1], turned, "p", rules, current)


def is_hybrid(found: Verdict) -> bool:
    """Whether hybrid won."""
    return found.winner is Mode.HYBRID


@given(waitings, judges, modes, st.integers(1, 5))
def test_longer_waits_never_lose_hybrid(waits: list[int], rules: Judge, current: Mode, factor: int) -> None:
    """Where hybrid wins, it wins with every wait longer."""
    if is_hybrid(verdict(waits, rules, current)):
        assert is_hybrid(verdict([wait * factor for wait in waits], rules, current))


@given(waitings, judges, modes, st.data())
def test_more_contention_never_loses_hybrid(waits: list[int], rules: Judge, current: Mode, data: st.DataObject) -> None:
    """Where hybrid wins, it wins with more attempts contended that wait as long as the median, or more of them."""
    found = verdict(waits, rules, current)
    if is_hybrid(found):
        chosen = data.draw(st.lists(st.booleans(), min_size=len(waits), max_size=len(waits)))
        long = max(found.median_wait_ms, 1)
        more = [wait or (long if pick else 0) for wait, pick in zip(waits, chosen, strict=True)]
        assert is_hybrid(verdict(more, rules, current))
        assert is_hybrid(verdict([*waits, long], rules, current))


@given(waitings, judges)
def test_being_in_hybrid_never_makes_it_harder(waits: list[int], rules: Judge) -> None:
    """Whatever chooses hybrid from singleton also keeps it."""
    if is_hybrid(verdict(waits, rules, Mode.SINGLETON)):
        assert is_hybrid(verdict(waits, rules, Mode.HYBRID))


@given(judges, st.dictionaries(st.sampled_from(ENGINES), st.integers(1, 3), min_size=1), st.text(max_size=3))
def test_the_fingerprint_feels_every_input(rules: Judge, count: dict[str, int], version: str) -> None:
    """A change of any one thing changes it; the order of engines does not."""
    name = next(iter(count))
    others = [
        fingerprint({**count, name: count[name] + 1}, rules, version),
        fingerprint({**count, "new": 1}, rules, version),
        fingerprint({key: value for key, value in count.items() if key != name}, rules, version),
        fingerprint(count, replace(rules, overflow_after_ms=rules.overflow_after_ms + 1), version),
        fingerprint(count, replace(rules, window_hours=rules.window_hours + 1), version),
        fingerprint(count, replace(rules, min_sessions=rules.min_sessions + 1), version),
        fingerprint(count, replace(rules, min_contention=rules.min_contention + 1), version),
        fingerprint(count, rules, version + "+"),
    ]
    mark = fingerprint(count, rules, version)
    assert len({mark, *others}) == len(others) + 1
    assert fingerprint(dict(reversed(count.items())), rules, version) == mark
