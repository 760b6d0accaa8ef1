"""Removal of what a run left, whatever it did to it: folders nobody may read, or nested too deep to be walked."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_SECONDS = 600


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder as far as that is possible; nothing is raised."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except (OSError, RecursionError):
        # These two walk with handles and stacks of their own, and neither follows a link on its way.
        _run("chmod", "-R", "u+rwx", str(path))
        _run("rm", "-rf", str(path))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
