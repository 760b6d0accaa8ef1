"""The process table as `/proc` shows it: who descends from whom, and signals that cannot hit a stranger.

Where there is no `/proc` the table is empty. The supervisor loads this file by its path, without the package
and before anything else, so it imports next to nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Mapping
else:
    import _signal as signal  # the public module costs 4 ms more to import, for enum names nobody here needs

PROC = "/proc"


class Process:
    """One row. `started` (clock ticks since boot) tells it from a later process with its number.

    `ticks` is the processor time it has used, with that of children it has waited for, in clock ticks.
    """

    __slots__ = ("group", "parent", "pid", "session", "started", "state", "ticks")

    def __init__(
        self, pid: int, state: str, parent: int, group: int, started: int, *, session: int = 0, ticks: int = 0
    ) -> None:
        self.pid = pid
        self.state = state
        self.parent = parent
        self.group = group
        self.started = started
        self.session = session
        self.ticks = ticks

    @property
    def alive(self) -> bool:
        """Whether it can still do something; a zombie only waits to be counted."""
        return self.state not in {"Z", "X"}


def read(pid: int) -> Process | None:
    """The row of one process; None once it is gone."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  (pathlib costs 8 ms to import)
            line = file.read()
    except OSError:
        return None
    # The command's name stands in brackets and may itself hold spaces and brackets: count from the last one.
    fields = line.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    ticks = sum(map(int, fields[11:15]))
    parent, group, session = map(int, fields[1:4])
    return Process(pid, fields[0].decode(), parent, group, int(fields[19]), session=session, ticks=ticks)


def table() -> dict[int, Process]:
    """Every process there is, by number."""
    try:
        names = os.listdir(PROC)  # noqa: PTH208
    except OSError:
        return {}
    rows = (read(int(name)) for name in names if name.isdigit())
    return {row.pid: row for row in rows if row is not None}


def children(pid: int) -> list[Process]:
    """The children of one process, as the kernel lists them by its threads; of a kernel that does not, by the table."""
    try:
        tasks = os.listdir(f"{PROC}/{pid}/task")  # noqa: PTH208
        words: list[bytes] = []
        for task in tasks:
            with open(f"{PROC}/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123  (as above)
                words += file.read().split()
    except OSError:
        return [row for row in table().values() if row.parent == pid]
    rows = (read(int(word)) for word in words)
    return [row for row in rows if row is not None and row.parent == pid]


def descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> list[Process]:
    """Children, and theirs, of these processes; the roots themselves are not among them."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                pending.append(child.pid)
    return list(found.values())


def handle_of(pid: int) -> int | None:
    """A descriptor for the process, readable once it has ended; None where there is none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def send(process: Process, signum: int) -> bool:
    """Signal this very process, never a later one with its number; False if it is gone or not ours."""
    handle = handle_of(process.pid)
    if handle is None:
        return _send_unheld(process, signum)
    try:
        if not _is_same(process):
            return False
        signal.pidfd_send_signal(handle, signum)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _send_unheld(process: Process, signum: int) -> bool:
    """As `send`, without process handles: reuse of a number within microseconds goes unnoticed."""
    try:
        if not _is_same(process):
            return False
        os.kill(process.pid, signum)
    except OSError:
        return False
    return True


def _is_same(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.started == process.started
