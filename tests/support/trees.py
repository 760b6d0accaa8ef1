"""Real process trees for the supervision tests, and a look at what of them still lives."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Five processes that do not end by themselves: a shell, a plain child, a session of its own with a child, and an
# orphan that left by a double fork.
TREE = "sleep 600 & setsid sh -c 'sleep 601 & sleep 602; :' & (setsid sleep 603 &) ; wait"
TREE_SIZE = 6
# The same, where no shell of it obeys TERM.
STUBBORN = "trap '' TERM; " + TREE


def living(installation: str, *, without_supervisor: bool = True) -> list[int]:
    """Numbers of the processes that carry this installation's mark and can still do something."""
    return [
        pid for pid in _marked(f"VIBEY_INSTALLATION={installation}") if not (without_supervisor and _is_supervisor(pid))
    ]


def of_group(group: int, log: Path) -> list[int]:
    """Numbers of the processes of a process group whose errors go to a log, and which can still do something.

    The group alone does not do: by now its number may be another's.
    """
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == group and (folder / "fd/2").samefile(log):
                found.append(int(folder.name))
    return [pid for pid in found if not ended(pid)]


def unmarked(log: Path) -> list[int]:
    """Numbers of the processes of jobs that write to this log, carry no mark at all and can still do something."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdigit() else []
            if os.fsencode(log) in words and b"VIBEY_RUN=" not in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return [pid for pid in found if not ended(pid)]


def _marked(mark: str) -> list[int]:
    """Numbers of the processes that carry a mark and can still do something."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return [pid for pid in found if not ended(pid)]


def _is_supervisor(pid: int) -> bool:
    with suppress(OSError):
        return b"supervisor.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def supervisors(installation: str) -> list[int]:
    """Numbers of the supervisors of this installation's runs."""
    return sorted(set(living(installation, without_supervisor=False)) - set(living(installation)))


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits only to be asked how it ended."""
    return state(pid) in {"", "Z", "X"}


def state(pid: int) -> str:
    """The kernel's letter for what the process is doing; empty once it is gone."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return line.rpartition(")")[2].split()[0]


def parent(pid: int) -> int:
    """The number of a process's parent; 0 once it is gone."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(line.rpartition(")")[2].split()[1])
