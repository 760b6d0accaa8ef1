"""Supervised: one supervisord per data folder, which keeps the workers, beat and Flower running.

It runs in a session of its own, like the servers: it outlives the terminal that started it, and only `stop` ends it.
A process counts as ours by its command line, which names our configuration, never by a number in a file alone. What a
killed worker left behind is found by a variable all programs inherit, `VIBEY_PROCESSES`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xmlrpc.client
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from xml.parsers.expat import ExpatError

import psutil

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.processes import end, is_alive, wait_until
from vibey.engines.processes import environment_of
from vibey.services.programs import OWNER_VARIABLE, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

START_SECONDS = 20.0
STOP_SECONDS = 90.0
LEFTOVER_SECONDS = 10.0
KILL_SECONDS = 5.0
LOG_LINES = 6
DEAD_STATES = frozenset({"STOPPED", "EXITED", "FATAL", "UNKNOWN"})


@dataclass(frozen=True, slots=True)
class Process:
    """A program as supervisord sees it; `pid` is None while none runs, `exits` tells how it last ended."""

    name: str
    state: str
    pid: int | None
    exit_status: int | None

    @property
    def running(self) -> bool:
        """Whether it has been up for a while."""
        return self.state == "RUNNING"


def supervisord(layout: Layout) -> psutil.Process | None:
    """The live supervisord of this data folder, if there is one."""
    try:
        pid = int((layout.folder / "supervisord.pid").read_text(encoding="ascii"))
        process = psutil.Process(pid)
        ours = is_alive(process) and str(layout.configuration) in process.cmdline()
    except (OSError, ValueError, psutil.Error):
        return None
    return process if ours else None


def launch(layout: Layout, environ: Mapping[str, str]) -> None:
    """Start supervisord on a configuration already written; returns when it answers.

    ServiceUnavailable, with what it said, when it does not.
    """
    said = layout.folder / "supervisord.out"
    with said.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "vibey.services.supervise", "-c", str(layout.configuration)],
            cwd=layout.folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    wait_until(lambda: process.poll() is not None or bool(processes(layout)), seconds=START_SECONDS)
    if process.poll() is not None or not processes(layout):
        raise ServiceUnavailable("the process supervisor", _last_line(said), f"read {said}")
    # It is left to itself: nobody waits for it, and its handle must not complain when it is forgotten.
    process.returncode = 0


def processes(layout: Layout) -> list[Process]:
    """Every program and how it is; an empty list when supervisord does not answer."""
    if supervisord(layout) is None:
        return []
    found = _ask(layout, "getAllProcessInfo")
    return [_process(info) for info in found] if isinstance(found, list) else []


def revive(layout: Layout) -> list[str]:
    """Start the programs that have stopped for good; returns their names."""
    dead = [process.name for process in processes(layout) if process.state in DEAD_STATES]
    for name in dead:
        _ask(layout, "startProcess", name, False)  # noqa: FBT003  its protocol: do not wait
    return dead


def stop(layout: Layout) -> bool:
    """End supervisord and its programs in good order, then whatever is left; says whether anything ran."""
    process = supervisord(layout)
    if process is not None and not end([process], signal.SIGTERM, seconds=STOP_SECONDS):
        end([process], signal.SIGKILL, seconds=KILL_SECONDS)
    left = leftovers(layout)
    if left and not end(left, signal.SIGTERM, seconds=LEFTOVER_SECONDS):
        end(leftovers(layout), signal.SIGKILL, seconds=KILL_SECONDS)
    return process is not None or bool(left)


def leftovers(layout: Layout) -> list[psutil.Process]:
    """Live processes that one of this folder's programs is, or was, the parent of."""
    mark = os.fsencode(f"{OWNER_VARIABLE}={layout.data_dir}")
    found = []
    for process in psutil.process_iter():
        try:
            if mark in environment_of(process.pid).split(b"\0") and is_alive(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def last_words(layout: Layout, program: str) -> list[str]:
    """The last lines of a program's log."""
    try:
        text = layout.log(program).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-LOG_LINES:]


def _ask(layout: Layout, method: str, *arguments: object) -> Any:  # noqa: ANN401  whatever the method returns
    from supervisor.xmlrpc import SupervisorTransport

    layout.require_own_socket_folder()
    transport = SupervisorTransport(None, None, f"unix://{layout.socket}")
    try:
        proxy = xmlrpc.client.ServerProxy("http://supervisord", transport=transport)
        return getattr(proxy.supervisor, method)(*arguments)
    except (OSError, HTTPException, xmlrpc.client.Error, ExpatError):
        return None
    finally:
        transport.close()


def _process(info: Mapping[str, Any]) -> Process:
    state = str(info["statename"])
    ended = state in {*DEAD_STATES, "BACKOFF"}
    return Process(str(info["name"]), state, int(info["pid"]) or None, int(info["exitstatus"]) if ended else None)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else "it does not answer"
