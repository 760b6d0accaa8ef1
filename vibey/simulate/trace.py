"""Traces: what happens to a simulated fleet, one JSON line each, by `at` in seconds; 0 is a Monday's UTC midnight.

    {"at": 0, "job": "a", "project": "shop", "priority": 0, "effort": "low", "requires": [], "exclude": [],
     "session": null, "seconds": {"ollama": 120, "*": 60}}
    {"at": 90, "engine": "ollama", "event": "up|down|demote|restore|slots|fail", "value": …, "resets_in": …}

A whole trace is read before anything is run. What is wrong with it is told at once, up to twenty problems, each with
its line, its key and what was expected.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.domain.errors import Problem, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

DECODER = json.JSONDecoder(parse_float=Decimal)
MOST_PROBLEMS = 20
LONGEST_SECONDS = 10 * 366 * 86_400
DEFAULT_MS = 60_000
ANY = "*"
EVENTS = ("up", "down", "demote", "restore", "slots", "fail")
FAILURES = ("engine", "window", "credits", "login", "busy")
ARRIVAL_KEYS = ("at", "job", "project", "priority", "effort", "requires", "exclude", "session", "seconds")
EVENT_KEYS = ("at", "engine", "event", "value", "resets_in")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that is enqueued. `running_ms` is how long it runs on each engine; `*` stands for any other."""

    at_ms: int
    job: str
    project: str = "default"
    priority: int = 0
    effort: Effort = Effort.LOW
    requires: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    session: str | None = None
    running_ms: Mapping[str, int] | None = None

    def runs_for(self, engine: str) -> int:
        """Milliseconds a run on this engine takes."""
        known = self.running_ms or {}
        return known.get(engine, known.get(ANY, DEFAULT_MS))


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """Something that happens to an engine; `slots` goes with `slots`, `failure` and `resets_ms` with `fail`."""

    at_ms: int
    engine: str
    event: str
    slots: int = 0
    failure: str = ""
    resets_ms: int | None = None


Happening = Arrival | FleetEvent


@dataclass(frozen=True, slots=True)
class Trace:
    """What happens, in order of time; at one instant in the order of the file."""

    happenings: tuple[Happening, ...]

    @property
    def jobs(self) -> int:
        """How many jobs arrive."""
        return sum(isinstance(each, Arrival) for each in self.happenings)


def parse(lines: Iterable[str], source: str, engines: Collection[str], capabilities: Collection[str]) -> Trace:
    """Read a trace for a fleet of these engines; raises `SettingsError` with every problem found."""
    reader = _Reader(frozenset(engines), frozenset(capabilities))
    found: list[Happening] = []
    for number, text in enumerate(lines, 1):
        if text.strip():
            happening = reader.line(number, text)
            if happening is not None:
                found.append(happening)
        if len(reader.problems) >= MOST_PROBLEMS:
            break
    if reader.problems:
        raise SettingsError(source, tuple(reader.problems))
    return Trace(tuple(found))


class _Unusable(ValueError):
    """A value that will not do; the text says what was expected."""


class _Reader:
    """Reads lines one by one, gathering problems."""

    def __init__(self, engines: frozenset[str], capabilities: frozenset[str]) -> None:
        self.problems: list[Problem] = []
        self._engines = engines
        self._capabilities = capabilities
        self._jobs: set[str] = set()
        self._last_ms = 0
        self._line = 0

    def line(self, number: int, text: str) -> Happening | None:
        """What a line says; None, with a problem, when it cannot be used."""
        self._line = number
        before = len(self.problems)
        try:
            said = DECODER.decode(text)
        except (ValueError, ArithmeticError, RecursionError) as error:
            self._problem("", text.strip()[:60], f"expected one JSON object a line ({error})")
            return None
        if not isinstance(said, dict):
            self._problem("", str(said)[:60], "expected a JSON object")
            return None
        is_event = "event" in said or ("engine" in said and "job" not in said)
        self._known(said, EVENT_KEYS if is_event else ARRIVAL_KEYS)
        at_ms = self._value(said, "at", _instant, required=True)
        if at_ms is not None and at_ms < self._last_ms:
            self._problem("at", said["at"], f"lines go by time, and one before is at {self._last_ms / 1000:g}")
        happening = self._event(said, at_ms) if is_event else self._arrival(said, at_ms)
        if len(self.problems) > before:
            return None
        self._last_ms = happening.at_ms
        return happening

    def _arrival(self, said: dict[str, Any], at_ms: int | None) -> Arrival:
        job = self._value(said, "job", _name, required=True)
        if job is not None and job in self._jobs:
            self._problem("job", job, "expected a name no other job of the trace has")
        self._jobs.add(job or "")
        known = self._engines
        return Arrival(
            at_ms=at_ms or 0,
            job=job or "",
            project=self._value(said, "project", _name) or "default",
            priority=self._value(said, "priority", _whole) or 0,
            effort=self._value(said, "effort", _effort) or Effort.LOW,
            requires=self._value(said, "requires", _names(self._capabilities, "capability")) or frozenset(),
            exclude=self._value(said, "exclude", _names(known, "engine")) or frozenset(),
            session=self._value(said, "session", _name),
            running_ms=self._value(said, "seconds", _durations(known)),
        )

    def _event(self, said: dict[str, Any], at_ms: int | None) -> FleetEvent:
        engine = self._value(said, "engine", _one_of(self._engines, "engine"), required=True) or ""
        event = self._value(said, "event", _one_of(EVENTS, "event"), required=True) or ""
        slots, failure, resets_ms = 0, "", None
        if event == "slots":
            slots = self._value(said, "value", _slots, required=True) or 0
        elif event == "fail":
            failure = self._value(said, "value", _one_of(FAILURES, "failure"), required=True) or ""
            resets_ms = self._value(said, "resets_in", _duration)
        elif said.get("value") is not None:
            self._problem("value", said["value"], f"{event} takes no value")
        return FleetEvent(at_ms or 0, engine, event, slots, failure, resets_ms)

    def _known(self, said: dict[str, Any], known: tuple[str, ...]) -> None:
        for key, value in said.items():
            if key not in known:
                self._problem(key, value, f"unknown key; known here: {', '.join(known)}")

    def _value(self, said: dict[str, Any], key: str, reading: Callable[[Any], Any], *, required: bool = False) -> Any:  # noqa: ANN401  each key has a type of its own
        value = said.get(key)
        if value is None:
            if required:
                self._problem(key, None, "this key is required")
            return None
        try:
            return reading(value)
        except _Unusable as error:
            self._problem(key, value, f"expected {error}")
            return None

    def _problem(self, key: str, value: object, sentence: str) -> None:
        place = f"line {self._line}" + (f", {key}" if key else "")
        shown = float(value) if isinstance(value, Decimal) else value
        self.problems.append(Problem(place, shown, sentence))


def _milliseconds(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _Unusable(what)
    number = Decimal(value)
    if not number.is_finite() or not 0 <= number <= LONGEST_SECONDS:
        raise _Unusable(what)
    return math.floor(number * 1000)


def _instant(value: object) -> int:
    return _milliseconds(value, f"seconds from 0 to {LONGEST_SECONDS}")


def _duration(value: object) -> int:
    return _milliseconds(value, f"a duration in seconds from 0 to {LONGEST_SECONDS}")


def _name(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise _Unusable("one line of text, or a whole number")


def _whole(value: object) -> int:
    if type(value) is int and -(2**31) <= value < 2**31:
        return value
    raise _Unusable("a whole number")


def _slots(value: object) -> int:
    if type(value) is int and 1 <= value <= 1_000_000:
        return value
    raise _Unusable("a whole number of slots, at least 1; an engine goes with the event down")


def _effort(value: object) -> Effort:
    labels = [level.label for level in Effort]
    return Effort.named(_one_of(labels, "effort")(value))


def _one_of(known: Collection[str], what: str) -> Callable[[object], str]:
    def reading(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        names = known if isinstance(known, tuple | list) else sorted(known)
        raise _Unusable(f"a known {what}: {', '.join(names) or 'none is configured'}")

    return reading


def _names(known: Collection[str], what: str) -> Callable[[object], frozenset[str]]:
    one = _one_of(known, what)

    def reading(value: object) -> frozenset[str]:
        if not isinstance(value, list):
            raise _Unusable("a list of names")
        return frozenset(map(one, value))

    return reading


def _durations(known: Collection[str]) -> Callable[[object], dict[str, int]]:
    one = _one_of([*sorted(known), ANY], "engine")

    def reading(value: object) -> dict[str, int]:
        if not isinstance(value, dict):
            raise _Unusable('seconds by engine, such as {"*": 60}')
        return {one(name): _duration(seconds) for name, seconds in value.items()}

    return reading
