"""Resets: when a provider that refused says it will serve again, found in its headers or its words."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SPOKEN = re.compile(
    r"(?:again in|retry in|retry after|wait|resets? in)\s+(?:about )?(\d+(?:\.\d+)?)\s*"
    r"(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)?\b"
)
_COMPACT = re.compile(rf"(?:again in|retry in|retry after|wait|resets? in)\s+((?:{_PART.pattern})+)(?!\w)")
_FIELD = re.compile(r'"(?:retrydelay|retry_after|resets_in_seconds|resets_in|reset_at|resets_at)"\s*:\s*"?([^",}\s]+)')
_LONGEST_SECONDS = 366 * 86400.0
_FIRST_EPOCH_SECOND = 1_000_000_000
_FIRST_EPOCH_MS = 1_000_000_000_000


def reset_seconds(headers: Mapping[str, str], body: str, now: float) -> float | None:
    """Seconds until the provider serves again, None if it does not say.

    `headers` have lowercase names; `now` is the provider's own clock, Unix seconds. The most explicit word
    counts: what to wait, then when the spent limit is refilled, then the body's text.
    """
    for found in (*_asked(headers, now), _refilled(headers, now), _said(body.lower(), now)):
        if found is not None:
            return min(max(0.0, found), _LONGEST_SECONDS)
    return None


def provider_clock(headers: Mapping[str, str], ours: float) -> float:
    """The provider's Unix seconds by its `date` header, else `ours`."""
    moment = _http_date(headers.get("date", ""))
    return ours if moment is None else moment


def _asked(headers: Mapping[str, str], now: float) -> Iterator[float | None]:
    milliseconds = headers.get("retry-after-ms", "")
    yield float(milliseconds) / 1000 if _NUMBER.fullmatch(milliseconds) else None
    yield _wait(headers.get("retry-after", ""), now)


def _refilled(headers: Mapping[str, str], now: float) -> float | None:
    """The wait for the last of the limits that are spent; if none is said to be, for the last of all."""
    waits: list[tuple[bool, float]] = []
    for name, value in headers.items():
        found = re.fullmatch(r"((?:x|anthropic)-ratelimit-)(?:(.+)-)?reset(-.+)?", name)
        wait = _wait(value, now) if found else None
        if found is not None and wait is not None:
            kind = found[2] or ""
            left = f"{found[1]}{kind}{'-' if kind else ''}remaining{found[3] or ''}"
            waits.append((headers.get(left, "").strip() == "0", wait))
    spent = [wait for is_spent, wait in waits if is_spent]
    return max(spent or [wait for _, wait in waits], default=None)


def _said(text: str, now: float) -> float | None:
    field = _FIELD.search(text)
    wait = _wait(field[1], now) if field else None
    if wait is not None:
        return wait
    compact = _COMPACT.search(text)
    if compact is not None:
        return _duration(compact[1])
    spoken = _SPOKEN.search(text)
    if spoken is None:
        return None
    unit = spoken[2] or "s"
    return float(spoken[1]) * _UNITS["ms" if unit.startswith(("ms", "milli")) else unit[0]]


def _wait(text: str, now: float) -> float | None:
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number >= _FIRST_EPOCH_MS:
            return number / 1000 - now
        return number - now if number >= _FIRST_EPOCH_SECOND else number
    if _DURATION.fullmatch(text):
        return _duration(text)
    moment = _iso_date(text)
    if moment is None:
        moment = _http_date(text)
    return None if moment is None else moment - now


def _duration(text: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _iso_date(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
