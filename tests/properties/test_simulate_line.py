"""The queue's line of places against a sorted list."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from vibey.simulate.line import END, FRONT, PIECE, Line, place_of

places = st.integers(-50, 50) | st.integers(-(10**6), 10**6)


@given(st.lists(st.tuples(st.booleans(), places), max_size=200), st.integers(0, 5 * PIECE), places, places)
def test_a_line_is_a_sorted_list(changes: list[tuple[bool, int]], crowd: int, start: int, end: int) -> None:
    """Whatever is put in and taken out, and however many there are."""
    line, plain = Line(), sorted(range(3_000_000, 3_000_000 + crowd))
    for place in plain:
        line.add(place)
    for comes, place in changes:
        if place in plain:
            plain.remove(place)
            line.remove(place)
        elif comes:
            plain = sorted([*plain, place])
            line.add(place)
        assert (place in line) == (place in plain)
    assert bool(line) == bool(plain)
    assert list(line.between(FRONT, END)) == plain
    assert list(line.between(start, end)) == [place for place in plain if start <= place < end]
    behind = bisect_right(plain, start)
    assert line.after(start) == (plain[behind] if behind < len(plain) else None)


@given(st.tuples(st.integers(-(2**62), 2**62), st.integers(1, 2**39)), st.tuples(st.integers(-3, 3), places))
def test_who_stands_before_goes_first_then_the_order_of_arrival(one: tuple[int, int], step: tuple[int, int]) -> None:
    """Places compare as pairs of standing and number would."""
    other = (one[0] + step[0], max(1, one[1] + step[1]))
    assert (place_of(*one) < place_of(*other)) == (one < other)
    assert FRONT < place_of(*one) < END
