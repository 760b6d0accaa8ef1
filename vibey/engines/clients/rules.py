"""Rules: how a client's table of refusals is written, and how a line of its output is held against it.

A rule names the *form* of an event: dotted paths into its JSON object, each with what must be there. A line that is
no JSON is the event `{"line": text}`. Texts are matched in full, never searched, and only in fields that the client
itself or its provider fills: what a model says is in other fields, so a job may talk of 429 as much as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vibey.domain.outcome import FailureClass
from vibey.engines.clients.signs import Sign, answered, reset_of, worded

Event = Mapping[str, Any]
Matcher = object
"""A value that must be equal, a pattern that must match a whole text, a set to be in, or a function that says yes."""
ABSENT = object()
BY_STATUS = None
NOTHING = Sign(FailureClass.ENGINE, detail="no sign")


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a client's table.

    `means` is a sign, or BY_STATUS: then `status` leads to the HTTP status. `status`, `says`, `body`, `headers` and
    `resets` are each a group of a pattern in `form`, or a path; `says` is for people, `body` is the provider's own
    answer (default: what `says` leads to), `resets` is Unix seconds. `judged` finds what `says` leads to in the table
    of causes (`signs.worded`, `signs.sentence`); `means` is for words that are not there, NOTHING for no sign at all.
    """

    form: Mapping[str, Matcher]
    means: Sign | None
    says: str = ""
    status: str = ""
    body: str = ""
    headers: str = ""
    resets: str = ""
    judged: Callable[[str], Sign | None] | None = None

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
        found = self.judged(said) if self.judged is not None and said else None
        if found is not None or self.means is NOTHING:
            return found
        moment = at(self.resets) if self.resets else None
        sign = self.means.saying(said)
        if isinstance(moment, int | float) and not isinstance(moment, bool) and 0 < moment < 1e14:
            return replace(sign, resets_at=moment / 1000 if moment >= 1e11 else float(moment))
        return replace(sign, resets_in=reset_of(sign, said))

    def _by_status(self, at: Callable[[str], Any], said: str) -> Sign | None:
        status = _whole(at(self.status))
        if status is None or not 300 <= status <= 599:
            return None
        headers = at(self.headers) if self.headers else None
        told = {str(name): str(value) for name, value in headers.items()} if isinstance(headers, Mapping) else {}
        body = text_of(at(self.body)) if self.body else ""
        sign = answered(status, body or said, told)
        if sign.resets_in is None:
            sign = replace(sign, resets_in=reset_of(sign, said))
        return sign.saying(f"HTTP {status}: {said}") if said else sign

    def _groups(self, event: Event) -> dict[str, str] | None:
        groups: dict[str, str] = {}
        for path, matcher in self.form.items():
            found = _matched(matcher, lookup(event, path))
            if found is None:
                return None
            groups.update(found)
        return groups


FATAL = Rule(
    {"error.type": re.compile(r"(?!FatalTool)\w*Error"), "error.message": lambda value: isinstance(value, str)},
    NOTHING,
    says="error.message",
    judged=worded,
)
"""What gemini and its descendants end with when no event can be printed any more; else the exit code decides.

The error of a tool repeats what the job's own commands print, and is left out.
"""


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
