"""`vibey` in a folder, each command a process of its own, as from a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.json_output import command_of, described

ROOT = Path(__file__).parents[2]


class Shell:
    """Commands on one configuration file, run in its folder."""

    def __init__(self, config: Path) -> None:
        """Remember the file; nothing is started."""
        self._config = config
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": str(config)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        return subprocess.Popen(
            [sys.executable, "-m", "vibey.cli.main", *arguments],
            cwd=self._config.parent,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command to its end; its output."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=110)
        assert process.returncode == code, (arguments, out, err)
        return out

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run a command that succeeds and prints one JSON object, which is as documented."""
        return described(command_of(arguments), json.loads(self.run(*arguments, "--json")))
