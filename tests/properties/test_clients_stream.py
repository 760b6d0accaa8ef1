"""A client's output in any pieces: the same verdict, and no piece of text breaks the reading."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.support.recordings import CLIENTS, Recording, read, recordings

ALL = recordings()


@given(st.sampled_from(ALL), st.lists(st.integers(0, 1_000_000), max_size=12))
def test_any_split_gives_the_same(recording: Recording, places: list[int]) -> None:
    """Where the stream is cut does not matter."""
    output = recording.output
    cuts = sorted({0, len(output), *(place % (len(output) + 1) for place in places)})
    pieces = [output[start:end] for start, end in pairwise(cuts)]
    assert read(recording.kind, pieces, recording.exit_code) == read(recording.kind, [output], recording.exit_code)


@given(
    st.sampled_from(sorted(CLIENTS)), st.lists(st.binary(max_size=60) | st.sampled_from(ALL).map(lambda r: r.output))
)
def test_anything_can_be_read(kind: str, pieces: list[bytes]) -> None:
    """Noise, other clients' words and torn events lead to some outcome."""
    read(kind, pieces, 1)
