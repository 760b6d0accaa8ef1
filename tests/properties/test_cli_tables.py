"""Tables of the command line: at any width no character is lost, no line is too wide, and none ends in blanks."""

from __future__ import annotations

import io
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from vibey.cli.output import UNBOUNDED, Column, table

# Words as reasons, names and JSON have them; wide and combining characters, and text without any blank.
TEXT = st.one_of(
    st.text(st.sampled_from('abcXYZ0189 -_/{}":,.é漢🚀\u0301\n'), max_size=90),
    st.sampled_from(("", "2026-03-01 14:05:09 UTC", '{"why":"assigned","attempt":1}', "x" * 120)),
)
COLUMNS = st.builds(
    Column,
    st.sampled_from(["JOB", "STATE", "DAY (UTC)", "REASON", ""]),
    right=st.booleans(),
    wide=st.booleans(),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]], bool]:
    """Columns, rows of cells, and whether the titles are shown."""
    columns = draw(st.lists(COLUMNS, min_size=1, max_size=9))
    rows = draw(st.lists(st.lists(TEXT, min_size=len(columns), max_size=len(columns)), max_size=5))
    return columns, rows, draw(st.booleans())


def printed(columns: list[Column], rows: list[list[str]], width: int, *, headed: bool) -> str:
    """What a screen of this width shows of a table."""
    screen = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    screen.print(table(columns, rows, headed=headed))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def marks(text: str) -> Counter[str]:
    """How often each character is in a text, blanks aside."""
    return Counter("".join(text.split()))


@given(tables(), st.integers(40, 200))
def test_no_character_is_lost_and_no_line_is_too_wide(
    drawn: tuple[list[Column], list[list[str]], bool], width: int
) -> None:
    """Every cell is whole, if on several lines; an empty one is a dash."""
    columns, rows, headed = drawn
    shown = printed(columns, rows, width, headed=headed)
    for row in rows:
        for value in row:
            assert marks(value or "-") <= marks(shown)
    assert sum((marks(value or "-") for row in rows for value in row), Counter()) <= marks(shown)
    for line in shown.splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip()


@given(tables())
def test_what_is_piped_is_not_folded(drawn: tuple[list[Column], list[list[str]], bool]) -> None:
    """Without a terminal a row takes as many lines as its longest cell has, and ends without blanks."""
    columns, rows, headed = drawn
    shown = printed(columns, rows, UNBOUNDED, headed=headed)
    assert shown.count("\n") == headed + sum(max(value.count("\n") + 1 for value in row) for row in rows)
    assert all(line == line.rstrip() for line in shown.split("\n"))


def test_a_row_stands_on_lines_of_its_own_where_columns_do_not_fit() -> None:
    """Below the width at which the wide columns are still legible, every cell has its title before it."""
    columns = [Column("JOB", right=True), Column("STATE"), Column("ENGINE", wide=True), Column("REASON", wide=True)]
    rows = [["17", "running", "ollama-with-a-name", "running on ollama"], ["18", "failed", "-", "the program ended"]]
    assert printed(columns, rows, 40, headed=True).splitlines() == [
        "JOB  STATE    ENGINE        REASON",
        " 17  running  ollama-with-  running on",
        "              a-name        ollama",
        " 18  failed   -             the program",
        "                            ended",
    ]
    assert printed(columns, rows, 30, headed=True).splitlines() == [
        "JOB     17",
        "STATE   running",
        "ENGINE  ollama-with-a-name",
        "REASON  running on ollama",
        "",
        "JOB     18",
        "STATE   failed",
        "ENGINE  -",
        "REASON  the program ended",
    ]


def test_a_style_is_kept_on_every_line() -> None:
    """A state keeps its colour wherever the row is folded."""
    screen = Console(file=io.StringIO(), width=30, force_terminal=True, color_system="standard")
    screen.print(table([Column("A"), Column("B", wide=True)], [[Text("failed").plain, "word " * 20]]))
    assert isinstance(screen.file, io.StringIO)
    assert "\x1b[31mfailed" in screen.file.getvalue()
