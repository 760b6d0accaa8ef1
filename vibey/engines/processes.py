"""Leftovers: processes of runs that are nobody's any more, found by their marks, killed with their trees.

This is the net below the supervisor, for the one case it cannot serve: it died together with its holder. A
worker calls `kill_leftovers` at its start, and before it runs a job again whose last run was lost. Only
processes of the same user that Linux shows in `/proc` can be found; one that wiped its environment is found
only below one that did not.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.engines import proctable
from vibey.engines.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.005
_KERNEL_THREAD = 0x00200000


@dataclass(frozen=True, slots=True)
class Leftover:
    """One run whose processes were still here, and how many of them were killed."""

    marks: Marks
    killed: int


def kill_leftovers(
    installation: str, *, live: Callable[[int, int], bool], job_id: int | None = None
) -> tuple[Leftover, ...]:
    """Kill the trees of this installation's runs that are not live; of one job only, if given.

    `live(job_id, run_id)` is asked once per run found, after it was found: a run that begins meanwhile was
    committed before its first process was born, so an honest answer never condemns it. Never kills the caller
    or its ancestors.
    """
    judged: dict[Marks, bool] = {}

    def condemned(marks: Marks) -> bool:
        if marks.installation != installation or job_id not in {None, marks.job_id}:
            return False
        if marks not in judged:
            judged[marks] = not live(marks.job_id, marks.run_id)
        return judged[marks]

    killed = _kill_where(condemned)
    return tuple(Leftover(marks, len(pids)) for marks, pids in sorted(killed.items(), key=lambda pair: pair[0].run_id))


def kill_marked(marks: Marks) -> int:
    """Kill every process that carries exactly these marks, with its tree; how many there were."""
    return sum(len(pids) for pids in _kill_where(lambda found: found == marks).values())


def kill_descendants(pid: int) -> None:
    """Kill everything below a process that is stopped and cannot do so itself; not the process itself."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        tree = [row for row in proctable.descendants(proctable.table(), [pid]) if row.alive]
        if not any([proctable.send(row, signal.SIGKILL) for row in tree]):  # noqa: C419  (every one, not the first)
            return
        time.sleep(_PAUSE_SECONDS)


def _kill_where(condemned: Callable[[Marks], bool]) -> dict[Marks, set[int]]:
    """Kill until a look finds nothing, or patience ends: what is being killed may still be multiplying."""
    killed: dict[Marks, set[int]] = {}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        hit = False
        for marks, row in marked_trees(condemned):
            if proctable.send(row, signal.SIGKILL):
                killed.setdefault(marks, set()).add(row.pid)
                hit = True
        if not hit or time.monotonic() > deadline:
            return killed
        time.sleep(_PAUSE_SECONDS)


def marked_trees(condemned: Callable[[Marks], bool]) -> Iterable[tuple[Marks, proctable.Process]]:
    """The processes of condemned marks and everything below them, as one look at the process table finds them."""
    rows = proctable.table()
    spared = _own_line(rows)
    for row in rows.values():
        marks = _marks_of(row) if row.alive and row.pid not in spared else None
        if marks is not None and condemned(marks):
            for member in (row, *proctable.descendants(rows, [row.pid])):
                if member.alive and member.pid not in spared:
                    yield marks, member


def _own_line(rows: dict[int, proctable.Process]) -> set[int]:
    line: set[int] = set()
    pid = os.getpid()
    while pid in rows and pid not in line:
        line.add(pid)
        pid = rows[pid].parent
    return line


def environment_of(pid: int) -> bytes:
    """A process's environment; OSError once it is gone, or where it is not ours to read.

    The kernel shows none while another program replaces the process (execve). It would pass for one without marks, and
    outlive the look; so it is read again until there is one.
    """
    folder = Path(proctable.PROC, str(pid))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        block = (folder / "environ").read_bytes()
        if block or not _has_environment(folder) or time.monotonic() > deadline:
            return block
        time.sleep(_PAUSE_SECONDS)


def _has_environment(folder: Path) -> bool:
    """Whether a process has variables, or will have any: fields 9 (flags), 50 and 51 (where they begin, end) of `stat`.

    Both places are 0 while a program is being replaced; for a kernel thread and one that has ended they stay so.
    """
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    if begin or end:
        return begin != end
    return not int(fields[6]) & _KERNEL_THREAD and fields[0] not in {b"Z", b"X"}


def _marks_of(row: proctable.Process) -> Marks | None:
    try:
        if Path(proctable.PROC, str(row.pid)).stat().st_uid != os.getuid():
            return None
        block = environment_of(row.pid)
    except OSError:
        return None
    if b"VIBEY_RUN=" not in block:
        return None
    pairs = (os.fsdecode(pair).partition("=") for pair in block.split(b"\0"))
    return Marks.found_in({name: value for name, _, value in pairs})
