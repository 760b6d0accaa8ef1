"""Server-sent events: however the bytes are cut, the events are those of the whole, in bounded memory."""

from __future__ import annotations

import re
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.engines.sse import EventStream, EventTooLong

ATOMS = [
    b"data:",
    b"data: ",
    b"data",
    b": comment",
    b"event: x",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"{",
    b" ",
    b"\xff",
    b"x",
]
STREAMS = st.lists(st.sampled_from(ATOMS), max_size=40).map(b"".join)


def oracle(whole: bytes) -> list[str]:
    """The events by the standard's grammar, read from the whole at once."""
    blocks: list[list[bytes]] = [[]]
    for line in re.split(rb"\r\n|\r|\n", whole.removeprefix(b"\xef\xbb\xbf"))[:-1]:
        if line:
            blocks[-1].append(line)
        else:
            blocks.append([])
    found = []
    for block in blocks[:-1]:
        data = [re.sub(rb"^data:? ?", b"", line) for line in block if re.match(rb"data(:|$)", line)]
        if data:
            found.append(b"\n".join(data).decode("utf-8", "replace"))
    return found


def fed(pieces: list[bytes]) -> list[str]:
    """The events of these pieces."""
    stream = EventStream()
    return [event.data for piece in pieces for event in stream.feed(piece)]


@given(STREAMS, st.lists(st.integers(0, 200)))
def test_events_do_not_depend_on_the_cuts(whole: bytes, cuts: list[int]) -> None:
    """Cut anywhere, the events are those of the whole."""
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    assert fed(pieces) == oracle(whole)


@given(STREAMS)
def test_every_byte_alone(whole: bytes) -> None:
    """One byte at a time, a mark at the beginning included."""
    marked = b"\xef\xbb\xbf" + whole
    assert fed([marked[at : at + 1] for at in range(len(marked))]) == oracle(marked)


@pytest.mark.parametrize("piece", [b"x", b"data: x\n", b": x"])
def test_memory_is_bounded(piece: bytes) -> None:
    """Neither an endless line nor an event without an end is held for ever."""
    stream = EventStream(longest=100)
    with pytest.raises(EventTooLong):
        list(chain.from_iterable(stream.feed(piece) for _ in range(200)))


def test_what_was_given_out_is_not_held() -> None:
    """Many events, together larger than the bound, pass."""
    stream = EventStream(longest=100)
    assert sum(1 for _ in range(1000) for _ in stream.feed(b": keep\r\ndata: 0123456789\r\n\r\n")) == 1000
