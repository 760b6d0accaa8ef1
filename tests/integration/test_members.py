"""Clearing up after a member of a fleet that is long dead takes its orphans, and nobody who has its number now."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from tests.support import trees
from tests.support.fleet import gone
from tests.support.wait import until

if TYPE_CHECKING:
    from pathlib import Path


def _left_behind(log: Path) -> tuple[int, int]:
    """A group whose leader has ended and left a child that logs there: the group's number and the child's."""
    with log.open("ab") as sink:
        leader = subprocess.Popen(
            ["/bin/sh", "-c", "sleep 600 & echo $!"],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
        )
    assert leader.stdout is not None
    orphan = int(leader.stdout.readline())
    leader.stdout.close()
    leader.wait()
    return leader.pid, orphan


def test_only_what_logs_there_is_found(tmp_path: Path) -> None:
    """Of a group of that number, be it the one that was started or a later one."""
    mine, others = tmp_path / "mine.log", tmp_path / "others.log"
    others.touch()
    group, orphan = _left_behind(mine)
    try:
        assert trees.of_group(group, mine) == [orphan]
        assert trees.of_group(group, others) == []
        assert trees.of_group(group, tmp_path / "none.log") == []
        assert trees.of_group(os.getpgrp(), mine) == []
    finally:
        os.kill(orphan, signal.SIGKILL)
    until(gone(orphan), what="the orphan's end")
    assert trees.of_group(group, mine) == []
