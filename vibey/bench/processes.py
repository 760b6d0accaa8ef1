"""The processes of a measurement: started in sessions of their own, ended by their ids, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import vibey
from vibey.domain.errors import VibeyError
from vibey.services.programs import inherited

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

STOP_SECONDS = 15.0
TAIL_LINES = 15


class Processes:
    """Background processes with their logs in one folder; leaving the context ends all of them."""

    def __init__(self, folder: Path) -> None:
        """Remember where logs go."""
        self._folder = folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Begin without any."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all, in the order they were started."""
        for process in self._started.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._started.values():
            self._end(process)

    @property
    def pids(self) -> dict[str, int]:
        """The processes by name."""
        return {name: process.pid for name, process in self._started.items()}

    def start(
        self, name: str, arguments: Sequence[str], environment: dict[str, str], *, python: str = sys.executable
    ) -> None:
        """Start `python ARGUMENTS`; Ctrl-C at the terminal does not reach it, only we end it."""
        with self._log(name).open("wb") as log:
            self._started[name] = subprocess.Popen(
                [python, *arguments],
                cwd=self._folder,
                env=surroundings(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise VibeyError with the end of its log when one of them has ended by itself."""
        for name, process in self._started.items():
            if process.poll() is not None:
                lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
                tail = "\n".join(lines[-TAIL_LINES:])
                raise VibeyError(f"the {name} process ended with {process.returncode}:\n{tail}")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def surroundings(extra: dict[str, str]) -> dict[str, str]:
    """This process's environment without settings of Vibey's own, with this very code importable, and `extra`."""
    kept = {key: value for key, value in inherited(os.environ).items() if not key.startswith("VIBEY_")}
    code = str(Path(vibey.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [code, kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, **extra}
