"""Rules: how a client's table of refusals is written, and how a line of its output is held against it.

A rule names the *form* of an event: dotted paths into its JSON object, each with what must be there. A line that is
no JSON is the event `{"line": text}`. Texts are matched in full, never searched, and only in fields that the client
itself or its provider fills: what a model says is in other fields, so a job may talk of 429 as much as it likes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from vibey.engines.clients.signs import Sign, answered
from vibey.engines.resets import reset_seconds

Event = Mapping[str, Any]
Matcher = object
"""A value that must be equal, a pattern that must match a whole text, a set to be in, or a function that says yes."""
ABSENT = object()
BY_STATUS = None
_CLOCK = re.compile(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th)?,? (\d{4}),? )?(\d{1,2}):(\d{2}) ?([AP]M)", re.IGNORECASE
)
_PARTS = re.compile(r"(?:try again|resets?) in ((?:\d+ (?:day|hour|minute|second)s?(?:,? (?:and )?)?)+)", re.IGNORECASE)
_PART = re.compile(r"(\d+) (day|hour|minute|second)")
_SECONDS = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a client's table.

    `means` is a sign, or BY_STATUS: then `status` leads to the HTTP status. `status`, `says`, `body`, `headers` and
    `resets` are each a group of a pattern in `form`, or a path; `says` is for people, `body` is the provider's own
    answer (default: what `says` leads to), `resets` is Unix seconds.
    """

    form: Mapping[str, Matcher]
    means: Sign | None
    says: str = ""
    status: str = ""
    body: str = ""
    headers: str = ""
    resets: str = ""

    def sign(self, event: Event) -> Sign | None:
        """The sign this event is; None if it has another form."""
        groups = self._groups(event)
        if groups is None:
            return None

        def at(name: str) -> Any:  # noqa: ANN401  (what a path leads to)
            return groups[name] if name in groups else lookup(event, name)

        said = text_of(at(self.says)) if self.says else ""
        if self.means is BY_STATUS:
            return self._by_status(at, said)
        moment = at(self.resets) if self.resets else None
        sign = self.means.saying(said)
        if isinstance(moment, int | float) and not isinstance(moment, bool) and 0 < moment < 1e11:
            return replace(sign, resets_at=float(moment))
        return replace(sign, resets_in=spoken_reset(said)) if sign.kind is not None and said else sign

    def _by_status(self, at: Callable[[str], Any], said: str) -> Sign | None:
        status = _whole(at(self.status))
        if status is None or not 300 <= status <= 599:
            return None
        headers = at(self.headers) if self.headers else None
        told = {str(name): str(value) for name, value in headers.items()} if isinstance(headers, Mapping) else {}
        body = text_of(at(self.body)) if self.body else ""
        sign = answered(status, body or said, told)
        if sign.resets_in is None and sign.kind is not None:
            sign = replace(sign, resets_in=spoken_reset(said))
        return sign.saying(f"HTTP {status}: {said}") if said else sign

    def _groups(self, event: Event) -> dict[str, str] | None:
        groups: dict[str, str] = {}
        for path, matcher in self.form.items():
            found = _matched(matcher, lookup(event, path))
            if found is None:
                return None
            groups.update(found)
        return groups


@dataclass(frozen=True, slots=True)
class Table:
    """A client's rules, the first that fits counts; `exits` are exit codes that say what the output may not."""

    rules: tuple[Rule, ...]
    exits: Mapping[int, Sign] = field(default_factory=dict)

    def sign(self, event: Event) -> Sign | None:
        """The sign this event is, None if it is none."""
        return next((sign for rule in self.rules if (sign := rule.sign(event)) is not None), None)


def lookup(event: object, path: str) -> Any:  # noqa: ANN401  (a part of any JSON)
    """The value at a dotted path, ABSENT if there is none; a number is an index."""
    for step in path.split("."):
        if isinstance(event, Mapping):
            event = event.get(step, ABSENT)
        elif isinstance(event, list) and step.isdigit() and int(step) < len(event):
            event = event[int(step)]
        else:
            return ABSENT
    return event


def text_of(value: object) -> str:
    """A text as it is, anything else as none."""
    return value if isinstance(value, str) else ""


def spoken_reset(said: str, now: float | None = None) -> float | None:
    """Seconds until the moment these words name: "in 3 days 2 hours", "at 5:23 PM" (this machine's time), "in 3s"."""
    clock = time.time() if now is None else now
    parts = _PARTS.search(said)
    if parts:
        return float(sum(int(number) * _SECONDS[unit.lower()] for number, unit in _PART.findall(parts[1].lower())))
    moment = _CLOCK.search(said)
    if moment:
        return _until(moment, clock)
    return reset_seconds({}, said, clock)


def _until(spoken: re.Match[str], clock: float) -> float | None:
    month, day, year, hour, minute, half = spoken.groups()
    now = datetime.fromtimestamp(clock).astimezone()
    try:
        hours = datetime.strptime(f"{hour}:{minute} {half.upper()}", "%I:%M %p")  # noqa: DTZ007  (a time of day only)
        if month is None:
            moment = now.replace(hour=hours.hour, minute=hours.minute, second=0, microsecond=0)
            moment += timedelta(days=1) if moment <= now else timedelta()
        else:
            spelled = f"{month.title()} {day} {year} {hours.hour}:{hours.minute}"
            moment = datetime.strptime(spelled, "%b %d %Y %H:%M").astimezone()
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - clock)


def _matched(matcher: Matcher, value: object) -> dict[str, str] | None:
    """Named groups of a match, None for no match."""
    if isinstance(matcher, re.Pattern):
        match = matcher.fullmatch(value) if isinstance(value, str) else None
        return None if match is None else {name: text for name, text in match.groupdict().items() if text is not None}
    if isinstance(matcher, frozenset):
        fits = isinstance(value, str | int) and value in matcher
    elif callable(matcher):
        fits = bool(matcher(value))
    else:
        fits = type(value) is type(matcher) and value == matcher
    return {} if fits else None


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
