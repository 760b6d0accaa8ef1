"""A soak's judgement: a leak of each kind is seen, noise is not taken for one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.soak.flat import COUNTS, MEGABYTE, Bounds, judged
from tests.support.soak.series import FEWEST_POINTS, MEMORY, Series, Track

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE = 10
WARM = 300
SECONDS = 1200
JOBS = 5400
BOUNDS = Bounds(warm=WARM, settling=60)


def seen(measure: str, value: Callable[[float], float], *, tracks: int = 1, life: int = 0) -> Series:
    """A subject of so many processes; with a `life` each is replaced after so many seconds. `value` is by its age."""
    series = Series("build, pool", measure)
    for number in range(tracks):
        head_start = number * life // tracks
        for at in range(0, SECONDS + 1, PAUSE):
            lives, age = divmod(at + head_start, life) if life else (0, at)
            series.add(number + tracks * lives, at, value(age))
    return series


def noise(seed: int, size: float) -> Callable[[float], float]:
    """Chance, evenly between nothing and `size`, whatever the age."""
    chance = random.Random(seed)
    return lambda _: chance.uniform(0, size)


@pytest.mark.parametrize("measure", COUNTS)
def test_a_count_that_grows_is_seen(measure: str) -> None:
    """By twice its bound in a quarter of an hour, on a fleet where it swings by three."""
    swing, rise = noise(1, 3), 2 * COUNTS[measure]
    found = judged(seen(measure, lambda at: 20 + swing(at) + rise * at / (SECONDS - WARM)), BOUNDS, JOBS)
    assert found.verdict == "grows"
    assert found.worst == pytest.approx(rise, abs=2)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("measure", COUNTS)
def test_a_count_that_only_swings_is_flat(measure: str, seed: int) -> None:
    """Files and processes come and go with each job."""
    found = judged(seen(measure, noise(seed, 10), tracks=8), BOUNDS, JOBS)
    assert found.verdict == "flat", found


def test_one_process_that_leaks_among_many_is_seen() -> None:
    """The median of the pool says nothing of it."""
    series = seen(MEMORY, lambda _: 60 * MEGABYTE, tracks=12)
    series.seen[3] = [(at, value + at * 0.005 * MEGABYTE) for at, value in series.seen[3]]
    found = judged(series, BOUNDS, JOBS)
    assert found.verdict == "grows"
    assert found.per_hour == 0


def test_two_thousand_bytes_a_job_spread_over_a_pool_are_seen() -> None:
    """No process grows by its bound; together they do by that of a job."""
    each = 2000 * JOBS / 12
    found = judged(seen(MEMORY, lambda at: 60e6 + each * at / (SECONDS - WARM), tracks=12), BOUNDS, JOBS)
    assert found.worst < found.allowed
    assert found.verdict == "grows"
    assert found.per_job == pytest.approx(2000, rel=0.25)


def test_a_leak_is_seen_though_processes_are_replaced() -> None:
    """The sum over the pool is a saw's teeth, and as high at the end as at the beginning."""
    found = judged(seen(MEMORY, lambda at: 60e6 + at * 20_000, tracks=4, life=240), BOUNDS, JOBS)
    assert found.verdict == "grows"


@pytest.mark.parametrize("seed", range(5))
def test_memory_that_swings_steps_and_settles_is_flat(seed: int) -> None:
    """Arenas come and go, one audit takes ten megabytes for good, and a young process fills its caches."""
    swing = noise(seed, 2 * MEGABYTE)

    def value(at: float) -> float:
        audit = 10 * MEGABYTE if at > 0.8 * SECONDS else 0
        return 60 * MEGABYTE + swing(at) + audit - 20 * MEGABYTE * 0.97**at

    assert judged(seen(MEMORY, value), BOUNDS, JOBS).verdict == "flat"


def test_what_grew_while_warming_up_is_not_judged() -> None:
    """And neither is each process's own first minute."""
    assert judged(seen(MEMORY, lambda at: 1e6 * min(at, WARM)), BOUNDS, JOBS).verdict == "flat"
    young = seen(MEMORY, lambda at: 1e6 * min(at, 60), tracks=2, life=400)
    assert judged(young, BOUNDS, JOBS).verdict == "flat"


def test_what_was_there_for_too_short_is_said_to_be() -> None:
    """It is not called flat."""
    brief = seen(MEMORY, lambda at: at * 1e6, tracks=4, life=60 + (FEWEST_POINTS - 1) * PAUSE)
    assert judged(brief, BOUNDS, JOBS).verdict == "too short"


@given(
    st.floats(-1e3, 1e3),
    st.floats(-50, 50),
    st.integers(20, 300),
    st.lists(st.tuples(st.integers(0, 299), st.floats(-1e9, 1e9)), max_size=3),
)
def test_the_slope_is_that_of_a_line_whatever_a_few_points_are(
    start: float, rise: float, size: int, wild: list[tuple[int, float]]
) -> None:
    """A line's slope is found exactly, and a few wild points move it by no more than the line's neighbours differ."""
    straight = [(float(at), start + rise * at) for at in range(size)]
    assert Track(tuple(straight)).slope == pytest.approx(rise, abs=1e-6)
    for place, value in wild:
        straight[place % size] = (float(place % size), value)
    found = Track(tuple(straight)).slope
    assert min(0, 2 * rise) - 1e-6 <= found <= max(0, 2 * rise) + 1e-6


@given(st.lists(st.floats(-1e6, 1e6), min_size=FEWEST_POINTS, max_size=60), st.floats(-1e6, 1e6))
def test_where_a_series_begins_does_not_matter(values: list[float], lift: float) -> None:
    """Growth is of differences alone."""
    low = judged(seen_values(values), Bounds(0, 0), 10)
    high = judged(seen_values([value + lift for value in values]), Bounds(0, 0), 10)
    assert high.worst == pytest.approx(low.worst, abs=1e-3)


def seen_values(values: list[float]) -> Series:
    """One thing, seen once a second."""
    series = Series("beat", MEMORY)
    for at, value in enumerate(values):
        series.add(1, at, value)
    return series
