"""What holds of weights, failure averages, efforts and pauses."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import oracles
from tests.support.worlds import efforts, failures, fleets, phases, requirements
from vibey.domain import weight
from vibey.domain.backoff import delay_ms, fraction
from vibey.domain.effort import Effort, achieved, effort_of, rises
from vibey.domain.engine import MILLION, Phase
from vibey.domain.weight import Factors, decayed

if TYPE_CHECKING:
    from vibey.domain.engine import EngineFacts
    from vibey.domain.requirement import Requirement

layers = st.integers(1, 3 * MILLION)
half_lives = st.integers(1, 10**8)


@given(fleets(smallest=1), requirements)
def test_weight_is_the_exact_product_but_for_rounding(fleet: tuple[EngineFacts, ...], requirement: Requirement) -> None:
    """The integer weight lies within two millionths, or two millionths of itself, of the exact product."""
    price = weight.median_price(fleet)
    for engine in fleet:
        effective = weight.factors(engine, requirement, price).effective
        exact = Fraction(0) if engine.phase is Phase.OPEN else oracles.weight(engine, requirement, fleet) * MILLION
        assert (effective == 0) == (exact == 0)
        assert abs(effective - exact) <= 2 + exact * Fraction(2, MILLION)


@given(layers, layers, layers, layers, layers)
def test_equal_products_are_equal_in_any_order(a: int, b: int, c: int, d: int, e: int) -> None:
    """The order of factors never matters, so ties are ties."""
    assert len({Factors(*order).effective for order in permutations((a, b, c, d, e))}) == 1


@given(st.lists(st.integers(0, 10**13), min_size=5, max_size=5))
def test_a_weight_is_zero_only_when_a_factor_is(parts: list[int]) -> None:
    """Positive factors never round down to nothing."""
    assert (Factors(*parts).effective == 0) == (0 in parts)


@given(phases, failures)
def test_health_lies_between_nothing_and_whole(phase: Phase, failure: int) -> None:
    """Open is 0, half-open a quarter, closed what the failures leave."""
    expected = {Phase.OPEN: 0, Phase.HALF_OPEN: 250_000, Phase.CLOSED: MILLION - failure}
    assert weight.health(phase, failure) == expected[phase]


@given(st.integers(0, 10**10), st.integers(0, 10**10))
def test_cost_is_the_median_over_the_price_within_bounds(price: int, median: int) -> None:
    """Clamped to 0.5 and 1.5; 1 when either is unknown."""
    factor = Fraction(weight.cost(price, median), MILLION)
    if price == 0 or median == 0:
        assert factor == 1
    else:
        exact = min(max(Fraction(median, price), Fraction(1, 2)), Fraction(3, 2))
        assert exact - Fraction(1, MILLION) < factor <= exact


@given(efforts, st.lists(efforts, max_size=6, unique=True))
def test_fidelity_and_achievement_agree_with_the_oracle(asked: Effort, offered: list[Effort]) -> None:
    """An engine reaches the highest of its levels not above the request, else its lowest; none declared, any."""
    assert Fraction(weight.fidelity(asked, tuple(offered)), MILLION) == oracles.fidelity(asked, offered)
    reached = achieved(asked, tuple(offered))
    assert reached in (offered or [asked])
    assert not [level for level in offered if reached < level <= asked]
    assert reached <= asked or reached == min(offered)


@example(0, 5, 5)
@example(1, 10**15, 1)
@given(st.integers(0, MILLION), st.integers(0, 10**10), half_lives)
def test_a_failure_average_only_falls_with_time(failure: int, elapsed: int, half_life: int) -> None:
    """Later is never more, nothing is ever negative, and time that ran backwards changes nothing."""
    now, later = decayed(failure, elapsed, half_life), decayed(failure, elapsed + half_life // 3 + 1, half_life)
    assert 0 <= later <= now <= failure
    assert decayed(failure, 0, half_life) == decayed(failure, -elapsed, half_life) == failure


@given(st.integers(0, MILLION), st.integers(0, 60), half_lives)
def test_a_failure_average_halves_at_every_half_life(failure: int, times: int, half_life: int) -> None:
    """After n half-lives exactly failure / 2^n is left, rounded down."""
    assert decayed(failure, times * half_life, half_life) == failure // 2**times


@given(st.integers(0, 100), st.integers(0, 999))
def test_between_halvings_the_average_stays_near_the_exponential(halvings: int, rest: int) -> None:
    """The linear piece is at most 6.2 % above the exponential, and never below it."""
    failure = MILLION << 100
    exact = Fraction(failure) / 2**halvings / Fraction(2 ** (rest / 1000))
    left = decayed(failure, halvings * 1000 + rest, 1000)
    assert Fraction(9999, 10000) <= left / exact <= Fraction(1062, 1000)


@given(st.integers(1, 10**12), st.integers(1, 100), st.integers(0, 10**7))
def test_a_pause_lies_between_nothing_and_its_ceiling(job_id: int, attempt: int, base: int) -> None:
    """Full jitter under min(900 s, base · 2^attempt), the same for the same job and attempt."""
    delay = delay_ms(job_id, attempt, base)
    assert 0 <= delay <= min(900_000, base * 2**attempt)
    assert delay_ms(job_id, attempt, base) == delay


@given(st.integers(1, 10**9), st.integers(1, 12))
def test_pauses_of_many_jobs_are_spread_evenly(first: int, attempt: int) -> None:
    """Of a thousand jobs failing together about a tenth falls into each tenth of the ceiling."""
    ceiling = min(900_000, 2000 * 2**attempt)
    tenths = [0] * 11
    for job_id in range(first, first + 1000):
        tenths[delay_ms(job_id, attempt, 2000) * 10 // ceiling] += 1
    assert all(40 <= count <= 180 for count in tenths[:10])


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.integers(1, 10**9))
def test_a_fraction_is_one_of_its_parts(seed: str, parts: int) -> None:
    """From 0 to parts - 1, by the seed alone."""
    assert 0 <= fraction(seed, parts) < parts
    assert fraction(seed, 1) == 0


@given(efforts, st.integers(1, 12))
def test_effort_never_falls_and_rises_are_its_steps(asked: Effort, attempt: int) -> None:
    """The ladder is low, low, standard, standard, high; a job's own effort is its floor."""
    ladder = [1, 1, 2, 2, 3]
    ranks = [max(asked, ladder[min(number, 5) - 1]) for number in range(1, attempt + 2)]
    assert [effort_of(number, asked) for number in range(1, attempt + 2)] == ranks
    steps = [after > before for before, after in pairwise([*ranks[:1], *ranks])]
    assert [rises(number, asked) for number in range(1, attempt + 2)] == steps
    assert effort_of(attempt, effort_of(max(attempt - 1, 1), asked)) == ranks[attempt - 1]
