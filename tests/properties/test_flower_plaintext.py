"""Output as the pages show it: however it comes in pieces, only text is left."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from vibey.engines.transcripts.plaintext import PlainText, plain_text

ESCAPES = ["\x1b[31m", "\x1b[0m", "\x1b[2K\x1b[1G", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1b(B", "\x1bM"]
WORDS = ["step 1", "é", "漢字", "<b>", "\n", "\r\n", "\r", "\t", "\x08", "\x00", "\u202e", "\x9b31m", "\x1b"]
OUTPUT = st.lists(st.sampled_from(ESCAPES + WORDS), max_size=12).map("".join)
BYTES = st.binary(max_size=60) | OUTPUT.map(str.encode)
TURNS = {"LRO", "RLO", "LRE", "RLE", "RLI", "LRI", "PDF"}


@example("\r\x1b\x1b[31m", [5])
@example("\r\x1b[3 \x1b[31m", [8])
@given(OUTPUT, st.lists(st.integers(0, 200), max_size=6))
def test_pieces_make_the_same_text_as_the_whole(text: str, cuts: list[int]) -> None:
    """Where the output happens to be cut, even within a character or an escape, makes no difference."""
    whole = text.encode()
    places = sorted({0, *(min(cut, len(whole)) for cut in cuts), len(whole)})
    reader = PlainText()
    pieces = "".join(reader.feed(whole[begin:end]) for begin, end in pairwise(places))
    assert pieces == plain_text(text)


@given(
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
    | st.binary(max_size=60)
    | OUTPUT.map(str.encode)
)
def test_nothing_is_left_that_a_terminal_or_a_reader_would_obey(output: bytes) -> None:
    """No control but the end of a line and a tab, and nothing that turns the direction of text."""
    shown = PlainText().feed(output)
    assert not [mark for mark in shown if unicodedata.category(mark) == "Cc" and mark not in "\n\t"]
    assert not [
        mark for mark in shown if unicodedata.bidirectional(mark) in {"LRO", "RLO", "LRE", "RLE", "RLI", "LRI", "PDF"}
    ]


@given(st.lists(st.sampled_from(ESCAPES), min_size=1, max_size=5))
def test_escapes_leave_no_trace(escapes: list[str]) -> None:
    """Colours, moves of the cursor, titles and links vanish whole; the words between them stay."""
    assert plain_text(f"{''.join(escapes)}built{''.join(escapes)}\n") == "built\n"
