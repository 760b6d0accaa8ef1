"""The tree of errors, and what the command line makes of an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.cli.failures import COMMAND_LINE_KINDS, Interrupted, failure_of, wants_json
from vibey.domain import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

FLEET = (*(f"engine-{number}" for number in range(39)), "ollama")


def family(error: type[errors.VibeyError]) -> Iterator[type[errors.VibeyError]]:
    """A class of the tree and all below it, as far as `vibey.domain.errors` defines them."""
    yield error
    for each in error.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from family(each)


def test_each_class_has_a_word_of_its_own() -> None:
    """A program can tell the classes apart by a word that does not depend on their names."""
    classes = list(family(errors.VibeyError))
    for each in classes:
        assert "word" in vars(each), f"{each.__name__} needs `word: ClassVar[str]`, beside its exit_code"
    words = [each.word for each in classes]
    assert len(set(words)) == len(words)
    assert not set(words) & (COMMAND_LINE_KINDS.keys() - {"internal"})


EXAMPLES = (
    errors.VibeyError("the bench is broken", "mend it"),
    errors.InvalidInput("limit", 0, "a whole number from 1 to 9"),
    errors.Refused("project 'x' exists already", "choose another name"),
    errors.NothingApplied(),
    errors.UnknownName("engine", "x", ("near",)),
    errors.Removed(7, "2026-03-01T00:00:00Z"),
    errors.ServiceUnavailable("Postgres", "refused", "start it"),
    errors.OutOfResources("Postgres", "the disk is full", "no space", "make room"),
    errors.UnsuitableService("Postgres", "its encoding is LATIN1", "make another database"),
    errors.Contended("deadlock"),
    errors.TimedOut((1, 2), 3),
    errors.SchemaOutdated("0001", "0002"),
    errors.SettingsError("vibey.toml", (errors.Problem("engines.mode", "both", "expected one of auto"),)),
)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_told_to_programs_as_to_people(error: errors.VibeyError) -> None:
    """The object holds the class's word, what is wrong and what to do; the line holds both of them."""
    failure = failure_of(error)
    assert failure.exit_code == error.exit_code
    told = failure.to_json()["error"]
    assert list(told) == ["kind", "message", "fix"]
    assert told["kind"] == error.word
    assert all(told.values())
    assert failure.line is not None
    assert failure.line.startswith(f"vibey: {told['message']}")
    if not isinstance(error, errors.SettingsError):
        assert failure.line.endswith(told["fix"])


def test_what_only_the_command_line_meets() -> None:
    """Usage, interrupts and faults have kinds of their own, with the exit codes that are documented."""
    usage, fault = click.UsageError("no such option"), ValueError("seven")
    handled = Interrupted("the workers are stopped")
    for error, kind in ((usage, "usage"), (KeyboardInterrupt(), "interrupted"), (handled, "interrupted"),
                        (click.Abort(), "interrupted"), (fault, "internal")):  # fmt: skip
        failure = failure_of(error)
        assert (failure.kind, failure.exit_code) == (kind, COMMAND_LINE_KINDS[kind][0])
        assert failure.fix
    assert "the workers are stopped" in failure_of(handled).message
    assert "ValueError: seven" in failure_of(fault).message


def test_json_is_asked_for_before_the_end_of_options() -> None:
    """A word after `--` is a value, whatever it looks like."""
    assert wants_json(["jobs", "--json"])
    assert not wants_json(["enqueue", "--", "--json"])
    assert not wants_json(["jobs"])


@pytest.mark.parametrize("name", ["olama", "OLLAMA", "ollama2"])
def test_one_of_many_names_is_answered_with_the_nearest(name: str) -> None:
    """Forty engines are not listed for a slip in one; the command that lists them is named."""
    error = errors.UnknownName("engine", name, FLEET)
    assert error.fix == "did you mean ollama? 40 are known, see: vibey engines"


def test_an_unknown_name_without_a_near_one() -> None:
    """While names are few all are told, of many some, and without any that there is none yet."""
    assert errors.UnknownName("engine", "qqq", ("near", "far")).fix == "known: near, far"
    assert errors.UnknownName("engine", "neer", ("near", "far")).fix == "did you mean near? known: near, far"
    many = errors.UnknownName("engine", "qqq", FLEET).fix
    assert many.count("engine-") == errors.LISTED_NAMES
    assert many.endswith("and 32 more; see: vibey engines")
    assert errors.UnknownName("pool", "x").fix == "no pool exists yet"
    assert str(errors.UnknownName("job", 999_999, None)) == "unknown job 999999; see: vibey jobs"


@given(st.sampled_from(["job", "engine", "pool"]), st.text(), st.lists(st.text(), max_size=60))
def test_an_unknown_name_is_answered_in_bounded_length(kind: str, name: str, known: list[str]) -> None:
    """Whatever the names are, the answer has no more of them than are listed, and something to do."""
    short = tuple(each[:20] for each in known)
    error = errors.UnknownName(kind, name, short)
    assert error.fix
    assert len(str(error)) <= 80 + 60 + errors.LISTED_NAMES * 22 + 3 * 24 + 60
