"""Traces: what a line may say, and what is said of one that cannot be used."""

from __future__ import annotations

import json

import pytest

from vibey.domain.effort import Effort
from vibey.domain.errors import SettingsError
from vibey.simulate.trace import Arrival, FleetEvent, Trace, parse

ENGINES = ["local", "cloud"]


def read(*lines: object) -> Trace:
    """The trace these lines make; text as it is, all else as JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return parse(texts, "t.jsonl", ENGINES, {"web"})


def complaint(*lines: object) -> str:
    """What is said of lines that cannot be used."""
    with pytest.raises(SettingsError) as caught:
        read(*lines)
    return str(caught.value)


def test_what_is_missing_has_its_default() -> None:
    """An arrival needs an instant and a name; empty lines count for nothing."""
    (arrival,) = read("", {"at": 1.2345, "job": "a"}, "  ").happenings
    assert arrival == Arrival(1234, "a")
    assert isinstance(arrival, Arrival)
    assert (arrival.project, arrival.priority, arrival.effort) == ("default", 0, Effort.LOW)
    assert arrival.runs_for("local") == 60_000


def test_running_times_are_by_engine() -> None:
    """An engine's own, else the one for any, else a minute."""
    first, second = read(
        {"at": 0, "job": 1, "seconds": {"local": 0.5, "*": 2}}, {"at": 0, "job": 2, "seconds": {"local": 3}}
    ).happenings
    assert isinstance(first, Arrival)
    assert isinstance(second, Arrival)
    assert (first.runs_for("local"), first.runs_for("cloud")) == (500, 2000)
    assert (second.runs_for("local"), second.runs_for("cloud")) == (3000, 60_000)


def test_events_of_the_fleet() -> None:
    """Each kind with what it takes."""
    found = read(
        {"at": 0, "engine": "local", "event": "down"},
        {"at": 1, "engine": "local", "event": "slots", "value": 3},
        {"at": 2, "engine": "cloud", "event": "fail", "value": "window", "resets_in": 60},
    )
    assert found.jobs == 0
    assert found.happenings == (
        FleetEvent(0, "local", "down"),
        FleetEvent(1000, "local", "slots", slots=3),
        FleetEvent(2000, "cloud", "fail", failure="window", resets_ms=60_000),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1"),
        ("[1]", "expected a JSON object"),
        ('{"at": NaN, "job": "a"}', "line 1"),
        ({"job": "a"}, "line 1, at: None: this key is required"),
        ({"at": -1, "job": "a"}, "line 1, at: -1"),
        ({"at": True, "job": "a"}, "line 1, at: True"),
        ({"at": 0}, "line 1, job: None: this key is required"),
        ({"at": 0, "job": ""}, "line 1, job: ''"),
        ({"at": 0, "job": "a", "colour": 1}, "line 1, colour: 1: unknown key"),
        ({"at": 0, "job": "a", "priority": 1.5}, "line 1, priority: 1.5: expected a whole number"),
        ({"at": 0, "job": "a", "effort": "huge"}, "line 1, effort: 'huge': expected a known effort: trivial, low"),
        ({"at": 0, "job": "a", "requires": ["fly"]}, "expected a known capability: web"),
        ({"at": 0, "job": "a", "exclude": ["nobody"]}, "expected a known engine: cloud, local"),
        ({"at": 0, "job": "a", "exclude": "local"}, "expected a list of names"),
        ({"at": 0, "job": "a", "seconds": {"nobody": 1}}, "line 1, seconds"),
        ({"at": 0, "job": "a", "seconds": {"*": -1}}, "expected a duration in seconds"),
        ({"at": 0, "job": "a", "seconds": 5}, "line 1, seconds: 5"),
        ({"at": 0, "engine": "local", "event": "explode"}, "expected a known event: up, down"),
        ({"at": 0, "engine": "nobody", "event": "up"}, "line 1, engine: 'nobody'"),
        ({"at": 0, "engine": "local"}, "line 1, event: None: this key is required"),
        ({"at": 0, "engine": "local", "event": "slots"}, "line 1, value: None: this key is required"),
        ({"at": 0, "engine": "local", "event": "slots", "value": 0}, "at least 1"),
        ({"at": 0, "engine": "local", "event": "fail", "value": "mood"}, "expected a known failure: engine, window"),
        ({"at": 0, "engine": "local", "event": "up", "value": 1}, "up takes no value"),
    ],
)
def test_a_bad_line_is_named_with_its_key(line: object, said: str) -> None:
    """The line's number, the key, what came and what was expected."""
    assert said in complaint(line)


def test_time_goes_forward_and_names_are_used_once() -> None:
    """Both are told with the line that breaks them."""
    assert "line 2, at: 4" in complaint({"at": 5, "job": "a"}, {"at": 4, "job": "b"})
    assert "line 2, job: 'a'" in complaint({"at": 5, "job": "a"}, {"at": 6, "job": "a"})


def test_all_problems_are_told_at_once_up_to_twenty() -> None:
    """A person mends a file once."""
    assert complaint({"at": 0}, {"job": "b"}, {"at": 1, "job": "c", "priority": "x"}).startswith("t.jsonl: 3 problems")
    many = complaint(*({"at": 0} for _ in range(100)))
    assert many.startswith("t.jsonl: 20 problems")
