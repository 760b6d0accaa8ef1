"""What holds of walks down pool trees."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support import oracles
from tests.support.worlds import NAMES, credit_keys, credits_of_members, seen, trees
from vibey.domain.pool import Member, Pool, Select
from vibey.domain.rotation import UNIT
from vibey.domain.selection import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.domain.selection import Selection

open_weights = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 10_000_000), max_size=len(NAMES))
pools = st.permutations(NAMES).flatmap(trees)


def first_class(pool: Pool, weights: dict[str, int]) -> list[str]:
    """Keys of the members a pool may choose among: the open ones of its best class that has any, in declared order."""
    live = [member for member in pool.members if opened(member) & weights.keys()]
    if pool.select is Select.ORDERED:
        live = live[:1]
    elif pool.select is Select.TIERED:
        best = max((rank(pool, member) for member in live), default=0)
        live = [member for member in live if rank(pool, member) == best]
    return [member.key for member in live]


def rank(pool: Pool, member: Member) -> Fraction | int:
    """What orders a tiered pool: the member's tier, or its weight with its layers and, for a pool, its leaves' mean."""
    if not pool.by_weight:
        return member.tier or 0
    own = Fraction(10**6 if member.weight is None else member.weight, 10**6) * laid(member)
    within = list(leaf_factors(member.pool)) if member.pool else [Fraction(1)]
    return own * sum(within) / len(within)


def laid(member: Member) -> Fraction:
    """A member's layers as one exact factor."""
    factor = Fraction(1)
    for layer in member.layers:
        factor *= Fraction(layer.factor, 10**6)
    return factor


def leaf_factors(pool: Pool) -> Iterator[Fraction]:
    """The layers on the way to each leaf of a pool."""
    for member in pool.members:
        for factor in leaf_factors(member.pool) if member.pool else [Fraction(1)]:
            yield laid(member) * factor


def opened(member: Member) -> set[str]:
    """Every engine under a member."""
    if member.pool is None:
        return {member.key}
    return set().union(*(opened(each) for each in member.pool.members))


def apply(credit: dict[tuple[str, str], int], selection: Selection) -> None:
    """Write a selection's credits."""
    for step in selection.steps:
        credit.update({(step.pool, key): after for key, after in zip(step.members, step.after, strict=True)})


@given(pools, open_weights, st.data())
def test_a_walk_takes_the_first_open_class_at_every_pool(
    pool: Pool, weights: dict[str, int], data: st.DataObject
) -> None:
    """It ends at an open engine exactly when there is one, by a connected path, through best classes only."""
    live = data.draw(st.just({}) | st.fixed_dictionaries(dict.fromkeys(credit_keys(pool), credits_of_members)))
    selection = select(pool, seen(weights), live)
    assert (selection is None) == (not weights)
    if selection is None:
        return
    assert selection.engine in weights
    node: Pool | None = pool
    for step in selection.steps:
        assert node is not None
        assert step.pool == node.key
        assert list(step.members) == first_class(node, weights)
        assert step.chosen in step.members
        node = next(member.pool for member in node.members if member.key == step.chosen)
    assert node is None
    assert selection.steps[-1].chosen == selection.engine


@given(pools, st.lists(open_weights, min_size=1, max_size=20))
def test_credits_of_every_pool_sum_to_zero_under_churn(pool: Pool, rounds: list[dict[str, int]]) -> None:
    """Whatever opens, closes, fills or changes weight: per member credit = Σ shares − picks, and per pool Σ = 0."""
    credit: dict[tuple[str, str], int] = {}
    owed: Counter[tuple[str, str]] = Counter()
    for weights in rounds:
        selection = select(pool, seen(weights), credit)
        for step in selection.steps if selection else ():
            assert list(step.before) == [credit.get((step.pool, key), 0) for key in step.members]
            for member, share in zip(step.members, step.shares, strict=True):
                owed[step.pool, member] += share
            owed[step.pool, step.chosen] -= UNIT
        if selection:
            apply(credit, selection)
    totals: defaultdict[str, int] = defaultdict(int)
    for key, value in credit.items():
        assert value == owed[key]
        totals[key[0]] += value
    assert not any(totals.values())


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 2)), min_size=1, max_size=8), st.integers(1, 1000))
def test_tiered_is_weighted_within_the_highest_open_tier(members: list[tuple[int, int]], scale: int) -> None:
    """The best pool tier alone is drawn from, in exact rotation by effective weight, at any scale of weights."""
    leaves = tuple(Member(f"e{index}", tier=tier) for index, (_, tier) in enumerate(members))
    pool = Pool("main", Select.TIERED, leaves)
    weights = {f"e{index}": weight * scale for index, (weight, _) in enumerate(members)}
    best = max(tier for _, tier in members)
    within = [index for index, (_, tier) in enumerate(members) if tier == best]
    expected = oracles.swrr([members[index][0] for index in within], 100)
    credit: dict[tuple[str, str], int] = {}
    for turn in expected:
        selection = select(pool, seen(weights), credit)
        assert selection is not None
        assert selection.engine == f"e{within[turn]}"
        apply(credit, selection)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_nested_pool_rotates_as_one_member_and_then_within(outer: list[int], inner: list[int]) -> None:
    """A pool among engines takes the share of its own weight, and its engines rotate over the draws that enter it."""
    nested = Pool("spare", Select.WEIGHTED, tuple(Member(f"n{index}") for index in range(len(inner))))
    leaves = tuple(Member(f"o{index}") for index in range(len(outer)))
    pool = Pool("main", Select.WEIGHTED, (*leaves, Member("spare", nested, weight=3_000_000)))
    weights = {f"o{index}": weight * 1_000_000 for index, weight in enumerate(outer)}
    weights |= {f"n{index}": weight * 1_000_000 for index, weight in enumerate(inner)}
    entered = iter(oracles.swrr(inner, 120))
    expected = [f"o{turn}" if turn < len(outer) else f"n{next(entered)}" for turn in oracles.swrr([*outer, 3], 120)]
    credit: dict[tuple[str, str], int] = {}
    for name in expected:
        selection = select(pool, seen(weights), credit)
        assert selection is not None
        assert selection.engine == name
        apply(credit, selection)


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 10**6), min_size=1), st.data())
def test_a_closed_member_neither_wins_nor_accrues(weights: dict[str, int], data: st.DataObject) -> None:
    """Frozen while away, a member comes back owed exactly what it was owed before."""
    pool = Pool("main", Select.WEIGHTED, tuple(Member(name) for name in NAMES))
    credit: dict[tuple[str, str], int] = {}
    away = data.draw(st.sampled_from(sorted(weights)))
    rest = {name: weight for name, weight in weights.items() if name != away}
    assume(rest)
    for opened_now in (weights, rest, rest, rest):
        before = credit.get(("main", away), 0)
        selection = select(pool, seen(opened_now), credit)
        assert selection is not None
        apply(credit, selection)
        if opened_now is rest:
            assert selection.engine != away
            assert credit.get(("main", away), 0) == before


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_a_member_s_own_weight_replaces_the_engine_s(own: int, other: int) -> None:
    """The weight a pool states decides the share, whatever the engine weighs by itself."""
    pool = Pool("main", Select.WEIGHTED, (Member("e0", weight=own), Member("e1")))
    selection = select(pool, seen({"e0": 5, "e1": other}), {})
    assert selection is not None
    share = Fraction(selection.steps[0].shares[0], UNIT)
    assert abs(share - Fraction(own, own + other)) <= Fraction(1, UNIT)
    assert selection.steps[0].members == ("e0", "e1")
