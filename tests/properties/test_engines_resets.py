"""Resets in every spelling: total, unit-safe, never in the past, and no guess where there is a doubt."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from vibey.engines.moments import FARTHEST_WITHOUT_YEAR, JUST_PASSED, moment_in
from vibey.engines.resets import CLOCK_SKEW_SECONDS, LONGEST_SECONDS, provider_clock, reset_seconds, spoken_seconds

NOW = 1_800_000_000.0  # 2027-01-15 08:00 UTC, a Friday
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Chatham", "UTC", "America/Los_Angeles"]
NOWS = st.floats(1_500_000_000, 2_500_000_000).map(float)
HEADERS = [
    "retry-after",
    "retry-after-ms",
    "date",
    "x-ratelimit-reset",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-remaining-tokens",
    "anthropic-ratelimit-unified-5h-reset",
    "ratelimit",
]
WORDS = [
    "try again in ",
    "resets at ",
    "resets ",
    "retry after ",
    "3pm",
    "12:61 am",
    "(Europe/Berlin)",
    "UTC+99",
    " Feb 30",
    "2027-13-45",
    "T25:00:00Z",
    "1h2m",
    "|99999999999",
    "99999999999999 s",
    "-5",
    "tomorrow ",
    "Dec 4, ",
    " days",
    "9" * 50,
    "NaN",
    "1e999",
]


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "120"}, "", 120.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, "", 1.5),
        ({"retry-after": "Fri, 15 Jan 2027 08:01:00 GMT"}, "", 60.0),
        ({"llm_provider-retry-after": "9"}, "", 9.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, "", 360.0),
        (
            {
                "x-ratelimit-reset-requests": "2h",
                "x-ratelimit-reset-tokens": "90ms",
                "x-ratelimit-remaining-requests": "4",
                "x-ratelimit-remaining-tokens": "0",
            },
            "",
            0.09,
        ),
        ({"x-ratelimit-reset": str(int(NOW * 1000) + 5000)}, "", 5.0),
        ({"x-ratelimit-reset": str(int(NOW) + 5)}, "", 5.0),
        ({"anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:30Z"}, "", 30.0),
        (
            {
                "anthropic-ratelimit-unified-5h-reset": str(int(NOW) + 60),
                "anthropic-ratelimit-unified-5h-status": "rejected",
                "anthropic-ratelimit-unified-7d-reset": str(int(NOW) + 9000),
                "anthropic-ratelimit-unified-7d-status": "allowed",
            },
            "",
            60.0,
        ),
        ({"x-codex-primary-reset-after-seconds": "77", "x-codex-primary-used-percent": "100"}, "", 77.0),
        ({"ratelimit": '"default";r=0;t=30'}, "", 30.0),
        ({"ratelimit": "limit=10, remaining=0, reset=4"}, "", 4.0),
        ({}, "Please try again in 6m0s.", 360.0),
        ({}, "Please try again in 20 seconds", 20.0),
        ({}, "Please retry in 12.5s", 12.5),
        ({}, "try again in 3 hours", 10800.0),
        ({}, "Try again in 250ms.", 0.25),
        ({}, "try again in 1h2m", 3720.0),
        ({}, "try again in 1 hour and 2 minutes", 3720.0),
        ({}, "Try again in 2 days 3 hours 4 minutes.", 2 * 86400 + 3 * 3600 + 240),
        ({}, "Your quota will reset after 16h22m33s.", 16 * 3600 + 22 * 60 + 33),
        ({}, "Please wait an hour before you retry", 3600.0),
        ({}, "Suggested retry after 3600s.", 3600.0),
        ({}, "Retry-After: 12", 12.0),
        ({}, "Quota will be replenished in 01:02:03.", 3723.0),
        ({}, "limit of 100 requests per 1 minute. Try again later", None),
        ({}, "nothing of the kind", None),
        ({}, '{"error":{"details":[{"retryDelay": "23s"}]}}', 23.0),
        ({}, '{"error":{"details":[{"metadata":{"quotaResetDelay": "7h22m1.5s"}}]}}', 7 * 3600 + 22 * 60 + 1.5),
        ({}, '{"error":{"resets_in_seconds": 77}}', 77.0),
        ({}, '{"error":{"resets_at": null, "resets_in_seconds": 77}}', 77.0),
        ({}, '{"error":{"resets_at": "", "resets_in": "1h"}}', 3600.0),
        ({}, '{"error":{"resets_at": 0, "retry_after_ms": 1500}}', 1.5),
        ({}, json.dumps({"error": {"resets_at": NOW + 9, "resets_in_seconds": 8}}), 8.0),
        ({}, json.dumps({"error": {"resets_at": int(NOW) + 9}}), 9.0),
        ({}, json.dumps({"error": {"resetsAt": int(NOW * 1000) + 9000}}), 9.0),
        ({}, json.dumps({"error": {"reset_time": "2027-01-15T08:00:10+00:00"}}), 10.0),
        ({}, json.dumps({"error": "loading", "estimated_time": 20.5}), 20.5),
        ({}, json.dumps({"error": {"metadata": {"headers": {"X-RateLimit-Reset": str(int(NOW * 1000) + 7000)}}}}), 7.0),
        ({}, json.dumps({"error": {"data": {"responseHeaders": {"retry-after": "33"}}}}), 33.0),
        ({}, "usage limit reached|" + str(int(NOW) + 60), 60.0),
        ({}, "resets 9am (UTC)", 3600.0),
        ({}, "resets at 9am (Europe/Berlin).", None),  # it is that time there this minute
        ({}, "resets 3pm (America/New_York)", 12 * 3600.0),
        ({}, "resets Jan 18, 3pm (America/New_York)", 3 * 86400 + 12 * 3600.0),
        ({}, "resets Monday 9am (Europe/London)", 3 * 86400 + 3600.0),
        ({}, "resets tomorrow at 9am UTC", 86400 + 3600.0),
        ({}, "resets at noon Pacific", 12 * 3600.0),
        ({}, "resets 10:30 UTC+2", 1800.0),
        ({}, "You will regain access on 2027-02-01 at 00:00 UTC.", 16 * 86400 + 16 * 3600.0),
        ({}, "Limit resets at: 2027-01-15 08:08:05 UTC", 485.0),
        ({}, "quota resets daily at 09:00 UTC", 3600.0),
        ({}, "Your limit will be reset on Jan 16, 2027 at 8:30 AM UTC", 86400 + 1800.0),
        ({}, "blocked until 2027-01-15T12:00:00+02:00", 2 * 3600.0),
        ({}, "available again in ~20 min", 1200.0),
        ({"x-ratelimit-reset-ms": "9000"}, "", 9.0),
        ({"x-ratelimit-reset-requests-day": "33011.38", "x-ratelimit-remaining-requests-day": "0"}, "", 33011.38),
        ({}, "or try again at Jan 16th, 2027 8:00 AM.", 86400.0),
        ({"retry-after": "0"}, "try again in 5s", 5.0),
        ({"retry-after": "0"}, "slow down", 0.0),
        ({"x-ratelimit-reset": str(int(NOW) - 50)}, "", 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "", None),
        ({"retry-after": "99999999999999999999"}, "", None),
        ({"retry-after": "9" * 400}, "", None),
        ({}, "try again in " + "9" * 400 + " days", None),
        ({"retry-after": "soon"}, "come back later", None),
        ({"retry-after": "-5"}, "", None),
        ({}, "Resets at 2027-01-15T02:00:00Z", None),
        ({}, "resets 3pm (Mars/Base)", None),
        ({}, "resets 3pm CST", None),
        ({}, "resets 7:59am UTC", None),
        ({}, "resets monthly", None),
        ({}, "resets at 3", None),
        ({}, "resets Aug 4, 3pm UTC", None),
        ({}, "try again at Feb 31st, 2099 3:04 AM", None),
        ({}, json.dumps({"error": {"resets_at": 1800}}), None),
    ],
)
def test_reset_is_found(headers: dict[str, str], body: str, seconds: float | None) -> None:
    """Every usual way to name a reset is understood, and what leaves a doubt is not."""
    assert reset_seconds(headers, body, NOW, UTC) == pytest.approx(seconds)


def test_clock_is_the_providers() -> None:
    """Its date header counts, ours only without one."""
    assert provider_clock({"date": "Fri, 15 Jan 2027 08:00:00 GMT"}, 5.0) == NOW
    assert provider_clock({"date": "yesterday"}, 5.0) == 5.0


@given(
    st.dictionaries(st.sampled_from(HEADERS), st.text(max_size=30) | st.sampled_from(WORDS)),
    st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=6).map("".join),
    st.sampled_from(["", '{"error":{"resets_at":%s}}', '{"error":{"message":%s}}', '{"error":{"retry_after":%s}}']),
    NOWS,
)
@example({"retry-after": "inf"}, "resets 0:00 (../../etc/passwd)", "", NOW)
def test_any_text_gives_a_wait_or_none(headers: dict[str, str], words: str, form: str, now: float) -> None:
    """Total and never negative, whatever is said."""
    body = form % json.dumps(words) if form else words
    found = reset_seconds(headers, body, now)
    assert found is None or 0 <= found <= LONGEST_SECONDS


UNITS = [
    ("ms", 0.001),
    (" milliseconds", 0.001),
    ("s", 1),
    (" sec", 1),
    (" seconds", 1),
    ("m", 60),
    (" minutes", 60),
    (" mins", 60),
    ("h", 3600),
    (" hours", 3600),
    ("d", 86400),
    (" days", 86400),
]


@given(st.sampled_from(UNITS), st.integers(1, 300), st.sampled_from(["try again in ", "reset after ", "Please wait "]))
def test_a_wait_keeps_its_unit(unit: tuple[str, float], number: int, lead: str) -> None:
    """A number means what its unit says, in words and in headers."""
    seconds = pytest.approx(number * unit[1])
    assert spoken_seconds(f"{lead}{number}{unit[0]}.", NOW) == seconds
    assert reset_seconds({"x-ratelimit-reset": f"{number}{unit[0]}"}, "", NOW) == seconds


@given(
    st.lists(st.integers(0, 59), min_size=4, max_size=4),
    st.sampled_from(["compact", "spaced", "words", "commas", "iso"]),
)
def test_several_units_add_up(parts: list[int], form: str) -> None:
    """Days, hours, minutes and seconds together, in any spelling."""
    days, hours, minutes, seconds = parts
    assume(any(parts))
    said = {
        "compact": f"{days}d{hours}h{minutes}m{seconds}s",
        "spaced": f"{days}d {hours}h {minutes}m {seconds}s",
        "words": f"{days} days {hours} hours {minutes} minutes {seconds} seconds",
        "commas": f"{days} days, {hours} hours, {minutes} minutes and {seconds} seconds",
        "iso": f"P{days}DT{hours}H{minutes}M{seconds}S",
    }[form]
    whole = pytest.approx(days * 86400 + hours * 3600 + minutes * 60 + seconds)
    if form == "iso":
        assert reset_seconds({"retry-after": said}, "", NOW) == whole
    else:
        assert spoken_seconds(f"Limit reached, try again in {said}", NOW) == whole


@given(NOWS.map(int), st.integers(1, 30 * 86400), st.sampled_from([1, 1000, 10**6, 10**9]), st.booleans())
def test_epochs_of_any_unit(now: int, ahead: int, unit: int, as_text: bool) -> None:  # noqa: FBT001
    """Seconds, milliseconds, microseconds and nanoseconds since 1970 are told apart by their size."""
    number = (now + ahead) * unit
    value: object = str(number) if as_text else number
    assert reset_seconds({}, json.dumps({"error": {"resets_at": value}}), now) == pytest.approx(ahead, abs=0.01)
    assert reset_seconds({"x-ratelimit-reset": str(number)}, "", now) == pytest.approx(ahead, abs=0.01)


@given(NOWS, st.sampled_from(ZONES), st.integers(0, 23), st.integers(0, 59), st.booleans())
def test_time_of_day_is_the_next_one_there(now: float, zone: str, hour: int, minute: int, half: bool) -> None:  # noqa: FBT001
    """By the clock of that zone it is then the time that was said; within a day, and never before now."""
    said = f"{hour % 12 or 12}:{minute:02}{'am' if hour < 12 else 'pm'}" if half else f"{hour}:{minute:02}"
    moment = moment_in(f"You've hit your limit \u00b7 resets {said} ({zone})", now)
    here = datetime.fromtimestamp(now, ZoneInfo(zone))
    passed = here - here.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if moment is None:
        assert timedelta() <= passed < JUST_PASSED or abs(passed) < timedelta(hours=2)
        return
    then = datetime.fromtimestamp(moment, ZoneInfo(zone))
    assert now < moment <= now + 25 * 3600
    changes = here.utcoffset() != then.utcoffset()
    assert (then.hour, then.minute) == (hour, minute) or changes


@given(
    NOWS,
    st.integers(1, 58),
    st.sampled_from(ZONES),
    st.sampled_from(["%b %-d, %-I%p", "%B %-d at %-I:00 %p", "%-d %b %H:00"]),
)
def test_day_without_a_year_is_the_next_one(now: float, ahead: int, zone: str, form: str) -> None:
    """A day of the calendar is the coming one, over the turn of the year as well."""
    there = ZoneInfo(zone)
    day = (datetime.fromtimestamp(now, there) + timedelta(days=ahead)).date()
    then = datetime(day.year, day.month, day.day, 15, tzinfo=there)
    assert timedelta(days=ahead) < FARTHEST_WITHOUT_YEAR
    assert moment_in(f"resets {then.strftime(form)} ({zone})", now) == then.timestamp()


@given(NOWS, st.integers(-400 * 86400, 400 * 86400), st.integers(-12, 12))
def test_dates_in_full(now: float, ahead: int, hours: int) -> None:
    """An instant with its distance from UTC is that instant, unless it has passed or is out of reach."""
    then = datetime.fromtimestamp(int(now) + ahead, timezone(timedelta(hours=hours)))
    wait = then.timestamp() - now
    found = reset_seconds({}, json.dumps({"error": {"resets_at": then.isoformat()}}), now)
    if -CLOCK_SKEW_SECONDS <= wait <= LONGEST_SECONDS:
        assert found == pytest.approx(max(0.0, wait))
    else:
        assert found is None


@given(NOWS)
def test_local_time_is_this_machines(now: float) -> None:
    """Without a zone a time of day is the machine's, and in the given zone if there is one."""
    for zone in ZONES:
        then = datetime.fromtimestamp(now, ZoneInfo(zone)) + timedelta(hours=3)
        moment = moment_in(f"try again at {then.strftime('%-I:%M %p')}", now, ZoneInfo(zone))
        assert moment is None or 0 < moment - now <= 4 * 3600
    assert moment_in(
        f"resets {(datetime.fromtimestamp(now).astimezone() + timedelta(hours=3)).strftime('%-I:%M %p')}", now
    )
