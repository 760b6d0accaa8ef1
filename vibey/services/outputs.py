"""Outputs: the folders of runs on this machine, what is kept of them, and for how long."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from vibey.engines.context import LOG_NAME, run_directory, run_log
from vibey.engines.output import read_tail
from vibey.engines.removal import remove
from vibey.engines.tree import release
from vibey.engines.workspace import CONTROL
from vibey.store import runs

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.services.installation import Installation

TAIL_LINES = 40
TAIL_BYTES = 8192
KEPT_SECONDS = 14 * 86400
RUN_FOLDER = re.compile(r"run-(\d+)(?:\.old-\d+)?")


def runs_root(installation: Installation) -> Path:
    """The folder that holds the runs' own folders."""
    return installation.settings.data_dir / "runs"


def output_of(installation: Installation, run_id: int) -> Path:
    """Where a run's output is kept, if it ran on this machine."""
    return run_log(runs_root(installation), run_id)


def tail_of(installation: Installation, run_id: int) -> str | None:
    """The end of a run's output, fit for the database; None when there is none or it cannot be read."""
    path = output_of(installation, run_id)
    try:
        text = read_tail(path, TAIL_LINES) if path.exists() else None
    except OSError:
        return None
    return None if text is None else text[-TAIL_BYTES:].replace("\x00", "\ufffd")


def tidy(installation: Installation, run_id: int) -> None:
    """Remove what a run left in its folder, and keep its log."""
    _tidy(run_directory(runs_root(installation), run_id))


def sweep(installation: Installation) -> int:
    """Tidy after runs whose worker died before it could; returns how many.

    Folders are listed before the database is asked which runs are live: a run was committed before its folder was made.
    """
    left = _untidy(runs_root(installation))
    if not left:
        return 0
    ids = sorted({run_id for _, run_id in left})
    rows = installation.database.statement(lambda connection: runs.LIVE.all(connection, runs=ids))
    live = {row.id for row in rows}
    dead = [directory for directory, run_id in left if run_id not in live or directory.name != f"run-{run_id}"]
    for directory in dead:
        release(directory / CONTROL)
        _tidy(directory)
    return len(dead)


def prune(installation: Installation) -> int:
    """Remove the folders of runs whose output has not changed for `KEPT_SECONDS`; returns how many."""
    root = runs_root(installation)
    if not root.is_dir():
        return 0
    oldest = time.time() - KEPT_SECONDS
    old = [entry for entry in root.iterdir() if _is_folder(entry) and _changed_at(entry) < oldest]
    for entry in old:
        release(entry / CONTROL)
        remove(entry)
    return len(old)


def _is_folder(path: Path) -> bool:
    # The work may have put a link in its folder's place: what that leads to is not ours to remove from.
    return path.is_dir() and not path.is_symlink()


def _tidy(directory: Path) -> None:
    if _is_folder(directory):
        for entry in directory.iterdir():
            if not entry.name.startswith(LOG_NAME):
                remove(entry)


def _untidy(root: Path) -> list[tuple[Path, int]]:
    """Folders that hold more than a log, each with its run."""
    named = ((entry, RUN_FOLDER.fullmatch(entry.name)) for entry in root.iterdir()) if root.is_dir() else ()
    return [
        (entry, int(found[1]))
        for entry, found in named
        if found and _is_folder(entry) and any(not each.name.startswith(LOG_NAME) for each in entry.iterdir())
    ]


def _changed_at(directory: Path) -> float:
    return max((entry.lstat().st_mtime for entry in directory.iterdir()), default=directory.stat().st_mtime)
