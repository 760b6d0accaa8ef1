"""What holds of the rotation for all weights, memberships and histories."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import gcd

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.support import oracles
from vibey.domain.rotation import UNIT, draw, shares

small_weights = st.lists(st.integers(1, 60), min_size=1, max_size=7)
any_weights = st.lists(st.integers(1, 10**13), min_size=1, max_size=12)
MEMBERS = "abcde"
churn = st.lists(
    st.dictionaries(st.sampled_from(MEMBERS), st.integers(1, 1000), min_size=1, max_size=len(MEMBERS)),
    min_size=1,
    max_size=40,
)


def sequence(weights: list[int], draws: int) -> tuple[list[int], tuple[int, ...]]:
    """The winners of so many draws from rest, and the credits after them."""
    gains = shares(tuple(weights))
    credit: tuple[int, ...] = (0,) * len(weights)
    winners = []
    for _ in range(draws):
        winner, credit = draw(credit, gains)
        winners.append(winner)
    return winners, credit


@given(any_weights)
def test_shares_sum_to_the_unit_and_are_off_by_less_than_one(weights: list[int]) -> None:
    """Each share is its exact proportion, rounded up or down."""
    given_out = shares(tuple(weights))
    assert sum(given_out) == UNIT
    for share, weight in zip(given_out, weights, strict=True):
        assert abs(share - Fraction(weight * UNIT, sum(weights))) < 1


@given(any_weights, st.integers(2, 10**9))
def test_shares_do_not_depend_on_the_scale_of_weights(weights: list[int], scale: int) -> None:
    """Multiplying all weights by a number gives the very same shares, so nothing later can differ either."""
    assert shares(tuple(weight * scale for weight in weights)) == shares(tuple(weights))


@example([715, 106, 331])
@example([419, 111, 86, 239, 41])
@example([1, 5, 21, 21])
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8))
def test_the_sequence_is_exact_smooth_weighted_round_robin(weights: list[int]) -> None:
    """600 draws agree with whole-number arithmetic, ties included."""
    assert sequence(weights, 600)[0] == oracles.swrr(weights, 600)


@given(small_weights)
def test_the_period_is_exact(weights: list[int]) -> None:
    """Over the reduced weights' sum of draws each member is picked exactly its weight, and then all are level."""
    whole = gcd(*weights)
    period = sum(weights) // whole
    winners, credit = sequence(weights, 2 * period)
    assert winners[:period] == winners[period:]
    counts = Counter(winners[:period])
    assert [counts[index] * whole for index in range(len(weights))] == weights
    assert all(abs(owed) <= 2 * period for owed in credit)


@example([1, 1, 6, 26, 26])
@example([1] * 10 + [12] * 4)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=10))
def test_no_member_runs_ahead_by_one_or_lags_by_more_than_the_harmonic_bound(weights: list[int]) -> None:
    """At every draw −(H_k − 1) ≤ picks − n·share < 1, in exact fractions."""
    lag = oracles.harmonic(len(weights)) - 1
    proportions = [Fraction(weight, sum(weights)) for weight in weights]
    picks = [0] * len(weights)
    for number, winner in enumerate(sequence(weights, min(sum(weights), 150))[0], start=1):
        picks[winner] += 1
        for picked, share in zip(picks, proportions, strict=True):
            assert -lag <= picked - number * share < 1


@given(churn)
def test_credit_is_entitlement_less_picks_under_any_churn(rounds: list[dict[str, int]]) -> None:
    """With members coming, going and changing weight: credit = Σ shares − picks to the unit, and all sum to 0."""
    credit = dict.fromkeys(MEMBERS, 0)
    entitled, picks = Counter[str](), Counter[str]()
    exact = dict.fromkeys(MEMBERS, Fraction(0))
    for weights in rounds:
        keys = list(weights)
        gains = shares(tuple(weights.values()))
        winner, after = draw([credit[key] for key in keys], gains)
        credit |= dict(zip(keys, after, strict=True))
        picks[keys[winner]] += 1
        for key, gain in zip(keys, gains, strict=True):
            entitled[key] += gain
            exact[key] += Fraction(weights[key], sum(weights.values()))
        assert sum(credit.values()) == 0
        for key in MEMBERS:
            assert credit[key] == entitled[key] - picks[key] * UNIT
            assert abs(Fraction(credit[key], UNIT) - (exact[key] - picks[key])) <= Fraction(len(rounds), UNIT)


@given(churn)
def test_the_winner_under_churn_is_the_exact_rotation_s(rounds: list[dict[str, int]]) -> None:
    """Members that come and go win when exact fractions say so, or when they are equal to within half a millionth."""
    exact = oracles.Rotation()
    credit = dict.fromkeys(MEMBERS, 0)
    for weights in rounds:
        ordered = {key: weights[key] for key in MEMBERS if key in weights}
        before = {key: exact.credit(key) for key in ordered}
        winner, after = draw([credit[key] for key in ordered], shares(tuple(ordered.values())))
        credit |= dict(zip(ordered, after, strict=True))
        expected = exact.draw(ordered)
        total = sum(ordered.values())
        owed = sorted((before[key] + Fraction(weight, total) for key, weight in ordered.items()), reverse=True)
        close = any(0 < owed[0] - each <= Fraction(1, 1_999_999) for each in owed)
        assume(not close)
        assert list(ordered)[winner] == expected


@given(st.lists(st.integers(-(10**13), 10**13), min_size=1, max_size=10))
def test_a_draw_conserves_credit_and_picks_the_most_owed(owed: list[int]) -> None:
    """One draw adds one unit and takes one, and no member was owed more than the winner by half a millionth."""
    gains = shares((1,) * len(owed))
    winner, after = draw(owed, gains)
    assert sum(after) == sum(owed)
    raised = [each + gain for each, gain in zip(owed, gains, strict=True)]
    assert raised[winner] > max(raised) - UNIT // 2_000_000
    assert all(each <= max(raised) - UNIT // 2_000_000 for each in raised[:winner])


@given(small_weights, st.integers(1, 60), st.integers(2, 1000))
def test_scaling_weights_midway_changes_nothing(weights: list[int], first: int, scale: int) -> None:
    """With live credits, weights multiplied by a number go on exactly as the unscaled ones."""
    _, credit = sequence(weights, first)
    plain, scaled = shares(tuple(weights)), shares(tuple(weight * scale for weight in weights))
    one, other = credit, credit
    for _ in range(60):
        winner, one = draw(one, plain)
        again, other = draw(other, scaled)
        assert (winner, one) == (again, other)
