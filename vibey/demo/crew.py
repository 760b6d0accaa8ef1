"""The demo's own processes: a control worker, a build worker and beat, as `vibey up` would start them.

Each runs in a session of its own, so that a Ctrl-C at the terminal reaches the demo alone, and the demo ends them:
TERM, time to finish, then KILL for the whole group. What was started is recorded with the instant each process began:
when a demo itself was killed, the next one ends what it left. A number alone proves nothing, for the system hands
numbers out again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil

from vibey.demo.folder import Folder, clean_environment
from vibey.domain.errors import VibeyError
from vibey.services.programs import BEAT, WORKERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vibey.services.programs import Program

GRACE_SECONDS = 15.0


class Crew:
    """The processes of one demo."""

    def __init__(self, folder: Folder) -> None:
        """Remember where they belong; `start` starts them."""
        self._folder = folder
        self._processes: dict[str, psutil.Popen] = {}

    def start(self) -> None:
        """End what a killed demo left in this folder, then start every role."""
        self.end_leftovers()
        for stale in self._folder.path.glob("beat-schedule*"):
            stale.unlink()
        for program in WORKERS:
            more = ("--pidfile=",) if program is BEAT else ()
            self._processes[program.name] = self._started(program, *more)
            self._record()

    def end_leftovers(self) -> None:
        """End the processes that a demo which was killed left in this folder."""
        end(_recorded(self._folder.processes))

    def worker_pids(self) -> frozenset[int]:
        """The numbers of the workers' main processes, under which they report themselves."""
        return frozenset(process.pid for role, process in self._processes.items() if role != "beat")

    def require_alive(self) -> None:
        """VibeyError, with the last words of its log, when one of the processes has ended."""
        for role, process in self._processes.items():
            code = process.poll()
            if code is not None:
                log = self._folder.logs / f"{role}.log"
                raise VibeyError(f"the demo's {role} process ended (exit {code}): {_last_line(log)}; see {log}")

    def stop(self) -> None:
        """End them all, beat first; a second Ctrl-C meanwhile kills them at once."""
        processes = list(reversed(self._processes.values()))
        try:
            end(processes)
        except KeyboardInterrupt:
            end(processes, grace_seconds=0)
            raise
        finally:
            self._folder.processes.unlink(missing_ok=True)

    def _started(self, program: Program, *more: str) -> psutil.Popen:
        with (self._folder.logs / f"{program.name}.log").open("ab") as log:
            return psutil.Popen(
                [sys.executable, *program.arguments(*more)],
                cwd=self._folder.path,
                env=clean_environment() | {"VIBEY_CONFIG": str(self._folder.config)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _record(self) -> None:
        rows = [[process.pid, process.create_time()] for process in self._processes.values()]
        self._folder.processes.write_text(json.dumps(rows), encoding="utf-8")


def end(processes: Sequence[psutil.Process], *, grace_seconds: float = GRACE_SECONDS) -> None:
    """End these leaders of their own sessions, with everything in their groups; returns when the leaders are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    _, stubborn = psutil.wait_procs(processes, timeout=grace_seconds)
    for process in stubborn:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=GRACE_SECONDS)


def _recorded(record: Path) -> list[psutil.Process]:
    """The processes an earlier demo recorded and did not end, as far as they still are the same."""
    try:
        rows = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    found = []
    for pid, began in rows:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.create_time() == began:
                found.append(process)
    return found


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")
