"""Processes that run a module of Python, forked from one that has imported what they need.

An import of Celery, SQLAlchemy and the router takes most of the time that such a process needs to start. A process
from here is a real one all the same: it has a session, an environment, a working folder and streams of its own, and
whoever needs a start from nothing (`vibey up`, the wheel, the pages of the documentation) makes one.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Not the modules of the Celery application: what they do when they are imported depends on the command line.
PRELOADED = (
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.fixups.django",
    "celery.worker.consumer",
    "flower.app",
    "flower.urls",
    "kombu.transport.redis",
    "prometheus_client",
    "tests.support.routers",
    "vibey.flower.pages",
    "vibey.publisher.application",
    "vibey.services.control",
    "vibey.services.endings",
    "vibey.services.following",
    "vibey.services.pulse",
    "vibey.services.route",
    "vibey.services.run",
    "vibey.services.settle",
    "vibey.services.tick",
    "vibey.services.views",
)
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(list(PRELOADED))


class Started:
    """A process of a module, its name the first of the arguments; as much of `subprocess.Popen` as its users need."""

    def __init__(self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        """Start it in a folder, with a session and this environment; what it prints is appended to the log."""
        assert not _read_at_a_start(environment), "a forked process has started already"
        log.touch()
        words = (list(arguments), str(folder), dict(environment), str(log))
        self._process = context.Process(target=_become, args=words, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end; its exit status. Raises TimeoutExpired when it has not ended by then."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, seconds or 0)
        return code

    def send_signal(self, signum: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)


def start(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path, is_fresh: bool = False
) -> Started | subprocess.Popen[bytes]:
    """Start a process of a module, from nothing if it has to be: `is_fresh`, or variables that only a start reads.

    Memory is looked at in fresh processes alone: a forked one fills what its parent freed before it grows.
    """
    if not is_fresh and not _read_at_a_start(environment):
        return Started(arguments, folder=folder, environment=environment, log=log)
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )


def _read_at_a_start(environment: Mapping[str, str]) -> set[str]:
    """The variables that the loader or the interpreter reads before any module, and that differ from this process's."""
    return {
        name
        for name, value in environment.items()
        if name.startswith(("LD_", "PYTHON")) and name != "PYTHONPATH" and value != os.environ.get(name)
    }


def _become(arguments: list[str], folder: str, environment: dict[str, str], log: str) -> None:
    """Be a fresh process that runs a module, as far as it or others could notice."""
    os.setsid()
    os.chdir(folder)
    sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, its in ((nothing, 0), (sink, 1), (sink, 2)):
        os.dup2(ours, its)
    os.close(sink)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(environment)
    own = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [folder, *own, *(part for part in sys.path if part not in {folder, *own})]
    sys.argv[:] = list(arguments)
    process = multiprocessing.current_process()
    process.name = "MainProcess"
    process._config["daemon"] = False  # type: ignore[attr-defined]  # noqa: SLF001  it may have children of its own
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    finally:
        # multiprocessing leaves without them
        atexit._run_exitfuncs()  # noqa: SLF001
