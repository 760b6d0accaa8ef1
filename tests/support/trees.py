"""Real process trees for the supervision tests, and a look at what of them still lives."""

from __future__ import annotations

from pathlib import Path

# Five processes that do not end by themselves: a shell, a plain child, a session of its own with a child, and an
# orphan that left by a double fork.
TREE = "sleep 600 & setsid sh -c 'sleep 601 & sleep 602; :' & (setsid sleep 603 &) ; wait"
TREE_SIZE = 6
# The same, where no shell of it obeys TERM.
STUBBORN = "trap '' TERM; " + TREE


def living(installation: str, *, without_supervisor: bool = True) -> list[int]:
    """Numbers of the processes that carry this installation's mark and can still do something."""
    mark = f"VIBEY_INSTALLATION={installation}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            marked = mark in (folder / "environ").read_bytes().split(b"\0")
            supervisor = b"supervisor.main" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if marked and state(int(folder.name)) not in {"Z", "X", ""} and not (supervisor and without_supervisor):
            found.append(int(folder.name))
    return found


def supervisors(installation: str) -> list[int]:
    """Numbers of the supervisors of this installation's runs."""
    return sorted(set(living(installation, without_supervisor=False)) - set(living(installation)))


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
