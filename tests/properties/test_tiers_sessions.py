"""Sessions, full classes, and hours of the week: what moves a choice from one moment to the next."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracles
from tests.support.worlds import batches, requirements, seen, worlds
from vibey.domain.decide import Assign, Hold, Request, Wait, decide, decide_all, prospect
from vibey.domain.layer import Layer, LayerKind, Window, scheduled
from vibey.domain.offer import WaitReason
from vibey.domain.pool import Member, Pool, Select
from vibey.domain.rotation import UNIT
from vibey.domain.selection import Session, Turn, select
from vibey.domain.snapshot import trace_json, world_json, world_of

if TYPE_CHECKING:
    from fractions import Fraction

    from vibey.domain.decide import World
    from vibey.domain.requirement import Requirement
    from vibey.domain.selection import SessionKey

MILLION = 10**6
MINUTE = 60_000
NAMES = ("a", "b", "c", "x", "y")
TREE = Pool(
    "main",
    Select.TIERED,
    (*(Member(name, tier=2) for name in "abc"), *(Member(name, tier=1) for name in "xy")),
)
places = st.sets(st.sampled_from(NAMES)).map(frozenset)


@given(st.lists(st.tuples(places, places, st.sampled_from(["s", "t", None])), min_size=1, max_size=25))
def test_a_session_keeps_its_member_in_every_class(
    rounds: list[tuple[frozenset[str], frozenset[str], str | None]],
) -> None:
    """It is taken again while free, steps aside unforgotten while full, is replaced once gone; and always pays."""
    credit: dict[tuple[str, str], int] = {}
    memory: dict[SessionKey, str] = {}
    told: dict[tuple[str, str], str] = {}
    for opened, full, name in rounds:
        free = opened - full
        view = seen(
            dict.fromkeys(sorted(opened), MILLION), full=full & opened, session=Session(name, memory) if name else None
        )
        selection = select(TREE, view, credit)
        tier = "2" if free & set("abc") else "1"
        members = set("abc") if tier == "2" else set("xy")
        if selection is None:
            assert not free
            continue
        step = selection.steps[0]
        assert (step.label, step.chosen in free & members) == (tier, True)
        assert sum(step.after) == sum(step.before)
        assert step.after[step.members.index(step.chosen)] == step.before[step.members.index(step.chosen)] + (
            step.shares[step.members.index(step.chosen)] - UNIT
        )
        credit.update({("main", key): after for key, after in zip(step.members, step.after, strict=True)})
        if name is None:
            assert not step.remembers
            continue
        before = told.get((name, tier))
        if before in free:
            assert (step.chosen, step.turn) == (before, Turn.STICKY)
        elif before in opened:
            assert step.turn is Turn.YIELDED
        else:
            assert step.turn is Turn.DRAWN
        if before not in opened or before in free:
            told[name, tier] = memory["main", tier, name] = step.chosen


@given(worlds(), batches(largest=30))
def test_memories_are_what_the_steps_say(world: World, requests: list[Request]) -> None:
    """The world a batch leaves remembers the last pick of each class for each session, but for those that yielded."""
    expected = dict(world.sessions)
    for decision in decide_all(requests, world):
        session = decision.request.session
        if isinstance(decision, Assign) and session is not None:
            for step in decision.selection.steps:
                if step.remembers and step.turn is not Turn.YIELDED:
                    expected[step.pool, step.label, session] = step.chosen
        world = world.after(decision)
    assert world.sessions == expected


@given(worlds(patient=True), requirements, st.integers(0, 5))
def test_a_pool_that_waits_never_leads_past_a_full_class(world: World, requirement: Requirement, waited: int) -> None:
    """Whoever is granted could not have been kept for a better class; whoever waits for one is told so."""
    decision = decide(Request(1, 1, requirement, waited), world)
    assert not isinstance(decision, Hold)
    takers = set(oracles.takers(requirement, world.engines, world.usage))
    offered, _ = oracles.preferred(requirement, world.engines)
    opened = {engine.name for engine in offered}
    reached = set(reach(world.pool, opened, takers)) if not any(each.demoted for each in world.engines) else None
    if isinstance(decision, Assign):
        assert decision.engine.name in takers
        assert reached is None or decision.engine.name in reached
    elif takers:
        assert decision.reason is WaitReason.POOL_TIER_FULL
        assert reached is None or not reached
    found = prospect(world.survey(requirement), world, Request(0, 1, requirement))
    assert (found.room > 0) == isinstance(decision, Assign)
    if isinstance(decision, Wait):
        assert found.reason is decision.reason


def reach(pool: Pool, opened: set[str], free: set[str]) -> list[str]:
    """The free engines a walk may come to: of each pool the first class that decides, told with plain sorting."""
    found: list[str] = []
    for members in ranked(pool):
        here = [
            name
            for member in members
            for name in ([member.key] if member.pool is None else reach(member.pool, opened, free))
            if name in free or member.pool is not None
        ]
        found += here
        if pool.waits and any(set(below(member)) & opened for member in members):
            return found
    return found


def ranked(pool: Pool) -> list[list[Member]]:
    """A pool's members by rank, best first."""
    from tests.support.tierwalk import standing

    if pool.select is Select.WEIGHTED:
        return [list(pool.members)]
    ranks: dict[Fraction | int, list[Member]] = {}
    for place, member in enumerate(pool.members):
        if pool.select is Select.ORDERED:
            ranks[-place] = [member]
        else:
            ranks.setdefault(standing(member) if pool.by_weight else member.tier or 0, []).append(member)
    return [ranks[key] for key in sorted(ranks, reverse=True)]


def below(member: Member) -> list[str]:
    """Engines under a member."""
    return [member.key] if member.pool is None else [name for each in member.pool.members for name in below(each)]


@given(worlds(patient=True), batches(largest=20))
def test_the_same_inputs_give_the_same_bytes(world: World, requests: list[Request]) -> None:
    """15: decided twice, and once more on what was stored, the traces are equal to the byte."""

    def written(at: World) -> str:
        return json.dumps([trace_json(each) for each in decide_all(requests, at) if isinstance(each, Assign)])

    stored = json.loads(json.dumps(world_json(world)))
    assert written(world) == written(world) == written(world_of(stored))


windows = st.builds(
    Window,
    name=st.just("w"),
    member=st.just("a"),
    factor=st.just(500_000),
    start=st.integers(0, 1439),
    end=st.integers(0, 1440),
    days=st.sets(st.integers(0, 6)).map(frozenset),
    until_ms=st.none() | st.integers(0, 20 * 1440).map(lambda minute: minute * MINUTE),
)


@given(windows, st.integers(0, 20 * 1440 - 1), st.sampled_from([0, 1, MINUTE - 1]))
def test_a_window_is_open_minute_by_minute(window: Window, minute: int, offset: int) -> None:
    """From its start, which belongs to it, to its end, which does not, on the days it starts on, until it is over."""
    now = minute * MINUTE + offset
    day, at = divmod(minute, 1440)
    length = window.end - window.start
    length += 1440 if length <= 0 else 0
    # 1970-01-01 was a Thursday. A window that is open from yesterday and from today ends with the later one.
    begun = [day - back for back in (0, 1) if 0 <= back * 1440 + at - window.start < length]
    open_ones = [start for start in begun if (start + 3) % 7 in window.days]
    opened = bool(open_ones) and (window.until_ms is None or now < window.until_ms)
    found = scheduled([window, Window("v", "b", 1, days=frozenset())], now)
    if not opened:
        assert found == {}
        return
    closes = (open_ones[0] * 1440 + window.start + length) * MINUTE
    until = closes if window.until_ms is None else min(closes, window.until_ms)
    assert found == {"a": (Layer(LayerKind.SCHEDULE, 500_000, until, "w"),)}
    assert found.keys() == scheduled([window, window], now).keys()
    assert len(scheduled([window, window], now)["a"]) == 2


def test_the_group_at_a_tenth_turns_with_the_leaf_at_a_tenth() -> None:
    """Three leaves at 0.1 and a direct one at 0.1 are one class, though (0.1 + 0.1 + 0.1) / 3 is not 0.1 in floats."""
    tenth = (Layer(LayerKind.SCHEDULE, 100_000),)
    assert (0.1 + 0.1 + 0.1) / 3 != 0.1
    group = Pool("group", Select.WEIGHTED, tuple(Member(name, layers=tenth) for name in "abc"))
    pool = Pool("main", Select.TIERED, (Member("group", group), Member("d", layers=tenth)), by_weight=True)
    credit: dict[tuple[str, str], int] = {}
    picks = []
    for _ in range(12):
        selection = select(pool, seen(dict.fromkeys("abcd", MILLION)), credit)
        assert selection is not None
        picks.append(selection.engine)
        for step in selection.steps:
            credit.update({(step.pool, key): after for key, after in zip(step.members, step.after, strict=True)})
    assert "".join(picks) == "adbdcdadbdcd"


def test_why_credits_are_whole_and_compared_with_tolerance() -> None:
    """Float credits, and whole ones compared to the last digit, break ties unlike exact fractions; ours never do."""
    chance, unlike = Random(5), {"floats": 0, "to the digit": 0, "ours": 0}
    for _ in range(300):
        weights = [chance.randint(1, 1000) for _ in range(chance.randint(2, 6))]
        exact = oracles.swrr(weights, 300)
        unlike["floats"] += floats(weights, 300) != exact
        unlike["to the digit"] += to_the_digit(weights, 300) != exact
        unlike["ours"] += ours(weights, 300) != exact
    assert unlike["ours"] == 0
    assert unlike["floats"] > 0
    assert unlike["to the digit"] > 0


def floats(weights: list[int], draws: int) -> list[int]:
    """The rotation as one would write it first."""
    credit, picks = [0.0] * len(weights), []
    for _ in range(draws):
        credit = [owed + weight / sum(weights) for owed, weight in zip(credit, weights, strict=True)]
        picks.append(credit.index(max(credit)))
        credit[picks[-1]] -= 1
    return picks


def to_the_digit(weights: list[int], draws: int) -> list[int]:
    """The rotation in whole units of 10^-12, without tolerance."""
    shares = [weight * UNIT // sum(weights) for weight in weights]
    shares[0] += UNIT - sum(shares)
    credit, picks = [0] * len(weights), []
    for _ in range(draws):
        credit = [owed + share for owed, share in zip(credit, shares, strict=True)]
        picks.append(credit.index(max(credit)))
        credit[picks[-1]] -= UNIT
    return picks


def ours(weights: list[int], draws: int) -> list[int]:
    """The rotation in force."""
    names = [f"e{number}" for number in range(len(weights))]
    pool = Pool("main", Select.WEIGHTED, tuple(Member(name) for name in names))
    view, credit, picks = seen(dict(zip(names, weights, strict=True))), dict[tuple[str, str], int](), []
    for _ in range(draws):
        selection = select(pool, view, credit)
        assert selection is not None
        picks.append(names.index(selection.engine))
        step = selection.steps[0]
        credit = {("main", key): after for key, after in zip(step.members, step.after, strict=True)}
    return picks
