"""Depth: how many levels of lists and objects a payload or a result may have.

Whoever reads JSON reads it recursively: the worker that starts the run, the database driver, the pages. The bound is
one that all of them reach, and it is checked where a value comes in, so that no value is stored that cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_LEVELS = 200
DEEP = ("lists and objects in one another", f"at most {MOST_LEVELS} levels of them")
"""What an `InvalidInput` says of a value that is too deep: the value, and what is expected."""


def is_too_deep(value: object) -> bool:
    """Whether a JSON value has more than `MOST_LEVELS` levels of lists and objects in one another."""
    level: list[object] = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [inner for each in level for inner in _within(each)]
        if not level:
            return False
    return True


def _within(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []
