"""Efforts, outcomes, errors and usage: the small values."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal

import pytest

from tests.support.worlds import plain_engine, plain_request
from vibey.domain.effort import Effort, achieved, effort_of
from vibey.domain.engine import Phase, Usage
from vibey.domain.errors import (
    InvalidInput,
    Problem,
    Refused,
    SchemaOutdated,
    ServiceUnavailable,
    SettingsError,
    UnknownName,
    VibeyError,
)
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, one_line


def test_efforts_are_named_in_lower_case() -> None:
    """Names go both ways, and an unknown one is a KeyError."""
    assert [level.label for level in Effort] == ["trivial", "low", "standard", "high", "max", "ultra"]
    assert [Effort.named(level.label) for level in Effort] == list(Effort)
    with pytest.raises(KeyError):
        Effort.named("extreme")


def test_the_ladder_is_low_low_standard_standard_high() -> None:
    """And stays high; attempt 0 counts as the first."""
    climbed = [effort_of(attempt, Effort.TRIVIAL).label for attempt in range(8)]
    assert climbed == ["low", "low", "low", "standard", "standard", "high", "high", "high"]


def test_an_engine_reaches_the_highest_level_not_above_the_request() -> None:
    """Else its lowest; without declared levels it is taken at its word."""
    offered = (Effort.LOW, Effort.HIGH)
    assert achieved(Effort.MAX, offered) is Effort.HIGH
    assert achieved(Effort.STANDARD, offered) is Effort.LOW
    assert achieved(Effort.TRIVIAL, offered) is Effort.LOW
    assert achieved(Effort.ULTRA, ()) is Effort.ULTRA


@pytest.mark.parametrize("failure_class", list(FailureClass))
def test_only_a_capacity_failure_has_a_kind(failure_class: FailureClass) -> None:
    """The two always come together."""
    wrong = None if failure_class is FailureClass.CAPACITY else CapacityKind.BUSY
    with pytest.raises(ValueError, match="a capacity failure has a kind"):
        Failure(failure_class, "x", wrong)


def test_a_wait_becomes_an_instant_by_the_clock_given() -> None:
    """Only a wait is dated; an instant stands."""
    waiting = Failure(FailureClass.CAPACITY, "x", CapacityKind.WINDOW, resets_in_ms=500)
    dated = waiting.dated(10_000)
    assert (dated.resets_at_ms, dated.resets_in_ms) == (10_500, None)
    assert dated.dated(99_999) is dated


def test_only_a_refusal_that_spent_nothing_did_no_work() -> None:
    """Tokens or cost, or another class of failure, mean work was done."""
    refusal = Failure(FailureClass.CAPACITY, "x", CapacityKind.CREDITS)
    assert refusal.did_no_work
    assert Failure(FailureClass.CAPACITY, "x", CapacityKind.CREDITS, cost_usd=Decimal(0), tokens_in=0).did_no_work
    assert not Failure(FailureClass.CAPACITY, "x", CapacityKind.CREDITS, tokens_out=1).did_no_work
    assert not Failure(FailureClass.CAPACITY, "x", CapacityKind.CREDITS, cost_usd=Decimal("0.01")).did_no_work
    assert not Failure(FailureClass.ENGINE, "x").did_no_work


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  a\n\tb\r\n c ", "a b c"),
        ("nul\x00 and \ud800", "nul\ufffd and \ufffd"),
        ("x" * 501, "x" * 499 + "…"),
        ("x" * 500, "x" * 500),
        ("", ""),
    ],
)
def test_a_detail_is_one_printable_line(text: str, line: str) -> None:
    """White space is folded, what cannot be printed replaced, what is too long cut with a mark."""
    assert one_line(text) == line


def test_each_part_of_a_requirement_makes_a_group_of_its_own() -> None:
    """Requirements that differ in one part, or in which part holds a name, have different keys."""
    names = frozenset({"x"})
    plain = plain_request().requirement
    variants = [
        plain,
        replace(plain, pool="x"),
        replace(plain, project="x"),
        replace(plain, effort=Effort.HIGH),
        replace(plain, capabilities=names),
        replace(plain, excluded=names),
        replace(plain, avoided=names),
        replace(plain, excluded=names, avoided=names),
        replace(plain, handed_off=names),
        replace(plain, pinned=names),
        replace(plain, workspace=names),
        replace(plain, workspace=frozenset[str]()),
        replace(plain, pinned=names, workspace=names),
    ]
    assert len({variant.key for variant in variants}) == len(variants)


def test_an_assessment_is_shared_only_by_requirements_that_need_the_same() -> None:
    """Every part of a requirement but its pool and project has its place among what it needs."""
    asked = plain_request().requirement
    assert asked.needs == replace(asked, pool="other", project="other").needs
    for part in fields(asked):
        if part.name not in {"pool", "project"}:
            assert replace(asked, **{part.name: "changed"}).needs != asked.needs, part.name


def test_usage_counts_each_run_without_changing_the_one_before() -> None:
    """A granted run takes a slot, and a half-open account's only probe."""
    engine = plain_engine(0, slots=2)
    probe = plain_engine(1, slots=2, phase=Phase.HALF_OPEN)
    usage = Usage()
    after = usage.with_run(engine).with_run(probe)
    assert (usage.free_slots(engine), usage.free_slots(probe)) == (2, 1)
    assert (after.free_slots(engine), after.free_slots(probe)) == (1, 0)
    assert after.probing == {"a1"}
    assert Usage({"e0": 5}).free_slots(engine) == 0


@pytest.mark.parametrize(
    ("error", "exit_code", "says"),
    [
        (VibeyError("broken"), 1, "broken"),
        (InvalidInput("priority", "high", "a whole number"), 2, "priority: 'high' is not usable; expected a whole num"),
        (InvalidInput("payload", "x" * 200, "JSON"), 2, "x..."),
        (Refused("job 7 is running", "cancel it first"), 3, "job 7 is running; cancel it first"),
        (UnknownName("engine", "olama", ("ollama",)), 3, "unknown engine 'olama'; known: ollama"),
        (UnknownName("project", "p"), 3, "no project exists yet"),
        (ServiceUnavailable("Postgres", "refused", "start it"), 4, "Postgres is unreachable (refused); start it"),
        (SchemaOutdated(None, "0001"), 4, "the database schema is at nothing, this version needs 0001"),
        (SettingsError("vibey.toml", (Problem("a", 1, "text"),)), 2, "vibey.toml: 1 problem\n  a: 1: text"),
        (SettingsError("f", (Problem("a", 1, "text"), Problem("b", 2, "y", "c"))), 2, "2 problems"),
    ],
)
def test_errors_say_what_is_wrong_and_what_to_do(error: VibeyError, exit_code: int, says: str) -> None:
    """Each carries its exit code and a message that names the thing, the value and the remedy."""
    assert error.exit_code == exit_code
    assert says in str(error)
