"""Outputs: the folders of runs on this machine, what is kept of them, and for how long."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from vibey.engines.context import LOG_NAME, run_directory, run_log
from vibey.engines.output import read_tail

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.services.installation import Installation

TAIL_LINES = 40
TAIL_BYTES = 8192
KEPT_SECONDS = 14 * 86400


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
    directory = run_directory(runs_root(installation), run_id)
    if not directory.is_dir():
        return
    for entry in directory.iterdir():
        if entry.name.startswith(LOG_NAME):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def prune(installation: Installation) -> int:
    """Remove the folders of runs whose output has not changed for `KEPT_SECONDS`; returns how many."""
    root = runs_root(installation)
    if not root.is_dir():
        return 0
    oldest = time.time() - KEPT_SECONDS
    old = [entry for entry in root.iterdir() if entry.is_dir() and _changed_at(entry) < oldest]
    for entry in old:
        shutil.rmtree(entry, ignore_errors=True)
    return len(old)


def _changed_at(directory: Path) -> float:
    return max((entry.stat().st_mtime for entry in directory.iterdir()), default=directory.stat().st_mtime)
