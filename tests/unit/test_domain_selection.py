"""Walks down particular trees."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tests.support.worlds import plain_engine, seen
from vibey.domain.engine import Tier
from vibey.domain.pool import Member, Pool, Select, default_pool
from vibey.domain.selection import Status, select

if TYPE_CHECKING:
    from collections.abc import Iterator


def walks(pool: Pool, weights: dict[str, int]) -> Iterator[str]:
    """The engines chosen, one walk after another."""
    credit: dict[tuple[str, str], int] = {}
    while selection := select(pool, seen(weights), credit):
        for step in selection.steps:
            credit.update({(step.pool, key): value for key, value in zip(step.members, step.after, strict=True)})
        yield selection.engine


def leaves(names: str, **changes: int) -> tuple[Member, ...]:
    """One member a letter."""
    return tuple(Member(name, **changes) for name in names)  # type: ignore[arg-type]


@pytest.mark.parametrize(("opened", "chosen"), [("abc", "aaaa"), ("bc", "bbbb"), ("c", "cccc"), ("", "")])
def test_ordered_takes_the_first_open_member(opened: str, chosen: str) -> None:
    """Each member is a class of its own."""
    pool = Pool("main", Select.ORDERED, leaves("abc"))
    assert "".join(islice(walks(pool, dict.fromkeys(opened, 1)), 4)) == chosen


def test_tiered_puts_the_higher_tier_first_and_none_counts_as_zero() -> None:
    """Tier 2 before 1 before none before −1, declared order within."""
    members = (Member("d", tier=-1), Member("c"), Member("a", tier=2), Member("b", tier=1), Member("e", tier=0))
    pool = Pool("main", Select.TIERED, members)
    assert [[member.key for member in each.members] for each in pool.classes] == [["a"], ["b"], ["c", "e"], ["d"]]
    assert "".join(islice(walks(pool, {"c": 2, "e": 1, "d": 9}), 6)) == "ceccec"


def test_skipped_members_are_named() -> None:
    """The step says which better members were passed over."""
    pool = Pool("main", Select.ORDERED, leaves("abc"))
    selection = select(pool, seen({"c": 1}), {})
    assert selection is not None
    assert selection.steps[0].skipped == (("a", Status.CLOSED), ("b", Status.CLOSED))


def test_nested_pools_share_by_their_own_weight_and_rotate_within() -> None:
    """A pool of weight 2 beside an engine: two of three draws go in, alternating there."""
    nested = Pool("deep", Select.WEIGHTED, leaves("xy"))
    pool = Pool("main", Select.WEIGHTED, (Member("deep", nested, weight=2_000_000), Member("a")))
    weights = dict.fromkeys("axy", 1_000_000)
    assert "".join(islice(walks(pool, weights), 6)) == "xayxay"


def test_a_closed_nested_pool_is_passed_over_and_its_credit_rests() -> None:
    """Nothing open under it: its siblings take every draw."""
    nested = Pool("deep", Select.WEIGHTED, leaves("xy"))
    pool = Pool("main", Select.TIERED, (Member("deep", nested, tier=1), Member("a")))
    assert "".join(islice(walks(pool, {"a": 1}), 3)) == "aaa"
    assert "".join(islice(walks(pool, {"a": 1, "y": 1}), 3)) == "yyy"


def test_a_member_of_no_weight_is_closed() -> None:
    """Zero is closed, not small, for engines and pools alike."""
    nested = Pool("deep", Select.WEIGHTED, leaves("x"))
    pool = Pool("main", Select.WEIGHTED, (Member("deep", nested, weight=0), *leaves("a", weight=0)))
    assert select(pool, seen({"x": 1, "a": 1}), {}) is None


def test_the_default_pool_is_local_before_paid_in_declared_order() -> None:
    """Ordered over two weighted pools, whatever order the engines are listed in."""
    engines = [plain_engine(2, tier=Tier.PAID), plain_engine(1), plain_engine(0)]
    pool = default_pool("main", engines)
    assert pool.select is Select.ORDERED
    assert [member.key for member in pool.members] == ["main.local", "main.paid"]
    assert pool.leaves == ("e0", "e1", "e2")
    assert pool.below("main.paid") == Pool("main.paid", Select.WEIGHTED, (Member("e2"),))
    assert pool.below("nowhere") is None
