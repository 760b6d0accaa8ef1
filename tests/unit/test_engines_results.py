"""What a program may say of itself, and what is not believed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.depth import MOST_LEVELS
from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success, one_line
from vibey.engines.results import LONGEST_RESET_SECONDS, Report, parse_report, read_report, storable

if TYPE_CHECKING:
    from pathlib import Path


def said(**words: object) -> Report:
    """The report of a file with these keys."""
    return parse_report(json.dumps(words).encode())


def test_empty_report_says_nothing() -> None:
    """Every key is optional, and unknown ones are let be."""
    assert said() == said(extra=1, result=None, failure=None) == Report()


def test_result_and_costs_are_taken() -> None:
    """Objects stay objects, anything else is wrapped, dollars are exact."""
    report = said(result=[1], cost_usd=0.1, tokens_in=3, tokens_out=0)
    assert report.outcome(None) == Success({"value": [1]}, Decimal("0.1"), 3, 0)


def test_failure_keeps_the_cost_and_drops_the_result() -> None:
    """A failed exit has no result, but it has cost something."""
    outcome = said(result={}, cost_usd=1).outcome(Failure(FailureClass.WORK, "exit 1"))
    assert outcome == Failure(FailureClass.WORK, "exit 1", cost_usd=Decimal(1))


def test_a_quota_nearly_spent_is_told_beside_any_end() -> None:
    """Success or failure, the warning goes with it, in milliseconds and bounded; a refusal keeps its own wait."""
    assert said(near_quota=1.5).outcome(None) == Success(near_quota_ms=1500)
    failed = said(near_quota=90).outcome(Failure(FailureClass.WORK, "exit 1"))
    assert failed == Failure(FailureClass.WORK, "exit 1", near_quota_ms=90_000)
    refused = said(failure={"class": "capacity", "kind": "window", "resets_in": 5}, near_quota=10**12).outcome(None)
    assert isinstance(refused, Failure)
    assert (refused.resets_in_ms, refused.near_quota_ms) == (5000, LONGEST_RESET_SECONDS * 1000)


@pytest.mark.parametrize("kind", list(CapacityKind))
def test_capacity_says_what_ran_out(kind: CapacityKind) -> None:
    """Each kind of refusal is understood, with its wait in seconds, bounded."""
    failure = said(failure={"class": "capacity", "kind": kind.value, "resets_in": 10**12}).failure
    assert failure is not None
    assert failure.capacity_kind is kind
    assert failure.resets_in_ms == LONGEST_RESET_SECONDS * 1000
    assert failure.detail == "capacity"


def test_a_failure_of_the_work_may_be_final() -> None:
    """It is as it is said, and not final unless it says so."""
    assert said(failure={"class": "work", "final": True}).failure == Failure(FailureClass.WORK, "work", final=True)
    assert said(failure={"class": "work", "final": False}).failure == Failure(FailureClass.WORK, "work")


@pytest.mark.parametrize("name", ["work", "engine", "handoff", "misconfigured"])
def test_other_classes_have_no_kind(name: str) -> None:
    """A kind or a wait beside another class is let be."""
    failure = said(failure={"class": name, "kind": "window", "resets_in": 5, "detail": "a\nb"}).failure
    assert failure == Failure(FailureClass(name), "a b")


@pytest.mark.parametrize(
    "words",
    [
        {"failure": {"class": "vibey"}},
        {"failure": {"class": "capacity", "kind": "none"}},
        {"failure": {"class": "capacity", "resets_in": -1}},
        {"failure": {"class": "capacity", "resets_in": True}},
        {"failure": "capacity"},
        {"failure": {"class": "engine", "final": True}},
        {"failure": {"class": "work", "final": 1}},
        {"cost_usd": -0.01},
        {"cost_usd": "1"},
        {"cost_usd": True},
        {"cost_usd": 1e300},
        {"cost_usd": 999999.9999999},
        {"tokens_in": 1.5},
        {"near_quota": -1},
        {"near_quota": True},
        {"near_quota": "soon"},
        {"tokens_out": -1},
        {"tokens_out": 2**60},
    ],
)
def test_nonsense_is_refused(words: dict[str, object]) -> None:
    """A report with an impossible value is not believed at all."""
    with pytest.raises(InvalidInput):
        said(**words)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b"\xff", b'{"cost_usd": NaN}', b'{"result": 1e999}', b'{"result": Infinity}', b"[" * 99_999],
)
def test_text_that_is_no_report_is_refused(text: bytes) -> None:
    """Broken, endless or infinite JSON raises our own error, never another."""
    with pytest.raises(InvalidInput):
        parse_report(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_what_is_stored_holds_nothing_the_database_refuses(value: object) -> None:
    """Neither NUL nor lone surrogates are left, in keys or in values, and everything else stays."""
    text = json.dumps(storable(value), ensure_ascii=False)
    text.encode("utf-8")
    assert "\\u0000" not in text.replace("\\\\", "")


@given(st.text(st.characters(), max_size=3000))
def test_details_are_one_storable_line(text: str) -> None:
    """A detail is one printable line of bounded length."""
    line = one_line(text)
    assert len(line) <= 500
    assert line.isprintable()
    line.encode("utf-8")


def test_missing_file_is_no_report(tmp_path: Path) -> None:
    """A program need not say anything."""
    assert read_report(tmp_path / "nothing") is None


@given(levels=st.integers(MOST_LEVELS - 3, MOST_LEVELS + 3), opening=st.sampled_from("[{"))
def test_a_result_has_as_many_levels_as_every_reader_takes(levels: int, opening: str) -> None:
    """What is deeper is the work's own failure, not a fault of Vibey's."""
    deep: object = "x"
    for _ in range(levels):
        deep = [deep] if opening == "[" else {"k": deep}
    if levels <= MOST_LEVELS:
        assert said(result=deep).result is not None
    else:
        with pytest.raises(InvalidInput, match=f"at most {MOST_LEVELS} levels"):
            said(result=deep)


@pytest.mark.parametrize("levels", [550, 700, 5000, 100_000])
def test_a_result_that_no_reader_takes_is_refused(levels: int) -> None:
    """However deep: never by an error of the reader."""
    with pytest.raises(InvalidInput):
        parse_report(b'{"result": ' + b"[" * levels + b"]" * levels + b"}")
