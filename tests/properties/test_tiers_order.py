"""Which engine a pool tree comes to: order, demotion, fairness and credits, against a walker of its own."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracles import harmonic, swrr
from tests.support.tierwalk import Ambiguous, Walker, leaves, standing
from tests.support.worlds import NAMES, seen
from vibey.domain.layer import Layer, LayerKind
from vibey.domain.pool import Member, Pool, Select
from vibey.domain.preview import attempt_order, expected_shares
from vibey.domain.rotation import UNIT
from vibey.domain.selection import Status, select

if TYPE_CHECKING:
    from vibey.domain.selection import Field, Selection, Step

MILLION = 10**6
small = st.integers(1, 5).map(lambda weight: weight * MILLION)
layer = st.builds(Layer, st.sampled_from(LayerKind), st.sampled_from([100_000, 300_000, 500_000, 2_000_000]))
subsets = st.sets(st.sampled_from(NAMES)).map(frozenset)


@st.composite
def plain_trees(draw: st.DrawFn, names: list[str], key: str = "main", depth: int = 2) -> Pool:
    """A tree over these engines with small weights, so that exact ties are common and near ones rare."""
    members: list[Member] = []
    rest = list(names)
    while rest:
        size = draw(st.integers(1, len(rest)))
        group, rest = rest[:size], rest[size:]
        below = None
        if depth and draw(st.booleans()):
            below = draw(plain_trees(group, f"{key}.{len(members)}", depth - 1))
        for name in [below.key] if below else group:
            layers = (draw(layer),) if draw(st.sampled_from([False, False, True])) else ()
            members.append(Member(name, below, draw(small), draw(st.integers(0, 2)), layers))
    return Pool(key, draw(st.sampled_from(Select)), tuple(members), draw(st.booleans()))


pools = st.permutations(NAMES).flatmap(plain_trees)
EVEN = dict.fromkeys(NAMES, MILLION)


def at(opened: frozenset[str], demoted: frozenset[str] = frozenset(), full: frozenset[str] = frozenset()) -> Field:
    """A field of equal engines, of which these are open."""
    return seen({name: MILLION for name in NAMES if name in opened}, demoted=demoted & opened, full=full & opened)


def paid(credit: dict[tuple[str, str], int], selection: Selection) -> None:
    """Write a selection's credits."""
    for step in selection.steps:
        credit.update({(step.pool, key): after for key, after in zip(step.members, step.after, strict=True)})


def tied(step: Step) -> bool:
    """Whether declared order had a say in this step."""
    owed = sorted((credit + share for credit, share in zip(step.before, step.shares, strict=True)), reverse=True)
    return len(owed) > 1 and owed[0] - owed[1] < UNIT // MILLION


@given(pools, st.lists(st.tuples(subsets, subsets), min_size=1, max_size=12))
def test_every_walk_is_the_walker_s(pool: Pool, rounds: list[tuple[frozenset[str], frozenset[str]]]) -> None:
    """1, 2, 3, 4, 7: under any churn of open and demoted engines each pick is that of exact fractions."""
    walker, credit = Walker(pool, EVEN), dict[tuple[str, str], int]()
    for opened, demoted in rounds:
        try:
            expected = walker.draw(opened, demoted)
        except Ambiguous:
            return
        selection = select(pool, at(opened, demoted), credit)
        assert (selection.engine if selection else None) == expected
        assert (selection is None) == (not opened)
        if selection is not None:
            paid(credit, selection)
        for key, owed in walker.credit.items():
            assert abs(Fraction(credit.get(key, 0), UNIT) - owed) < Fraction(len(rounds) * 8, UNIT)
    for node in pool.nested():
        assert sum(value for (name, _), value in credit.items() if name == node.key) == 0


@given(pools, subsets, subsets)
def test_one_dispatch_turns_to_each_open_engine_once_and_never_climbs(
    pool: Pool, opened: frozenset[str], demoted: frozenset[str]
) -> None:
    """1, 11: `attempt_order` names each open engine once; each is the pick once those before it are tried."""
    order = attempt_order(pool, at(opened, demoted), {})
    assert sorted(order) == sorted(opened)
    walker = Walker(pool, EVEN)
    for place, name in enumerate(order):
        rest = opened - set(order[:place])
        node: Pool | None = pool
        while node is not None:
            best = walker.order(node, rest, demoted)[0]
            member = next((each for each in best if name in leaves(each)), None)
            assert member is not None
            node = member.pool


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=8), st.data())
def test_a_flat_pool_is_sorted_by_demotion_and_weight(members: list[tuple[int, bool]], data: st.DataObject) -> None:
    """3, 4: the order of one dispatch through a flat pool tiered by weight is a plain sort."""
    names = [f"e{number}" for number in range(len(members))]
    each = dict(zip(names, members, strict=True))
    pool = Pool(
        "main", Select.TIERED, tuple(Member(name, None, each[name][0] * MILLION) for name in names), by_weight=True
    )
    opened = frozenset(data.draw(st.sets(st.sampled_from(names), min_size=1)))
    demoted = frozenset(name for name in names if each[name][1])
    order = attempt_order(pool, at(opened, demoted), {})
    assert order == sorted(opened, key=lambda name: (name in demoted and not opened <= demoted, -each[name][0], name))


@given(pools, subsets)
def test_demoting_all_is_demoting_none(pool: Pool, opened: frozenset[str]) -> None:
    """4: demotion only orders the demoted behind the others."""
    assert attempt_order(pool, at(opened, opened), {}) == attempt_order(pool, at(opened), {})
    assert expected_shares(pool, at(opened, opened)) == expected_shares(pool, at(opened))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 300))
def test_picks_stay_within_the_harmonic_bound(weights: list[int], draws: int) -> None:
    """5, 6: −(H_k − 1) ≤ picks − n·share < 1 after every draw, and after W draws credits are back at 0."""
    names = [f"e{number}" for number in range(len(weights))]
    pool = Pool("main", Select.WEIGHTED, tuple(Member(name) for name in names))
    view = seen({name: weight * MILLION for name, weight in zip(names, weights, strict=True)})
    credit: dict[tuple[str, str], int] = {}
    picks = dict.fromkeys(names, 0)
    total, lag = sum(weights), harmonic(len(weights)) - 1
    for number in range(1, max(draws, total) + 1):
        selection = select(pool, view, credit)
        assert selection is not None
        picks[selection.engine] += 1
        paid(credit, selection)
        for name, weight in zip(names, weights, strict=True):
            ahead = picks[name] - Fraction(number * weight, total)
            assert -lag <= ahead + Fraction(number, UNIT)
            assert ahead < 1
        if number % total == 0:
            assert all(abs(value) <= number for value in credit.values())


@given(pools, st.randoms(use_true_random=False), st.lists(subsets, min_size=1, max_size=10))
def test_the_order_members_are_written_in_matters_only_for_ties(
    pool: Pool, chance: object, rounds: list[frozenset[str]]
) -> None:
    """8: with the keys kept, members of a weighted or tiered pool may be written in any order, but for ties."""

    def shuffled(node: Pool) -> Pool:
        members = [
            Member(each.key, shuffled(each.pool) if each.pool else None, each.weight, each.tier, each.layers)
            for each in node.members
        ]
        if node.select is not Select.ORDERED:
            chance.shuffle(members)  # type: ignore[attr-defined]
        return Pool(node.key, node.select, tuple(members), node.by_weight, node.waits)

    other = shuffled(pool)
    one, two = dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for opened in rounds:
        first, second = select(pool, at(opened), one), select(other, at(opened), two)
        assert (first is None) == (second is None)
        if first is None or second is None:
            continue
        if any(tied(step) for step in first.steps):
            return
        assert first.engine == second.engine
        paid(one, first)
        paid(two, second)
    assert one.keys() == two.keys()
    assert all(abs(one[key] - two[key]) <= 8 * len(rounds) for key in one)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 10**6), st.integers(0, 40))
def test_rescaling_weights_midway_changes_nothing(weights: list[int], scale: int, when: int) -> None:
    """9: a pool's weights times a constant, also with live credits, leave the sequence as it was."""
    names = [f"e{number}" for number in range(len(weights))]
    credit: dict[tuple[str, str], int] = {}
    sequence = []
    for number in range(60):
        factor = scale if number >= when else 1
        pool = Pool(
            "main",
            Select.WEIGHTED,
            tuple(Member(name, None, weight * factor) for name, weight in zip(names, weights, strict=True)),
        )
        selection = select(pool, at(frozenset(names)), credit)
        assert selection is not None
        sequence.append(names.index(selection.engine))
        paid(credit, selection)
    assert sequence == swrr(weights, 60)


@given(st.permutations([100_000, 300_000, 500_000, 700_000]), st.permutations([100_000, 300_000, 500_000, 700_000]))
def test_equal_products_share_one_class_in_any_order(one: list[int], other: list[int]) -> None:
    """10: layers in any order, and the same factor through the mean of a group, make one class."""

    def laid(factors: list[int]) -> tuple[Layer, ...]:
        return tuple(Layer(LayerKind.SCHEDULE, factor) for factor in factors)

    group = Pool("group", Select.WEIGHTED, tuple(Member(name, layers=laid(one)) for name in "xyz"))
    pool = Pool(
        "main",
        Select.TIERED,
        (Member("group", group), Member("a", None, MILLION, layers=laid(other)), Member("b", None, MILLION)),
        by_weight=True,
    )
    assert [[member.key for member in each.members] for each in pool.classes] == [["b"], ["group", "a"]]


@given(pools, subsets, subsets)
def test_closing_an_engine_that_expects_nothing_changes_nothing(
    pool: Pool, opened: frozenset[str], demoted: frozenset[str]
) -> None:
    """12: whatever is idle may go; neither the pick nor any credit is another."""
    view = at(opened, demoted)
    before = select(pool, view, {})
    idle = opened - expected_shares(pool, view).keys()
    for name in sorted(idle):
        after = select(pool, at(opened - {name}, demoted), {})
        assert before is not None
        assert after is not None
        assert after.engine == before.engine
        assert [(step.members, step.after) for step in after.steps] == [
            (step.members, step.after) for step in before.steps
        ]


@given(pools, subsets, subsets, subsets)
def test_expected_shares_are_the_walker_s(
    pool: Pool, opened: frozenset[str], demoted: frozenset[str], full: frozenset[str]
) -> None:
    """13: mass 1 at the root, handed to the active class by share; 0 for everybody else, and empty when all is full."""
    walker, free = Walker(pool, EVEN), opened - full
    # Full engines count where demotion is judged; the walker knows only open ones.
    demoted = demoted if not full & opened else frozenset()
    expected: dict[str, Fraction] = {}

    def hand_down(node: Pool, mass: Fraction) -> None:
        classes = walker.order(node, free, demoted)
        if not classes:
            return
        for member, share in zip(classes[0], walker.shares(node, classes[0], free, demoted), strict=True):
            if member.pool is None:
                expected[member.key] = mass * share
            else:
                hand_down(member.pool, mass * share)

    hand_down(pool, Fraction(1))
    found = expected_shares(pool, at(opened, demoted, full))
    assert found.keys() == expected.keys()
    assert all(abs(Fraction(found[name], UNIT) - expected[name]) < Fraction(9, UNIT) for name in expected)
    assert not expected or UNIT - len(NAMES) <= sum(found.values()) <= UNIT


@given(pools, subsets, subsets, subsets)
def test_a_look_spends_nothing_and_only_pools_on_the_way_are_charged(
    pool: Pool, opened: frozenset[str], demoted: frozenset[str], full: frozenset[str]
) -> None:
    """2, 11: closed and full members and pools off the path keep their credits; the same question, the same answer."""
    view = at(opened, demoted, full)
    selection = select(pool, view, {})
    assert selection == select(pool, view, {})
    if selection is None:
        assert not opened - full
        return
    assert selection.engine in opened - full
    node: Pool | None = pool
    for step in selection.steps:
        assert node is not None
        assert step.pool == node.key
        for label, found in step.skipped:
            assert found in {Status.CLOSED, Status.FULL}, label
        for key in step.members:
            member = next(each for each in node.members if each.key == key)
            assert set(leaves(member)) & (opened - full)
        node = node.below(step.chosen)
    assert node is None


@given(st.lists(st.tuples(small, st.lists(layer, max_size=3)), min_size=1, max_size=6))
def test_a_member_that_goes_does_not_lift_its_pool(members: list[tuple[int, list[Layer]]]) -> None:
    """A nested pool's standing weight is the mean over all its leaves, whoever is open; so a walk cannot move it."""
    leaves_ = tuple(Member(f"n{n}", None, weight, layers=tuple(layers)) for n, (weight, layers) in enumerate(members))
    nested = Member("group", Pool("group", Select.WEIGHTED, leaves_))
    assert nested.standing == standing(nested)
    pool = Pool("main", Select.TIERED, (nested, Member("direct", None, int(nested.standing * MILLION))), by_weight=True)
    order = attempt_order(pool, seen(dict.fromkeys([*(each.key for each in leaves_), "direct"], MILLION)), {})
    assert sorted(order) == sorted([*(each.key for each in leaves_), "direct"])
    if nested.standing > int(nested.standing * MILLION) / Fraction(MILLION):
        assert order[-1] == "direct"
