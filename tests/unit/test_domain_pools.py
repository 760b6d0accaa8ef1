"""Pools, layers and offers at their edges: each case is one that a careless change would get wrong."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.support.worlds import plain_engine, plain_request, seen
from vibey.domain.assessment import survey
from vibey.domain.engine import Tier
from vibey.domain.layer import DAY_MS, Layer, LayerKind, Window
from vibey.domain.offer import Barred, Fallback, Held, Load, Mode, Offer, Policy, WaitReason, Why, offer
from vibey.domain.pool import Member, Pool, Select
from vibey.domain.preview import attempt_order, expected_shares
from vibey.domain.rotation import TIE, UNIT, draw
from vibey.domain.selection import Session, Status, Turn, select, within_reach

MINUTE = 60_000
MONDAY = 4 * DAY_MS
HALF = (Layer(LayerKind.SCHEDULE, 500_000),)
FREE, FULL, CLOSED = Status.FREE, Status.FULL, Status.CLOSED


def leaves(names: str, **changes: int) -> tuple[Member, ...]:
    """One member a letter."""
    return tuple(Member(name, **changes) for name in names)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "days", "minute", "until"),
    [
        (600, 720, {0}, 599, None),
        (600, 720, {0}, 600, 720),
        (600, 720, {0}, 719, 720),
        (600, 720, {0}, 720, None),
        (600, 720, {1}, 650, None),
        (1320, 360, {0}, 1319, None),
        (1320, 360, {0}, 1320, 1800),
        (1320, 360, {0}, 1799, 1800),
        (1320, 360, {0}, 1800, None),
        (1320, 360, {6}, 100, 360),
        (0, 1440, {0}, 0, 1440),
        (0, 1440, {0}, 1440, None),
        (300, 300, {0}, 300, 1740),
        (300, 300, {0}, 1740, None),
        (0, 1440, {6}, 9 * 1440 - 1, None),
        (0, 1440, {6}, 6 * 1440, 7 * 1440),
    ],
)
def test_a_window_on_a_monday(start: int, end: int, days: set[int], minute: int, until: int | None) -> None:
    """Minutes count from that Monday's midnight; the layer ends when the window closes."""
    window = Window("w", "m", 3, start, end, frozenset(days))
    expected = None if until is None else Layer(LayerKind.SCHEDULE, 3, MONDAY + until * MINUTE, "w")
    assert window.layer(MONDAY + minute * MINUTE) == expected


def test_an_arrangement_ends_at_its_until() -> None:
    """From that very instant; before it, the layer ends with whichever comes first."""
    for until in (MONDAY + 650 * MINUTE, MONDAY + 900 * MINUTE):
        window = Window("w", "m", 3, 600, 720, until_ms=until)
        layer = window.layer(MONDAY + 640 * MINUTE)
        assert layer is not None
        assert layer.until_ms == min(until, MONDAY + 720 * MINUTE)
    window = Window("w", "m", 3, 600, 720, until_ms=MONDAY + 650 * MINUTE)
    assert window.layer(MONDAY + 650 * MINUTE - 1) is not None
    assert window.layer(MONDAY + 650 * MINUTE) is None


def test_a_laden_tree_carries_layers_and_the_weights_that_make_classes() -> None:
    """Layers sit on their members at any depth; an engine's own weight is filled in only where it is needed."""
    inner = Pool("inner", Select.TIERED, (Member("a"), Member("b", weight=7)), by_weight=True)
    tree = Pool("main", Select.WEIGHTED, (Member("inner", inner), Member("c"), Member("d")), waits=True)
    laden = tree.laden({"a": 2_000_000, "b": 9, "c": 3_000_000, "d": 5}, {"c": HALF, "inner": HALF})
    nested = laden.below("inner")
    assert nested is not None
    assert [(each.key, each.weight, each.layers) for each in laden.members] == [
        ("inner", None, HALF),
        ("c", 3_000_000, HALF),
        ("d", None, ()),
    ]
    assert [(each.key, each.weight) for each in nested.members] == [("a", 2_000_000), ("b", 7)]
    assert (laden.key, laden.select, laden.waits, nested.by_weight) == ("main", Select.WEIGHTED, True, True)
    assert [each.share for each in laden.members] == [500_000, 1_500_000, None]
    plain = Pool("main", Select.WEIGHTED, leaves("ab"))
    assert plain.laden({"a": 1}, {}) is plain


def test_standing_weights_are_own_times_layers_times_the_mean_below() -> None:
    """The mean counts every leaf once, however deep, and the layers of pools on the way to it."""
    deep = Member("deep", Pool("deep", Select.ORDERED, leaves("xy")), layers=HALF)
    group = Member("group", Pool("group", Select.WEIGHTED, (deep, Member("z"))), weight=3_000_000)
    assert group.standing == 3 * Fraction(2, 3)
    assert group.share == 2_000_000
    assert Pool("empty", Select.WEIGHTED, ()).mean == 1
    assert Member("a", weight=1, layers=(Layer(LayerKind.LEARNED, 1),)).share == 1
    assert Member("a", weight=0).share == 0


def test_a_tree_in_which_pools_wait() -> None:
    """What a walk finds of a nested pool that waits: free, full while its first open class is, closed without any."""
    inner = Pool("inner", Select.TIERED, (Member("a", tier=1), Member("b", tier=0)), waits=True)
    tree = Pool("main", Select.ORDERED, (Member("inner", inner), Member("c")))
    assert (inner.patient, tree.patient, tree.waits) == (True, True, False)
    for opened, full, status, picked, reached in (
        ("abc", "", FREE, "a", "ac"),
        ("abc", "a", FULL, "c", "c"),
        ("bc", "", FREE, "b", "bc"),
        ("bc", "b", FULL, "c", "c"),
        ("c", "", CLOSED, "c", "c"),
        ("ab", "a", FULL, None, ""),
        ("abc", "abc", FULL, None, ""),
    ):
        view = seen(dict.fromkeys(opened, 1), full=full)
        found = select(tree, view, {})
        assert view.status_of(inner) is status
        assert (found.engine if found else None) == picked
        assert "".join(within_reach(tree, view)) == reached
        if picked == "c" and found:
            assert found.steps[0].skipped == (("inner", status),)


def test_a_waiting_root_waits_for_a_nested_pool_that_is_full() -> None:
    """A full nested pool is a full member, and what the parent waits for."""
    inner = Pool("inner", Select.WEIGHTED, leaves("ab"))
    tree = Pool("main", Select.ORDERED, (Member("inner", inner), Member("c")), waits=True)
    full = seen(dict.fromkeys("abc", 1), full="ab")
    assert select(tree, full, {}) is None
    assert list(within_reach(tree, full)) == []
    assert expected_shares(tree, full) == {}
    assert attempt_order(tree, full, {}) == []
    assert list(within_reach(tree, seen(dict.fromkeys("abc", 1), full="a"))) == ["b"]
    assert list(within_reach(tree, seen({"c": 1}))) == ["c"]


def test_steps_say_everything_of_a_session_s_turn() -> None:
    """Pool, classes skipped, label, members, and that the class remembers; a class of one has nothing to remember."""
    tree = Pool("main", Select.TIERED, (Member("a", tier=2), *leaves("bc", tier=1), *leaves("de", tier=0)))
    named = Session("s", {("main", "1", "s"): "c", ("main", "0", "t"): "e"})
    view = seen(dict.fromkeys("abcde", 1), full="a", session=named)
    (step,) = select(tree, view, {}).steps  # type: ignore[union-attr]
    assert (step.pool, step.skipped, step.label, step.members) == ("main", (("2", FULL),), "1", ("b", "c"))
    assert (step.chosen, step.turn, step.remembers) == ("c", Turn.STICKY, True)
    assert (step.before, step.after) == ((0, 0), (UNIT // 2, -UNIT // 2))
    (step,) = select(tree, seen(dict.fromkeys("ade", 1), session=named), {}).steps  # type: ignore[union-attr]
    assert (step.chosen, step.turn, step.remembers, step.shares) == ("a", Turn.DRAWN, False, (UNIT,))
    (step,) = select(tree, seen({"d": 1}, session=named), {}).steps  # type: ignore[union-attr]
    assert (step.chosen, step.turn, step.remembers) == ("d", Turn.DRAWN, True)
    two = Pool("main", Select.WEIGHTED, leaves("bc"))
    yielded = select(two, seen(dict.fromkeys("bc", 1), full="c", session=Session("s", {("main", "", "s"): "c"})), {})
    assert yielded is not None
    assert (yielded.engine, yielded.steps[0].turn, yielded.steps[0].remembers) == ("b", Turn.YIELDED, True)


def test_demotion_in_every_mode() -> None:
    """Behind the live in ordered and tiered pools, a hundredth in weighted ones; a pool only with all it has open."""
    ordered = Pool("main", Select.ORDERED, leaves("abc"))
    assert attempt_order(ordered, seen(dict.fromkeys("abc", 1), demoted="ab"), {}) == ["c", "a", "b"]
    step = select(ordered, seen(dict.fromkeys("ab", 1), demoted="a", full="b"), {}).steps[0]  # type: ignore[union-attr]
    assert (step.chosen, step.label, step.skipped) == ("a", "~a", (("b", FULL), ("c", CLOSED)))
    weighted = Pool("main", Select.WEIGHTED, leaves("ab"))
    shares = expected_shares(weighted, seen({"a": 10, "b": 10}, demoted="a"))
    assert abs(shares["a"] * 101 - UNIT) <= 101
    assert sum(shares.values()) == UNIT
    mixed = Pool("main", Select.TIERED, (Member("g", Pool("g", Select.WEIGHTED, leaves("ab")), tier=9), Member("c")))
    assert select(mixed, seen(dict.fromkeys("abc", 1), demoted="a"), {}).engine == "b"  # type: ignore[union-attr]
    assert select(mixed, seen(dict.fromkeys("ac", 1), demoted="a"), {}).engine == "c"  # type: ignore[union-attr]
    assert select(mixed, seen(dict.fromkeys("abc", 1), demoted="a", full="b"), {}).engine == "a"  # type: ignore[union-attr]
    assert select(mixed, seen(dict.fromkeys("abc", 1), demoted="abc"), {}).engine == "a"  # type: ignore[union-attr]


def test_credits_a_tie_apart_are_no_tie() -> None:
    """Just under half a millionth counts as equal, and the earlier wins; at half a millionth the larger does."""
    assert draw((0, TIE - 1), (0, 0))[0] == 0
    assert draw((0, TIE), (0, 0))[0] == 1


LOCAL, PAID = plain_engine(0), plain_engine(1, tier=Tier.PAID)
REQUEST = plain_request().requirement


@pytest.mark.parametrize(
    ("engines", "policy", "load", "expected"),
    [
        ("lp", Policy(), Load(frozenset({"e0"}), 10**9, 9), (("e0",), Why.ASSIGN, False)),
        ("lp", Policy(Mode.HYBRID), Load(), (("e0",), Why.ASSIGN, False)),
        ("lp", Policy(Mode.HYBRID), Load(frozenset({"e0"}), 600_000, 1), (("e1",), Why.OVERFLOW, True)),
        ("lp", Policy(Mode.HYBRID), Load(frozenset({"e0"}), 599_999, 1), Held(1000)),
        ("lp", Policy(Mode.HYBRID), Load(frozenset({"e0"}), 600_000, 0), (("e0",), Why.ASSIGN, False)),
        ("lp", Policy(Mode.HYBRID), Load(frozenset({"e0", "e1"}), 600_000, 1), (("e0",), Why.ASSIGN, False)),
        ("p", Policy(), Load(), (("e1",), Why.ASSIGN, False)),
        ("gp", Policy(), Load(), (("e1",), Why.FALLBACK, False)),
        ("gp", Policy(fallback=Fallback.COUNT), Load(cap_left=1), (("e1",), Why.FALLBACK, True)),
        ("gp", Policy(fallback=Fallback.COUNT), Load(cap_left=0), Barred(WaitReason.CAP_SPENT)),
        ("gp", Policy(fallback=Fallback.NEVER), Load(cap_left=9), Barred(WaitReason.FALLBACK_NOT_ALLOWED)),
        ("g", Policy(), Load(), Barred(WaitReason.NO_ELIGIBLE_ENGINE)),
    ],
)
def test_what_is_offered(engines: str, policy: Policy, load: Load, expected: object) -> None:
    """L local, p paid, g local but gone: the six rules at their thresholds."""
    kinds = {"l": LOCAL, "p": PAID, "g": plain_engine(0, enabled=False)}
    found = offer(survey(REQUEST, [kinds[kind] for kind in engines]), policy, load)
    told = (
        (tuple(each.engine.name for each in found.candidates), found.why, found.counted)
        if isinstance(found, Offer)
        else found
    )
    assert told == expected
