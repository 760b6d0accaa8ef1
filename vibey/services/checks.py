"""One check: what was looked at, what was found, what to do about it; and the time it may take.

A check that hangs is left behind in its thread and reported as late, so that whoever asks is answered whatever hangs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import ServiceUnavailable, VibeyError
from vibey.domain.outcome import one_line
from vibey.services.asking import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vibey.services.asking import Waiting

# Above what a service that is away takes to be given up: four tries of five seconds to connect.
CHECK_SECONDS = 25.0
LATE_FIX = "see why it hangs: a file system, a network or a server that does not answer"


class State(StrEnum):
    """How a check came out; only `fail` makes the whole fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at, what was found, and what a person should do about it."""

    name: str
    state: State
    detail: str
    fix: str = ""

    def as_json(self) -> dict[str, Any]:
        """The check as a JSON object."""
        return {"name": self.name, "state": self.state.value, "detail": self.detail, "fix": self.fix}


def run_check(name: str, question: Callable[[], Iterable[Check]], waiting: Waiting | None = None) -> list[Check]:
    """The checks that `question` makes, or one that says that it failed or was late. Never raises, always returns."""
    for _, found in answers({name: lambda: _answer(name, question)}, CHECK_SECONDS, waiting):
        if found is not None:
            return found
    return [Check(name, State.FAIL, f"no answer within {CHECK_SECONDS:g} s", LATE_FIX)]


def failed_check(name: str, error: Exception) -> Check:
    """An error as a check that failed."""
    if isinstance(error, ServiceUnavailable):
        return Check(name, State.FAIL, error.detail, error.remedy)
    if isinstance(error, VibeyError):
        return Check(name, State.FAIL, one_line(str(error)))
    return Check(name, State.FAIL, one_line(f"the check broke: {type(error).__name__}: {error}"))


def _answer(name: str, question: Callable[[], Iterable[Check]]) -> list[Check]:
    try:
        return list(question())
    except Exception as error:  # noqa: BLE001  one check that breaks must not hide the others
        return [failed_check(name, error)]
