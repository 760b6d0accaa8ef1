"""Clearing up after a member of a fleet that is long dead takes its orphans, and nobody who has its number now."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.support import trees
from tests.support.fleet import MARK, gone
from tests.support.wait import until


def _left_behind(mark: str) -> tuple[int, int]:
    """A group whose leader has ended and left a child: the group's number and the child's."""
    leader = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & echo $!"],
        env=os.environ | {MARK: mark},
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert leader.stdout is not None
    orphan = int(leader.stdout.readline())
    leader.stdout.close()
    leader.wait()
    # While a process is replaced by another program, the kernel shows no environment of it.
    until(lambda: "sleep" in Path(f"/proc/{orphan}/cmdline").read_text(encoding="utf-8"), what="the orphan's program")
    return leader.pid, orphan


def test_only_what_carries_the_mark_is_found() -> None:
    """Of a group of that number, be it the one that was started or a later one."""
    group, orphan = _left_behind("mine")
    try:
        assert trees.of_group(group, f"{MARK}=mine") == [orphan]
        assert trees.of_group(group, f"{MARK}=mi") == []
        assert trees.of_group(group, f"{MARK}=another's") == []
        assert trees.of_group(os.getpgrp(), f"{MARK}=mine") == []
    finally:
        os.kill(orphan, signal.SIGKILL)
    until(gone(orphan), what="the orphan's end")
    assert trees.of_group(group, f"{MARK}=mine") == []
