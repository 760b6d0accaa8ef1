"""Resets: when a provider that refused will serve again, from its headers, the fields of its error or its words.

A wait is never negative. What cannot be understood for certain is not understood at all: an instant that has passed, a
time zone that nobody can name, a wait of more than a year. The probe schedule of the circuit then decides.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from vibey.engines.errorbody import ErrorBody
from vibey.engines.moments import moment_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import tzinfo

LONGEST_SECONDS = 366 * 86400.0
"""No provider's wait is longer."""
CLOCK_SKEW_SECONDS = 300.0
"""An instant that passed so short a time ago has just come; an older one is no reset."""
_LONGEST_TEXT = 4000
_FIRST_EPOCH_SECOND = 1_000_000_000
_EPOCH_UNITS = ((10**18, 10**9), (10**15, 10**6), (10**12, 10**3), (10**9, 1))
_NUMBER = re.compile(r"\d{1,30}(?:\.\d{1,30})?")
_UNITS = {
    "ms": 0.001,
    "milli": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 7 * 86400.0,
}
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10}
_COUNT = r"\d{1,12}(?:\.\d{1,12})?|(?<![a-z])(?:an?|one|two|three|four|five|six|ten)(?=\s)"
_UNIT = r"milliseconds?|millis|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w"
_PART = re.compile(rf"(?<![\d.])(?<![a-z])({_COUNT})\s*({_UNIT})(?![a-z])", re.IGNORECASE)
_DURATION = re.compile(rf"{_PART.pattern}(?:\s*,?\s*(?:and\s+)?({_COUNT})\s*({_UNIT})(?![a-z]))*", re.IGNORECASE)
_EACH = re.compile(rf"({_COUNT})\s*({_UNIT})(?![a-z])", re.IGNORECASE)
_ISO_DURATION = re.compile(r"p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?)?", re.IGNORECASE)
# .NET writes days before a dot: 2.16:26:53.
_COLONS = re.compile(r"(?<![\d.:])(?:(\d{1,3})\.)?(\d{1,4}):([0-5]\d):([0-5]\d)(?:\.\d+)?")
_WAITING = (
    r"again|retry|retrying|retried|resets?|resetting|wait|waiting|available|refills?|refilled|renews?|refresh(?:es)?|replenished"
    r"|access|cool(?:s|ing)?[- ]?down|unlocks?|unblocked|lifted|back"
)
_LEADS_TO_WAIT = re.compile(
    rf"\b(?:{_WAITING})\b(?:\W+(?!per\b|every\b)\w+){{0,4}}?\W*?\b(?:in|after|for|wait|within|about|another|approximately"
    r"|at least)[\s:~]*$"
    rf"|\b(?:wait|retry-after|retry_after|cool-?down)[\s:=~]*$",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"\b(?:again in|retry in|retry[-_ ]after|resets? in|wait(?: for)?)[\s:=]*(\d{1,12}(?:\.\d{1,12})?)"
    r"(?=\s*(?:$|[.,;)\]}](?!\d)))",
    re.IGNORECASE,
)
_PIPED = re.compile(r"\|\s*(\d{10,19})(?!\d)")
_RELATIVE = re.compile(
    r"(?:retryafter|retryin|retrydelay|resets?in|resets?after|quotaresetdelay|wait|waittime|waitfor|estimatedtime"
    r"|cooldown|cooldowntime|timeuntilreset|untilreset)(ms|millis|milliseconds|s|secs?|seconds|mins?|minutes|hours|days)?"
)
_ABSOLUTE = re.compile(
    r"(?:resets?at|resets?on|resets?time|resets?timestamp|resets?date|quotaresettimestamp|retryat|availableat"
    r"|nextreset|nextresetat|budgetresetat|blockeduntil|limiteduntil|resets?)(?:epoch)?(?:ms|s|seconds|utc)?"
)
_RESET_HEADER = re.compile(
    r"((?:x-|anthropic-)?(?:ratelimit|rate-limit)(?:-.+?)??|x-codex(?:-.+?)??)-resets?(?:-(.+))?"
)
_DRAFT_RESET = re.compile(r"\b(?:reset|t)=(\d+)")
_SPENT = frozenset({"rejected", "exceeded", "blocked", "exhausted"})


def reset_seconds(
    headers: Mapping[str, str], body: str | ErrorBody, now: float, zone: tzinfo | None = None
) -> float | None:
    """Seconds until the provider serves again, None if it does not say so for certain.

    `headers` have lowercase names; `now` is the provider's own clock, Unix seconds; a time of day without a zone is
    `zone`'s, by default this machine's. The most explicit statement counts: what to wait, then when the spent limit is
    refilled, then the fields of the error, then its words.
    """
    said = body if isinstance(body, ErrorBody) else ErrorBody.of(body)
    # A LiteLLM gateway repeats its provider's headers under this prefix.
    headers = {name.removeprefix("llm_provider-"): value for name, value in headers.items()}
    found = (
        *_asked(headers, now),
        _refilled(headers, now),
        *_in_fields(said, now, zone),
        *_asked(said.headers, now),
        _refilled(said.headers, now),
        spoken_seconds(" ".join(said.messages), now, zone),
    )
    believed = [wait for wait in map(_believed, found) if wait is not None]
    # "Wait 0 seconds" beside a real wait says nothing.
    return next((wait for wait in believed if wait > 0), 0.0 if believed else None)


def spoken_seconds(text: str, now: float, zone: tzinfo | None = None) -> float | None:
    """Seconds until the moment that these words name: "in 3 days 2 hours", "in 1m30s", "resets 3pm (Europe/Berlin)"."""
    text = text[:_LONGEST_TEXT]
    piped = _PIPED.search(text)
    if piped is not None:
        return _believed(_epoch(float(piped[1]), now))
    for duration in _DURATION.finditer(text):
        if _LEADS_TO_WAIT.search(text, max(0, duration.start() - 80), duration.start()):
            return _believed(_duration(duration[0]))
    for colons in _COLONS.finditer(text):
        # After "at" it would be a time of day.
        if text[: colons.start()].rstrip().lower().endswith(" in"):
            return _believed(_of_colons(colons))
    bare = _BARE.search(text)
    if bare is not None and float(bare[1]) < _FIRST_EPOCH_SECOND:
        return _believed(float(bare[1]))
    moment = moment_in(text, now, zone)
    return None if moment is None else _believed(moment - now)


def provider_clock(headers: Mapping[str, str], ours: float) -> float:
    """The provider's Unix seconds by its `date` header, else `ours`."""
    moment = _http_date(headers.get("date", ""))
    return ours if moment is None else moment


def _believed(seconds: float | None) -> float | None:
    if seconds is None or not math.isfinite(seconds) or not -CLOCK_SKEW_SECONDS <= seconds <= LONGEST_SECONDS:
        return None
    return max(0.0, seconds)


def _asked(headers: Mapping[str, str], now: float) -> Iterator[float | None]:
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        milliseconds = headers.get(name, "").strip()
        yield float(milliseconds) / 1000 if _NUMBER.fullmatch(milliseconds) else None
    for name in ("retry-after", "x-retry-after", "x-ratelimit-retry-after"):
        yield _wait(headers.get(name, ""), now)


def _refilled(headers: Mapping[str, str], now: float) -> float | None:
    """The wait for the last of the limits that are spent; if none is said to be, for the last of all."""
    waits: list[tuple[bool, float]] = []
    for name, value in headers.items():
        found = _RESET_HEADER.fullmatch(name)
        wait = _believed(_wait(f"{value}ms" if name.endswith("-ms") else value, now)) if found else None
        if found is not None and wait is not None:
            waits.append((_is_spent(headers, found[1], found[2] or ""), wait))
        elif name in {"ratelimit", "x-ratelimit"} and (draft := _DRAFT_RESET.search(value)):
            waits.append((re.search(r"\b(?:remaining|r)=0\b", value) is not None, float(draft[1])))
    spent = [wait for is_spent, wait in waits if is_spent]
    return max(spent or [wait for _, wait in waits], default=None)


def _is_spent(headers: Mapping[str, str], limit: str, unit: str) -> bool:
    remaining = {f"{limit}-remaining", f"{limit}-remaining-{unit}"}
    if any(headers.get(name, "").strip() == "0" for name in remaining):
        return True
    if headers.get(f"{limit}-status", "").strip().lower() in _SPENT:
        return True
    used = headers.get(f"{limit}-used-percent", "")
    return bool(_NUMBER.fullmatch(used)) and float(used) >= 100


def _in_fields(said: ErrorBody, now: float, zone: tzinfo | None) -> Iterator[float | None]:
    """Waits first: an instant depends on two clocks, a wait on one."""
    absolute: list[float | None] = []
    for name, value in said.fields.items():
        relative = _RELATIVE.fullmatch(name)
        if relative is not None:
            yield _of_wait_field(value, relative[1] or "s", now)
        elif _ABSOLUTE.fullmatch(name):
            absolute.append(_of_instant_field(value, now, zone))
    yield from absolute


def _of_wait_field(value: object, unit: str, now: float) -> float | None:
    if isinstance(value, str):
        text = value.strip()
        return _wait(text, now) if not _NUMBER.fullmatch(text) else _of_wait_field(float(text), unit, now)
    if not isinstance(value, int | float) or value < 0 or value > 10**20:
        return None
    seconds = float(value) * _unit(unit)
    return _epoch(float(value), now) if unit.startswith("s") and value >= _FIRST_EPOCH_SECOND else seconds


def _of_instant_field(value: object, now: float, zone: tzinfo | None) -> float | None:
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text):
            wait = _wait(text, now)
            if wait is not None:
                return wait
            moment = moment_in(f"resets at {text}", now, zone)
            return None if moment is None else moment - now
        value = float(text)
    if not isinstance(value, int | float) or not _FIRST_EPOCH_SECOND <= value <= 10**20:
        return None
    return _epoch(float(value), now)


def _wait(text: str, now: float) -> float | None:
    """The wait that a header's value means: seconds, an epoch of any unit, a duration, or a date."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        number = float(text)
        return _epoch(number, now) if number >= _FIRST_EPOCH_SECOND else number
    if _DURATION.fullmatch(text):
        return _duration(text)
    iso = _ISO_DURATION.fullmatch(text)
    if iso is not None and any(iso.groups()):
        return sum(float(count or 0) * unit for count, unit in zip(iso.groups(), (86400, 3600, 60, 1), strict=True))
    colons = _COLONS.fullmatch(text)
    if colons is not None:
        return _of_colons(colons)
    moment = _iso_date(text)
    if moment is None:
        moment = _http_date(text)
    return None if moment is None else moment - now


def _of_colons(colons: re.Match[str]) -> float:
    return float(colons[1] or 0) * 86400 + float(colons[2]) * 3600 + float(colons[3]) * 60 + float(colons[4])


def _epoch(number: float, now: float) -> float | None:
    return next((number / unit - now for least, unit in _EPOCH_UNITS if number >= least), None)


def _duration(text: str) -> float:
    return sum(_count(count) * _unit(unit) for count, unit in _EACH.findall(text))


def _count(text: str) -> float:
    return float(_COUNTS.get(text.lower()) or text)


def _unit(text: str) -> float:
    text = text.lower()
    return _UNITS["ms" if text.startswith(("ms", "milli")) else text[0]]


def _iso_date(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return _seconds_of(moment)


def _http_date(text: str) -> float | None:
    try:
        return _seconds_of(parsedate_to_datetime(text))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _seconds_of(moment: datetime) -> float | None:
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
