"""Schedules: hours of the week in which a member's weight takes a factor."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from tests.settings_support import problems_in, settings_from
from vibey.domain.layer import product, scheduled

ENGINES = """
engine.ollama = { kind = "noop", tier = "local" }
engine.claude = { kind = "noop" }
pool.spare = { members = ["claude"] }
"""
NIGHT = f"""{ENGINES}
[schedule.night]
member = "ollama"
factor = 2.5
days = ["mon", "fri"]
from = "22:00"
to = "06:00"
until = 2026-03-07
[schedule.always]
member = "spare"
factor = 1
"""


def _at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_a_schedule_becomes_a_window() -> None:
    """Times are minutes of the day, days numbers from Monday, the end an instant; what is left out covers the week."""
    night, always = settings_from(NIGHT).windows()
    assert (night.name, night.member, night.factor) == ("night", "ollama", 2_500_000)
    assert (night.start, night.end, night.days) == (22 * 60, 6 * 60, frozenset({0, 4}))
    assert night.until_ms == _at("2026-03-07")
    assert (always.start, always.end, always.days, always.until_ms) == (0, 1440, frozenset(range(7)), None)


@pytest.mark.parametrize(
    ("instant", "factor"),
    [
        ("2026-03-02T21:59", 1),  # a Monday
        ("2026-03-02T22:00", Fraction(5, 2)),
        ("2026-03-03T05:59", Fraction(5, 2)),
        ("2026-03-03T06:00", 1),
        ("2026-03-03T22:00", 1),
        ("2026-03-06T23:59", Fraction(5, 2)),
        ("2026-03-07T00:00", 1),  # over for good, in the middle of a window
        ("2026-03-09T23:00", 1),
    ],
)
def test_hours_over_midnight_and_the_end_of_it_all(instant: str, factor: Fraction) -> None:
    """A window starts on its day and runs into the next, until the whole arrangement ends."""
    layers = scheduled(settings_from(NIGHT).windows(), _at(instant))
    assert product(layers.get("ollama", ())) == factor


@pytest.mark.parametrize(
    ("line", "key", "words", "nearest"),
    [
        ('from = "25:00"', "from", "a time of day in UTC", None),
        ('from = "7:00"', "from", "a time of day in UTC", None),
        ('to = "12:60"', "to", "a time of day in UTC", None),
        ("to = 700", "to", "a time of day in UTC", None),
        ("to = 07:00:00", "to", "a time of day in UTC", None),
        ('days = ["monday"]', "days", "days out of mon, tue", None),
        ('days = ["mon", "mon"]', "days", "each once", None),
        ('days = "mon"', "days", "a list", None),
        ("factor = 0", "factor", "above 0", None),
        ("factor = -1", "factor", "above 0", None),
        ("factor = 0.0000001", "factor", "at most 6 decimal places", None),
        ('member = "olama"', "member", "unknown engine or pool; known: ollama, claude, spare", "ollama"),
        ('member = "main"', "member", "unknown engine or pool", None),
        ('until = "2030-01-31"', "until", "without quotes", None),
        ('when = "22:00"', "when", "unknown key", None),
        ('form = "22:00"', "form", "unknown key", "from"),
    ],
)
def test_one_mistake_is_one_problem(line: str, key: str, words: str, nearest: str | None) -> None:
    """Each rule is reported at the key that breaks it, with the nearest known name."""
    kept = {"member": 'member = "ollama"', "factor": "factor = 2"}
    lines = [text for name, text in kept.items() if name != key]
    problems = problems_in("\n".join([ENGINES, "[schedule.night]", *lines, line]))
    assert list(problems) == [f"schedule.night.{key}"]
    (problem,) = problems.values()
    assert words in problem.expected
    assert problem.nearest == nearest


def test_a_schedule_needs_its_member_and_factor() -> None:
    """What it is about has no default."""
    problems = problems_in(f"{ENGINES}[schedule.night]")
    assert set(problems) == {"schedule.night.member", "schedule.night.factor"}


def test_schedules_are_shown_as_written() -> None:
    """`config show` lists every key of a schedule with its source."""
    shown = {key: (value, source) for key, value, source in settings_from(NIGHT).effective()}
    assert shown["schedule.night.from"] == ("22:00", "file")
    assert shown["schedule.night.factor"] == (2.5, "file")
    assert shown["schedule.night.until"] == ("2026-03-07T00:00:00+00:00", "file")
    assert shown["schedule.always.to"] == ("24:00", "default")
