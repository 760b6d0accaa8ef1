"""A holder that can be killed at a chosen step of a workspace: one run in a process of its own, and a git that waits.

The `git` on the holder's PATH is a script of ours. When its arguments hold the chosen words it makes the file
`reached` and waits for the file `go`, then becomes the real one. Arguments: folder, installation, script, payload.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from vibey.domain.effort import Effort
from vibey.engines.contract import Check, EngineConfig, Job, Renewal
from vibey.engines.registry import equipped
from vibey.engines.runner import execute

ROOT = Path(__file__).parents[2]
WAITS = """#!/bin/sh
case "$*" in
*{words}*) touch {folder}/reached; while [ ! -f {folder}/go ]; do sleep 0.02; done ;;
esac
exec {git} "$@"
"""


def start(
    folder: Path, installation: str, payload: dict[str, object], *, words: str, script: str
) -> subprocess.Popen[bytes]:
    """Start a holder whose git waits at the command with these words; jobs may work under `folder/roots`."""
    (folder / "bin").mkdir()
    waiting = folder / "bin" / "git"
    waiting.write_text(WAITS.format(words=words.replace(" ", "\\ "), folder=folder, git=shutil.which("git")))
    waiting.chmod(0o755)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.tree_holder", str(folder), installation, script, json.dumps(payload)],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
    )


def main(folder: Path, installation: str, script: str, payload: dict[str, object]) -> None:
    """Hold the run to its end."""
    config = EngineConfig(
        "held",
        "command",
        argv=("sh", "-c", script),
        env=("STAGE",),
        workspace_roots=(folder / "roots",),
        checks={"unit": Check(("sh", "-c", f"touch {folder}/checking; test ! -f slow || exec sleep 600"), 600)},
    )
    execute(
        equipped(config),
        Job(7, 70, 1, 1, Effort.LOW, payload, "default", installation=installation),
        directory_root=folder / "data" / "runs",
        lease_seconds=60,
        renew=lambda: Renewal.KEPT,
        timeout_seconds=600,
        grace_seconds=1,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
