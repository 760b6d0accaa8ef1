"""Waiting for a condition, with a deadline and a name."""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

HANGING = 150.0
"""Seconds after which what a test waits for is taken to never come, also on a machine that is ten times as loaded."""


def until(predicate: Callable[[], T], *, seconds: float = HANGING, what: str = "the condition") -> T:
    """Ask until the answer is truthy, and return it; AssertionError naming `what` when the time is up."""
    deadline = time.monotonic() + seconds
    pause = Event()
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            message = f"{what} did not come true within {seconds:g} s; the last answer was {answer!r}"
            raise AssertionError(message)
        pause.wait(0.02)
