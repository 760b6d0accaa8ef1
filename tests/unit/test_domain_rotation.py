"""The rotation's known sequences."""

from __future__ import annotations

import pytest

from vibey.domain.rotation import UNIT, draw, shares


def letters(weights: dict[str, int], draws: int) -> str:
    """The winners' letters, from rest."""
    gains = shares(tuple(weights.values()))
    credit: tuple[int, ...] = (0,) * len(weights)
    winners = []
    for _ in range(draws):
        winner, credit = draw(credit, gains)
        winners.append(list(weights)[winner])
    return "".join(winners)


@pytest.mark.parametrize(
    ("weights", "period"),
    [
        ({"a": 5, "b": 1, "c": 1}, "aabacaa"),
        ({"A": 3, "B": 2, "C": 1}, "ABACBA"),
        ({"a": 1, "b": 1, "c": 1}, "abc"),
        ({"a": 1}, "a"),
        ({"a": 2, "b": 1}, "aba"),
    ],
)
def test_known_sequences_repeat(weights: dict[str, int], period: str) -> None:
    """The published sequences come out, and come again, fifty times over."""
    assert letters(weights, 50 * len(period)) == 50 * period


def test_a_tie_on_the_edge_of_a_rounding_grid_goes_to_the_earlier_member() -> None:
    """715, 106, 331: the ninth pick is a tie that rounding each credit to millionths would give to the wrong one."""
    assert letters({"a": 715, "b": 106, "c": 331}, 9) == "acaabacaa"


def test_equal_remainders_go_to_the_earlier_member() -> None:
    """A third of a unit cannot be whole: the first takes the one that is left over."""
    assert shares((1, 1, 1)) == (333_333_333_334, 333_333_333_333, 333_333_333_333)


def test_a_member_without_weight_has_no_share() -> None:
    """Zero among positive weights is offered nothing."""
    assert shares((0, 3)) == (0, UNIT)
