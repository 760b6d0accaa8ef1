"""Turns of projects and ageing, against oracles that reckon in fractions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from math import floor
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from vibey.domain.decide import Assign, Request, World, decide
from vibey.domain.effort import Effort
from vibey.domain.engine import EngineFacts, Tier, Usage
from vibey.domain.fairness import Queued, evolve_fairly
from vibey.domain.offer import Mode, Policy
from vibey.domain.pool import default_pool
from vibey.domain.requirement import Requirement
from vibey.domain.rotation import UNIT
from vibey.domain.turn import RIVALS, credits_of, is_turn, level, standing, turn, turns_key

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECTS = ("lab", "shop", "site", "web")
KEY = turns_key("main")

ages = st.sampled_from([1, 7_000, 60_000, 3_600_000])
instants = st.integers(0, 10**7)
priorities = st.integers(-5, 5)


@given(ages, st.tuples(priorities, instants), st.tuples(priorities, instants), instants)
def test_standing_orders_jobs_as_their_grown_priorities_would(
    age: int, one: tuple[int, int], other: tuple[int, int], later: int
) -> None:
    """At every instant at which both wait."""
    now = max(one[1], other[1]) + later
    first, second = (priority + Fraction(now - at, age) for priority, at in (one, other))
    assert (standing(*one, age) < standing(*other, age)) == (first > second)
    assert level(standing(*one, age), now, age) == floor(first)


@given(ages, priorities, instants, st.integers(1, 5), instants)
def test_a_job_is_overtaken_only_within_the_bound(age: int, priority: int, at: int, more: int, later: int) -> None:
    """By one of a higher priority that is enqueued less than so many ages after it."""
    overtaken = standing(priority + more, at + later, age) < standing(priority, at, age)
    assert overtaken == (later < more * age)


@given(priorities, instants, priorities, instants)
def test_without_ageing_only_priority_counts(one: int, at: int, other: int, then: int) -> None:
    """Whoever waited longer."""
    assert (standing(one, at, 0) < standing(other, then, 0)) == (one > other)
    assert level(standing(one, at, 0), then, 0) == one


worlds = st.builds(
    lambda slots, owed, weights, patience, cap: World(
        default_pool("main", ENGINES),
        tuple(replace(engine, slots=slots[engine.name]) for engine in ENGINES),
        Usage(),
        {(KEY, name): value for name, value in zip(PROJECTS, (*owed, -sum(owed)), strict=True)},
        policies={
            name: Policy(Mode.HYBRID, overflow_after_ms=patience, cap=cap, weight=weight)
            for name, weight in zip(PROJECTS, weights, strict=True)
        },
        caps=dict.fromkeys(PROJECTS, cap),
    ),
    st.fixed_dictionaries({name: st.integers(0, 3) for name in ("near", "desk", "plan")}),
    st.tuples(*[st.sampled_from([0, UNIT // 4, -UNIT // 2, UNIT])] * 3),
    st.tuples(*[st.integers(1, 4)] * 4),
    st.sampled_from([0, 1000]),
    st.integers(0, 2),
)
ENGINES = (
    EngineFacts("near", Tier.LOCAL, 0, 1, "near", 1_000_000),
    EngineFacts("desk", Tier.LOCAL, 1, 1, "desk", 2_000_000, capabilities=frozenset({"web"})),
    EngineFacts("plan", Tier.PAID, 2, 1, "plan", 1_000_000, capabilities=frozenset({"web"})),
)
jobs = st.tuples(
    st.sampled_from(PROJECTS),
    st.sampled_from([frozenset[str](), frozenset({"web"}), frozenset({"sight"})]),
    st.integers(0, 1),
    st.sampled_from([0, 1000]),
)


def queue_of(drawn: Sequence[tuple[str, frozenset[str], int, int]]) -> list[Queued]:
    """Jobs in queue order: the higher level first."""
    ordered = sorted(enumerate(drawn, 1), key=lambda each: (-each[1][2], each[0]))
    return [
        Queued(Request(number, 1, Requirement("main", project, Effort.LOW, needs), waited), grown)
        for number, (project, needs, grown, waited) in ordered
    ]


def by_turns(queue: list[Queued], world: World) -> list[tuple[int, str]]:
    """Jobs and engines as granted, reckoned with credits in fractions and every job asked about at every step."""
    owed = {name: Fraction(world.credits[KEY, name], UNIT) for name in PROJECTS}
    left, granted = list(queue), []
    while True:
        heads: dict[str, Queued] = {}
        for each in left:
            project = each.request.requirement.project
            if project not in heads and isinstance(decide(each.request, world), Assign):
                heads[project] = each
        if not heads:
            return granted
        highest = max(each.level for each in heads.values())
        taking = [name for name, each in heads.items() if each.level == highest]
        if len(taking) > 1:
            total = sum(world.policies[name].weight for name in taking)
            for name in taking:
                owed[name] += Fraction(world.policies[name].weight, total)
        winner = max(taking, key=lambda name: owed[name])
        if len(taking) > 1:
            owed[winner] -= 1
        answer = decide(heads[winner].request, world)
        assert isinstance(answer, Assign)
        world = world.after(answer)
        left.remove(heads[winner])
        granted.append((answer.request.job_id, answer.engine.name))


@given(worlds, st.lists(jobs, max_size=12))
def test_projects_take_turns_as_an_oracle_has_them(
    world: World, drawn: list[tuple[str, frozenset[str], int, int]]
) -> None:
    """Which jobs are granted, in which order, and where."""
    queue = queue_of(drawn)
    made = [each for each, _ in evolve_fairly(queue, world)]
    assert [(each.request.job_id, each.engine.name) for each in made] == by_turns(queue, world)


@given(worlds, st.lists(jobs, max_size=12))
def test_a_turn_is_made_again_from_what_its_decision_keeps(
    world: World, drawn: list[tuple[str, frozenset[str], int, int]]
) -> None:
    """From the request and the world alone; credits of projects sum to nothing, whatever was drawn."""
    for each, _ in evolve_fairly(queue_of(drawn), world):
        assert decide(each.request, world) == each
        assert [(step.pool, step.members) for step in each.turn] == [
            (lot.key, lot.members) for lot in each.request.lots
        ]
        assert not each.turn or each.turn[-1].chosen == each.request.requirement.project
        world = world.after(each)
        assert sum(credit for (pool, _), credit in world.credits.items() if pool == KEY) == 0


def many(weights: Sequence[int]) -> tuple[World, list[str]]:
    """A world with room for everybody, and a project for each weight."""
    names = [f"p{number:04}" for number in range(len(weights))]
    engine = replace(ENGINES[0], slots=10**6)
    policies = {name: Policy(weight=weight) for name, weight in zip(names, weights, strict=True)}
    return World(default_pool("main", (engine,)), (engine,), policies=policies), names


@given(st.lists(st.integers(1, 3), min_size=RIVALS - 2, max_size=3 * RIVALS))
@settings(max_examples=20)
def test_of_many_projects_each_gets_its_part(weights: list[int]) -> None:
    """Of two rounds each gets what its weight says, give or take two: the draws within a group and among groups."""
    world, names = many(weights)
    queue = [
        Queued(Request(number * 10 + place, 1, Requirement("main", name, Effort.LOW)), 0)
        for number, name in enumerate(names)
        for place in range(2 * weights[number] + 3)
    ]
    made = islice((each for each, _ in evolve_fairly(queue, world)), 2 * sum(weights))
    got = Counter(each.request.requirement.project for each in made)
    assert all(abs(got[name] - 2 * weight) <= 2 for name, weight in zip(names, weights, strict=True)), got


@given(st.integers(1, 400))
def test_no_decision_keeps_a_credit_of_each_of_many(count: int) -> None:
    """What is drawn stays small, whoever waits, and names the project whose job is granted."""
    world, names = many([1] * count)
    for _ in range(3):
        chosen, lots = turn("main", dict.fromkeys(names, 1), world.credits)
        assert all(len(lot.members) <= RIVALS for lot in lots)
        assert bool(lots) == (count > 1)
        answer = decide(Request(1, 1, Requirement("main", chosen, Effort.LOW), lots=lots), world)
        assert isinstance(answer, Assign)
        keys, members = credits_of("main", names)
        world = world.after(answer)
        moved = {(pool, member) for pool, member in world.credits if is_turn(pool)}
        assert moved <= {(pool, member) for pool in keys for member in members}
