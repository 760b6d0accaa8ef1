"""Processes that are replaced by another program all the time, as shells and wrappers are for a moment."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@contextmanager
def restless(folder: Path, environment: Mapping[str, str], count: int = 6) -> Iterator[set[int]]:
    """Numbers of processes that do nothing but replace themselves (execve), with this environment."""
    script = folder / "again"
    script.write_text('#!/bin/sh\nexec "$0"\n', encoding="utf-8")
    script.chmod(0o755)
    started = [subprocess.Popen([script], env=environment) for _ in range(count)]
    try:
        yield {process.pid for process in started}
    finally:
        for process in started:
            process.kill()
            process.wait()
