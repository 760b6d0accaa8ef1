"""Moments: instants that a sentence names by the calendar and the clock, as "resets Dec 4, 3pm (America/New_York)".

A time of day without a day is the next one there is. A zone is looked up in the zone database. A sentence that leaves a
doubt names no moment: a zone that is unknown or ambiguous, a time of day that has just passed, a day without a year
that is far away.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

JUST_PASSED = timedelta(minutes=15)
"""A time of day this short a while ago is more likely the reset that has come than the same time tomorrow."""
FARTHEST_WITHOUT_YEAR = timedelta(days=62)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Abbreviations that mean one zone of the database to everybody. CST, IST and BST do not.
_ABBREVIATIONS = {
    "UTC": "UTC",
    "GMT": "UTC",
    "Z": "UTC",
    "PT": "America/Los_Angeles",
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "PACIFIC": "America/Los_Angeles",
    "MDT": "America/Denver",
    "CDT": "America/Chicago",
    "ET": "America/New_York",
    "EST": "America/New_York",
    "EDT": "America/New_York",
    "EASTERN": "America/New_York",
    "CET": "Europe/Paris",
    "CEST": "Europe/Paris",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
}
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = (
    r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?)"
)
_ORDINAL = r"(?:st|nd|rd|th)?"
_DAY = (
    rf"(?:(?:{_WEEKDAY},?\s+)?(?P<month{{n}}>{_MONTH})\s+(?P<day{{n}}>\d{{{{1,2}}}}){_ORDINAL}(?:,?\s+(?P<year{{n}}>\d{{{{4}}}}))?"
    rf"|(?P<day_b{{n}}>\d{{{{1,2}}}}){_ORDINAL}\s+(?:of\s+)?(?P<month_b{{n}}>{_MONTH})(?:,?\s+(?P<year_b{{n}}>\d{{{{4}}}}))?"
    rf"|(?P<iso{{n}}>\d{{{{4}}}}-\d\d-\d\d)"
    rf"|(?P<weekday{{n}}>{_WEEKDAY})(?![a-z])"
    rf"|(?P<relative{{n}}>today|tomorrow))"
)
_CLOCK = (
    r"(?:(?P<hour12>\d{1,2})(?::(?P<minute12>\d{2}))?(?::\d{2})?\s*(?P<half>[ap])\.?m\b\.?"
    r"|(?P<hour24>\d{1,2}):(?P<minute24>\d{2})(?::(?P<second24>\d{2})(?:\.\d+)?)?(?!\d)"
    r"|(?P<named>noon|midnight)\b)"
)
_ZONE = (
    r"\s*(?:\((?P<zone>[^()]{1,60})\)"
    r"|(?P<offset>(?:UTC|GMT)?\s?[+-]\d{1,2}(?::?\d{2})?)(?!\w)"
    r"|(?P<bare>[A-Za-z_]+/[A-Za-z0-9_+\-/]+|(?-i:[A-Z]{1,4}T|UTC|GMT|Z)|pacific|eastern)\b)?"
)
_MOMENT = re.compile(
    rf"(?:(?:on\s+)?{_DAY.format(n=1)}\s*(?:,|T|·)?\s*(?:at\s+)?)?{_CLOCK}{_ZONE}(?:,?\s+(?:on\s+)?{_DAY.format(n=2)})?",
    re.IGNORECASE,
)
_DAY_ALONE = re.compile(rf"(?:on\s+)?{_DAY.format(n=1)}(?![\w:]){_ZONE}", re.IGNORECASE)
_EPOCH = re.compile(r"(\d{10}|\d{13})(?!\d)")
_LEAD = re.compile(
    r"\b(?:resets?|resetting|again|retry|available|access|renews?|refresh(?:es)?|until|returns?|back|lifted)\b"
    r"(?:\s+(?:will|be|back|again|is|your|the|limits?|quotas?|next|to|reset|time|daily)\b)*"
    r"(?:\s*[:=·-])?(?:\s*\b(?:at|on|by|after|from|until)\b)?(?:\s*:)?\s*",
    re.IGNORECASE,
)


def moment_in(text: str, now: float, zone: tzinfo | None = None) -> float | None:
    """The Unix second of the reset that a text names by calendar and clock, None if it names none for certain.

    `now` is Unix seconds. A time without a zone is in `zone`, by default this machine's.
    """
    for lead in _LEAD.finditer(text[:4000]):
        end = lead.end()
        epoch = _EPOCH.match(text, end)
        if epoch is not None:
            return float(epoch[1]) / (1000 if len(epoch[1]) == 13 else 1)
        found = _MOMENT.match(text, end) or _DAY_ALONE.match(text, end)
        if found is not None:
            try:
                return _instant(found.groupdict(), now, zone)
            except (ValueError, OverflowError, OSError):
                return None
    return None


def _instant(said: dict[str, str | None], now: float, zone: tzinfo | None) -> float | None:
    named = said["zone"] or said["offset"] or said["bare"]
    where = _zone_of(named, has_day=said.get("iso1") is not None) if named else _default_zone(said, zone)
    if named and where is None:
        return None
    here = datetime.fromtimestamp(now, where) if where else datetime.fromtimestamp(now)  # noqa: DTZ006  (this machine's)
    clock = _clock(said)
    day = _day(said, here, clock)
    if day is None:
        return None
    instant = datetime(day.year, day.month, day.day, *clock, tzinfo=where)
    seconds = instant.timestamp()
    return seconds if seconds > now else None


def _default_zone(said: dict[str, str | None], zone: tzinfo | None) -> tzinfo | None:
    # A date in figures alone is a server's, and servers write UTC.
    return UTC if said.get("iso1") or said.get("iso2") else zone


def _clock(said: dict[str, str | None]) -> tuple[int, int, int]:
    if said.get("named"):
        return (12 if str(said["named"]).lower() == "noon" else 0), 0, 0
    if said.get("hour12"):
        hour = int(said["hour12"] or 0)
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        return hour % 12 + (12 if str(said["half"]).lower() == "p" else 0), int(said["minute12"] or 0), 0
    return int(said.get("hour24") or 0), int(said.get("minute24") or 0), int(said.get("second24") or 0)


def _day(said: dict[str, str | None], here: datetime, clock: tuple[int, int, int]) -> date | None:
    """The day that is meant, seen from the moment `here`; None in doubt."""

    def part(name: str) -> str | None:
        return said.get(f"{name}1") or said.get(f"{name}2")

    today, found = here.date(), None
    passed = here - here.replace(hour=clock[0], minute=clock[1], second=clock[2], microsecond=0)
    month = part("month") or part("month_b")
    weekday, relative, iso = part("weekday"), part("relative"), part("iso")
    if iso:
        found = date.fromisoformat(iso)
    elif month:
        found = _dated(month, int(part("day") or part("day_b") or 0), part("year") or part("year_b"), today)
    elif relative:
        found = today + timedelta(days=relative.lower() == "tomorrow")
    else:
        ahead = (_WEEKDAYS.index(weekday[:3].lower()) - today.weekday()) % 7 if weekday else 0
        if ahead or passed < timedelta():
            found = today + timedelta(days=ahead)
        elif passed >= JUST_PASSED:
            found = today + timedelta(days=7 if weekday else 1)
    return found


def _dated(month: str, day: int, year: str | None, today: date) -> date | None:
    number = _MONTHS.index(month[:3].lower()) + 1
    if year:
        return date(int(year), number, day)
    this = date(today.year, number, day)
    found = this if this >= today else date(today.year + 1, number, day)
    return found if found - today <= FARTHEST_WITHOUT_YEAR else None


def _zone_of(name: str, *, has_day: bool) -> tzinfo | None:
    """The zone of this name, or of this distance from UTC; None if nobody can say which is meant."""
    name = name.strip()
    known = _ABBREVIATIONS.get(name.upper().removesuffix(" TIME"))
    offset = re.fullmatch(r"(UTC|GMT)?\s?([+-])(\d{1,2})(?::?(\d{2}))?", name, re.IGNORECASE)
    if offset is not None:
        # "3pm -05" is a distance only beside a whole date, as in "2026-12-01 06:00:00-05:00".
        minutes = int(offset[3]) * 60 + int(offset[4] or 0)
        if minutes > 14 * 60 or not (offset[1] or has_day):
            return None
        return timezone(timedelta(minutes=minutes if offset[2] == "+" else -minutes))
    for spelled in (known, name, name.replace(" ", "_"), "/".join(part.title() for part in name.split("/"))):
        if spelled:
            try:
                return ZoneInfo(spelled)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
    return None
