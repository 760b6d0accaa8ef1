"""The single values a configuration is made of, and the sentence that says what each may be.

Every key of every table is checked by one of the small callables below. Each takes whatever the file or the
environment held and either returns the value in its final, immutable form or raises `Unusable` with the
allowed range in words. Nothing is ever converted silently: `true` is not 1, `"5"` is not 5, and a number is
exact, because a weight of 0.1 that is really 0.1000000000000000055 splits ties the wrong way.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import ValidationInfo

MILLIONTHS = 1_000_000
LARGEST_COUNT = 2_147_483_647
"""The largest count or number of seconds: what a database INTEGER holds."""

_LARGEST_AMOUNT = 1_000_000
_DECIMAL_PLACES = 6
_LONGEST_TEXT = 4096


class Unusable(ValueError):
    """A value outside its range: `expected` says what would do, `nearest` the known name it resembles."""

    def __init__(self, expected: str, nearest: str | None = None) -> None:
        self.expected = expected
        self.nearest = nearest
        super().__init__(expected)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most resembles, or None when nothing comes close."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return matches[0] if matches else None


@dataclass(frozen=True, slots=True)
class Whole:
    """`what`, a whole number from `low` to `high`; `note` adds a sentence."""

    low: int
    high: int
    what: str
    note: str = ""

    def __call__(self, value: object) -> int:
        """The number itself; booleans, fractions and text are `Unusable`."""
        if type(value) is int and self.low <= value <= self.high:
            return value
        expected = f"{self.what} from {self.low} to {self.high}"
        raise Unusable(f"{expected}; {self.note}" if self.note else expected)


@dataclass(frozen=True, slots=True)
class Amount:
    """A decimal number from 0 (or just above it) to `high`, kept exactly to six places."""

    unit: str
    high: int = _LARGEST_AMOUNT
    above_zero: bool = False

    def __call__(self, value: object) -> Decimal:
        """The exact decimal; a float counts as the shortest text that denotes it."""
        number = _decimal(value)
        low_enough = number is not None and number.is_finite() and 0 <= number <= self.high
        if number is not None and low_enough and _is_short(number) and not (self.above_zero and number == 0):
            return abs(number)
        low = "above 0, up to" if self.above_zero else "from 0 to"
        raise Unusable(f"a number of {self.unit} {low} {self.high}, of at most {_DECIMAL_PLACES} decimal places")


@dataclass(frozen=True, slots=True)
class Weight:
    """A positive decimal weight, as integer millionths: 0.1 is exactly 100000."""

    def __call__(self, value: object) -> int:
        """The weight in millionths, from 1 to 10**12."""
        return int(Amount("shares", above_zero=True)(value).scaleb(_DECIMAL_PLACES))


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a closed set of words."""

    words: tuple[str, ...]

    def __call__(self, value: object) -> str:
        """The word itself; anything else is `Unusable`, with the nearest word."""
        if isinstance(value, str) and value in self.words:
            return value
        near = nearest_name(value, self.words) if isinstance(value, str) else None
        raise Unusable(f"one of {', '.join(self.words)}", near)


@dataclass(frozen=True, slots=True)
class Switch:
    """True or false, and nothing that merely resembles them."""

    def __call__(self, value: object) -> bool:
        """The boolean itself."""
        if isinstance(value, bool):
            return value
        raise Unusable("true or false")


@dataclass(frozen=True, slots=True)
class Text:
    """One line of printable text that matches `pattern` whole; `what` describes it."""

    what: str
    pattern: str = r".+"

    def __call__(self, value: object) -> str:
        """The text unchanged."""
        printable = isinstance(value, str) and value.isprintable() and len(value) <= _LONGEST_TEXT
        if isinstance(value, str) and printable and re.fullmatch(self.pattern, value):
            return value
        raise Unusable(self.what)


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day in UTC, written "HH:MM", as minutes from midnight; "24:00" ends a day."""

    def __call__(self, value: object) -> int:
        """The minutes, from 0 to 1440."""
        found = re.fullmatch(r"(\d\d):(\d\d)", value) if isinstance(value, str) else None
        if found is not None:
            minutes = int(found[1]) * 60 + int(found[2])
            if int(found[2]) < 60 and minutes <= 1440:
                return minutes
        raise Unusable('a time of day in UTC, such as "22:00", from "00:00" to "24:00"')


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant, as TOML writes dates and times; a date is its midnight, and without an offset UTC is meant."""

    def __call__(self, value: object) -> datetime:
        """The instant in UTC."""
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        raise Unusable("a date or a date and time, without quotes, such as 2030-01-31")


@dataclass(frozen=True, slots=True)
class Words:
    """A list of distinct words, each matching `pattern` whole."""

    what: str
    pattern: str

    def __call__(self, value: object) -> tuple[str, ...]:
        """The words as a tuple, in their order."""
        if isinstance(value, list | tuple) and all(_is_word(item, self.pattern) for item in value):
            words = tuple(str(item) for item in value)
            if len(set(words)) == len(words):
                return words
        raise Unusable(f"a list of {self.what}, each once")


@dataclass(frozen=True, slots=True)
class Arguments:
    """A list of command-line arguments; with `program`, its first must name one."""

    program: bool = False

    def __call__(self, value: object) -> tuple[str, ...]:
        """The arguments as a tuple; each is text the operating system can pass on."""
        if isinstance(value, list | tuple) and all(_is_argument(item) for item in value):
            arguments = tuple(str(item) for item in value)
            if not self.program or (arguments and arguments[0].strip()):
                return arguments
        what = "a list of text, the program first" if self.program else "a list of text"
        raise Unusable(f"{what}: one entry per argument, without NUL characters")


@dataclass(frozen=True, slots=True)
class Program:
    """A list that holds one program and nothing else."""

    def __call__(self, value: object) -> tuple[str, ...]:
        """The program in a tuple."""
        if isinstance(value, list | tuple) and len(value) == 1:
            return Arguments(program=True)(value)
        raise Unusable("a list of one program, which takes the place of the first word of the engine's argv")


@dataclass(frozen=True, slots=True)
class Location:
    """A path; a relative one starts at the `folder` in the validation context, `~` is the home folder."""

    def __call__(self, value: object, info: ValidationInfo) -> Path:
        """The absolute path, without `..`; nothing on disk is looked at."""
        text = Text("the path of a file or folder")(os.fspath(value) if isinstance(value, Path) else value)
        context: Mapping[str, Path] = info.context or {}
        try:
            path = Path(text).expanduser()
        except RuntimeError as error:
            raise Unusable("a path whose home folder is known") from error
        return Path(os.path.normpath(context.get("folder", Path.cwd()) / path))


@dataclass(frozen=True, slots=True)
class Locations:
    """A list of paths, each as `Location`."""

    def __call__(self, value: object, info: ValidationInfo) -> tuple[Path, ...]:
        """The absolute paths as a tuple."""
        if isinstance(value, list | tuple):
            return tuple(Location()(item, info) for item in value)
        raise Unusable("a list of folders")


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and abs(value) <= LARGEST_COUNT:
        return Decimal(value)
    return Decimal(repr(value)) if isinstance(value, float) else None


def _is_short(number: Decimal) -> bool:
    # quantize() and normalize() round to the context's precision, which would hide the digits in question.
    digits, exponent = number.as_tuple().digits, int(number.as_tuple().exponent)
    written = "".join(map(str, digits))
    return number == 0 or exponent + len(written) - len(written.rstrip("0")) >= -_DECIMAL_PLACES


def _is_word(value: object, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_argument(value: object) -> bool:
    # A lone surrogate is how Python carries an undecodable byte; it cannot be stored or logged.
    return isinstance(value, str) and "\0" not in value and _is_encodable(value)


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
