"""Depth: how many levels of lists and objects a payload or a result may have.

Whoever reads JSON reads it recursively: the worker that starts the run, the database driver, the pages. The bound is
one that all of them reach, and it is checked where a value comes in, so that no value is stored that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

_Container = Mapping[str, object] | Sequence[object]

MOST_LEVELS = 200
DEEP = ("lists and objects in one another", f"at most {MOST_LEVELS} levels of them")
"""What an `InvalidInput` says of a value that is too deep: the value, and what is expected."""


def is_too_deep(value: object) -> bool:
    """Whether a JSON value has more than `MOST_LEVELS` levels of lists and objects in one another."""
    level = _containers([value])
    for _ in range(MOST_LEVELS):
        if not level:
            return False
        level = [inner for each in level for inner in _containers(each.values() if isinstance(each, Mapping) else each)]
    return bool(level)


def _containers(values: Iterable[object]) -> list[_Container]:
    return [value for value in values if isinstance(value, Mapping | list | tuple)]
