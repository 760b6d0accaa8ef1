"""Orphans: what is left of a run whose supervisor was killed, ended by the process that the kernel gives it to.

A supervisor is the parent of every orphan of its tree. A job can kill it, for it runs as the same user; the orphans
then become children of the next ancestor that adopts them, and they need not carry any mark by which they could be
found. So the process that holds a run adopts them as well, and kills them before the run's end is recorded; and so does
the worker's main process, which gets them where the holder was killed, too.

Such an orphan is recognised by its session: every process of a run is in a session other than the holder's, and no
process can join a session that it was not born in. The holder's own helpers, such as git, stay in the holder's.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from vibey.engines import proctable
from vibey.engines.launch import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.001


def adopt() -> bool:
    """Make this process the parent of every orphan below it, for as long as it lives; False where that cannot be."""
    return Kernel().adopt_orphans()


def end_orphans(looks: int = 3) -> int:
    """Kill and collect this process's orphans and whatever is below them; returns how many processes were killed.

    To be called when no supervisor of this process lives. Where this process adopts no orphans it does nothing. Ends
    when so many looks in a row have found none, for one may miss a process that was born meanwhile and whose parent
    ended; or after five seconds. What cannot be killed, such as another user's process, is left.
    """
    if not _has_children() or not Kernel().adopts_orphans():
        return 0
    killed: set[tuple[int, int]] = set()
    left, deadline = looks, time.monotonic() + _PATIENCE_SECONDS
    while left and time.monotonic() < deadline and _has_children():
        found = orphans()
        # What is below them is ours in turn, once they are dead: parents first, so that none of them starts another.
        hit = {(row.pid, row.started) for row in found if row.alive and proctable.send(row, signal.SIGKILL)}
        killed |= hit
        collect(row for row in found if not row.alive)
        left = looks if hit else left - 1
        # A process that only starts the next one is caught by no look that waits.
        if left and not hit:
            time.sleep(_PAUSE_SECONDS)
    return len(killed)


def orphans() -> list[proctable.Process]:
    """This process's children in sessions other than its own: orphans, and supervisors that live."""
    mine = proctable.read(os.getpid())
    children = proctable.children(os.getpid())
    return [] if mine is None else [row for row in children if row.session != mine.session]


def collect(ended: Iterable[proctable.Process]) -> None:
    """Take note of the ends of children, so that the kernel forgets them."""
    for row in ended:
        with suppress(ChildProcessError):
            os.waitpid(row.pid, os.WNOHANG)


def _has_children() -> bool:
    """Whether this process has any child, ended ones included that nobody has waited for; collects none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
