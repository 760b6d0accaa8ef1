"""The suite: every family of figures by name, in the order they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.bench import (
    breadth,
    delay,
    depth,
    durable,
    endtoend,
    enqueueing,
    handover,
    latency,
    limits,
    memory,
    projects,
    pure,
    size,
)
from vibey.bench.figures import Figure, Scale, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vibey.bench.laboratory import Laboratory

# Last those that restart the servers, to have statements counted.
FAMILIES: dict[str, Callable[[Laboratory, Scale], list[Figure]]] = {
    "pure": pure.measure,
    "latency": latency.measure,
    "durable": durable.measure,
    "enqueue": enqueueing.measure,
    "endtoend": endtoend.measure,
    "handover": handover.measure,
    "delay": delay.measure,
    "memory": memory.measure,
    "projects": projects.measure,
    "breadth": breadth.measure,
    "size": size.measure,
    "depth": depth.measure,
    "limits": limits.measure,
}


def run(laboratory: Laboratory, scale: Scale, names: Sequence[str] = ()) -> list[Figure]:
    """Measure the named families, or all; raises VibeyError when something did not work, never for being slow."""
    figures: list[Figure] = []
    for name in names or FAMILIES:
        say(name)
        figures += FAMILIES[name](laboratory, scale)
    return figures
