"""Memory: what each process of a small fleet has to itself, beside plain Celery's.

Counted is what would be free again if the process ended (its unique set): pages that pool processes share with the one
they were forked from are counted for none of them. Read after work, in each round.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import psutil

from vibey.bench.endtoend import finish
from vibey.bench.figures import Figure, Scale, ratios
from vibey.bench.peer import Peer
from vibey.services.programs import CONTROL_PROCESSES

if TYPE_CHECKING:
    from vibey.bench.laboratory import Laboratory
    from vibey.bench.processes import Processes

SLOTS = 4
MEGABYTE = 1_000_000


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Megabytes of each kind of process, and of the whole."""
    count = scale.pick(400, 20)
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with (
        laboratory.site("memory", {"noop": SLOTS}) as site,
        laboratory.fleet(site) as fleet,
        Peer.running(laboratory, SLOTS + 1 + CONTROL_PROCESSES) as peer,
    ):
        for _ in range(scale.rounds):
            finish(site, fleet, count)
            ours.append(_read(fleet))
            peer.jobs(count)
            theirs.append(_read(peer.processes))
    return [
        *(Figure("memory", f"Vibey, {kind}", "MB", tuple(each[kind] for each in ours)) for kind in ours[0]),
        *(Figure("memory", f"plain Celery, {kind}", "MB", tuple(each[kind] for each in theirs)) for kind in theirs[0]),
        Figure("memory", "Vibey over plain Celery, all", "x", ratios(*(_all(side) for side in (ours, theirs)))),
    ]


def _all(side: list[dict[str, float]]) -> tuple[float, ...]:
    return tuple(each["all processes"] for each in side)


def _read(processes: Processes) -> dict[str, float]:
    found: dict[str, float] = {}
    whole = 0.0
    for name, pid in processes.pids.items():
        main = psutil.Process(pid)
        own = _own(main)
        pool = [_own(child) for child in main.children(recursive=True)]
        found[f"{name}, main process"] = own
        if pool:
            found[f"{name}, each of its {len(pool)} pool processes"] = statistics.mean(pool)
        whole += own + sum(pool)
    return found | {"all processes": whole}


def _own(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss) / MEGABYTE
