"""`vibey` in a folder, each command a process of its own, as from a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.json_output import command_of, described

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


class Shell:
    """Commands on one configuration file, run in its folder."""

    def __init__(self, config: Path) -> None:
        """Remember the file; nothing is started."""
        self.config = config
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "VIBEY_CONFIG": str(config)}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command and leave it running; its environment may hold more."""
        return subprocess.Popen(
            [sys.executable, "-m", "vibey.cli.main", *arguments],
            cwd=self.config.parent,
            env={**self._environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        """Run a command to its end; its output."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, (arguments, out, err)
        return out

    def at_terminal(self, *arguments: str, answers: Mapping[str, str]) -> str:
        """Run a command that succeeds at a terminal where a person answers its questions; what the screen showed."""
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "vibey.cli.main", *arguments],
            cwd=self.config.parent,
            env={**self._environment, "TERM": "xterm", "COLUMNS": "200"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown, open_questions = b"", dict(answers)
        try:
            while piece := _read_terminal(ours):
                shown += piece
                for question in [each for each in open_questions if each.encode() in shown]:
                    os.write(ours, f"{open_questions.pop(question)}\n".encode())
            assert process.wait(timeout=300) == 0, shown
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        assert not open_questions, shown
        return shown.decode().replace("\r\n", "\n")

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run a command that succeeds and prints one JSON object, which is as documented."""
        return described(command_of(arguments), json.loads(self.run(*arguments, "--json")))


def _read_terminal(descriptor: int) -> bytes:
    """What was written to a terminal by now; nothing once its last program has ended."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
