"""A fleet of real processes: workers, beat and the jobs' programs, started, killed and looked at by tests.

Each process has a session of its own, so that `Member.kill` takes a worker with all of its pool and nothing else
(the supervisors of runs have sessions of their own again, as in production).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.support import trees
from tests.support.databases import query
from tests.support.wait import HANGING, until
from tests.support.warm import start
from vibey.services.apply import apply
from vibey.services.enqueue import Order, place
from vibey.services.installation import Installation
from vibey.services.programs import BEAT, BUILD, CONTROL
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vibey.embedded import Services
    from vibey.services.programs import Program

ROOT = Path(__file__).parents[2]
LABOUR = Path(__file__).with_name("labour.py")
LOG_LINES = 60
ENDED = "('succeeded', 'failed', 'cancelled')"


class Member:
    """One process of the fleet, with whatever it started in its own session."""

    def __init__(
        self, name: str, arguments: list[str], log: Path, environment: dict[str, str], *, is_fresh: bool = False
    ) -> None:
        """Start a module of Python with these arguments, its own name the first; a fresh one starts from nothing."""
        self.name = name
        self.log = log
        self._process = start(arguments, folder=ROOT, environment=environment, log=log, is_fresh=is_fresh)

    @property
    def pid(self) -> int:
        """The main process."""
        return self._process.pid

    def pool(self) -> list[int]:
        """The processes of the worker's pool."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    def signal(self, signum: int) -> None:
        """Send a signal to the main process alone."""
        self._process.send_signal(signum)

    def signal_all(self, signum: int) -> None:
        """Send a signal to the main process and its pool at once."""
        os.killpg(self.pid, signum)

    def kill(self) -> None:
        """Kill -9, the main process and its pool at once."""
        self.signal_all(signal.SIGKILL)
        self._process.wait()

    def end(self, seconds: float = HANGING) -> int:
        """Ask it to end in good order and wait for that; its exit status."""
        self.signal(signal.SIGTERM)
        return self.ended(seconds)

    def ended(self, seconds: float = HANGING) -> int:
        """Wait for its end; its exit status."""
        return self._process.wait(seconds)

    @property
    def running(self) -> bool:
        """Whether the main process lives."""
        return self._process.poll() is None

    def text(self) -> str:
        """Everything it has logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def clear(self) -> None:
        """Leave nothing of it behind, its orphaned pool included; nor touch who has been given its number since."""
        while left := [self.pid] if self.running else trees.of_group(self.pid, self.log):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL)
            if self.pid in left:
                self._process.wait()


class Fleet:
    """One installation in a folder, its processes, and short ways to wait for what its tables say."""

    def __init__(
        self,
        folder: Path,
        services: Services | None,
        prefix: str,
        tables: Mapping[str, Any],
        application: str = "vibey",
        *,
        migrated: bool = True,
        is_fresh: bool = False,
    ) -> None:
        """Write the configuration and put it in force, unless the database is not migrated.

        `services` None means embedded servers under the folder.

        `application` is the Celery application of its workers and beats, which a test may have spoiled. The processes
        of a fresh fleet are started from nothing.
        """
        self._is_fresh = is_fresh
        self._application = application
        self.folder = folder
        self.labour_log = folder / "labour.log"
        self.config = folder / "vibey.toml"
        self.members: list[Member] = []
        # Ours first; after it what a test has installed for its workers.
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.environment = {**os.environ, "PYTHONPATH": path, "VIBEY_CONFIG": str(self.config)}
        self.labour_log.touch()
        self.config.write_text(_toml(self._tables(services, prefix, tables)), encoding="utf-8")
        self.settings = load(self.config, {})
        self.installation = Installation.open(self.settings)
        if migrated:
            apply(self.installation)

    def _tables(self, services: Services | None, prefix: str, tables: Mapping[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {"data_dir": str(self.folder / "data"), "redis_prefix": prefix, "flower_login": "never"}
        if services is not None:
            own.update(database_url=services.database_url, redis_url=services.redis_url)
        defaults = {"mode": "singleton", "lease_seconds": 3, "retry_backoff_seconds": 0}
        engines = {name: self._engine(name, table) for name, table in tables["engine"].items()}
        return {"services": own, "engines": {**defaults, **tables.get("engines", {})}, "engine": engines}

    def _engine(self, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
        argv = [sys.executable, "-I", "-S", str(LABOUR), str(self.labour_log), name]
        command = {} if "kind" in table else {"kind": "command", "argv": argv}
        return {"tier": "local", **command, **table}

    def control(
        self, name: str = "control", *, hostname: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Member:
        """Start a worker that routes and ticks; like the others', its environment may hold more.

        `hostname` is the whole name by which other workers know it.
        """
        return self._start(CONTROL, name, "--hostname", hostname or f"{name}@%h", environment=environment)

    def build(self, name: str = "build", *more: str, environment: Mapping[str, str] | None = None) -> Member:
        """Start a worker that runs jobs of every engine."""
        return self._start(BUILD, name, "--hostname", f"{name}@%h", *more, environment=environment)

    def beat(self, name: str = "beat", *, environment: Mapping[str, str] | None = None) -> Member:
        """Start a beat."""
        return self._start(BEAT, name, "--schedule", str(self.folder / name), environment=environment)

    def _start(self, program: Program, name: str, *more: str, environment: Mapping[str, str] | None) -> Member:
        """Start a program of the product's own table, under another name and with the fleet's application."""
        assert program.command[:3] == ("celery", "-A", "vibey")
        return self.start(name, *program.command[3:], *more, environment=environment)

    def start(
        self, name: str, *arguments: str, app: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Member:
        """Start a process of a Celery app, the fleet's own by default."""
        line = ("celery", "-A", app or self._application, *arguments, "--loglevel", "INFO")
        return self.launch(name, *line, environment=environment)

    def launch(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Member:
        """Start a process of the fleet's that is any module of Python, its name first."""
        log = self.folder / f"{name}.log"
        variables = {**self.environment, **(environment or {})}
        member = Member(name, [*arguments], log, variables, is_fresh=self._is_fresh)
        self.members.append(member)
        return member

    def muster(self, *builds: str) -> list[Member]:
        """Start control, beat and build workers (one by default) and wait until the fleet serves; the build workers."""
        self.control()
        self.beat()
        started = [self.build(name) for name in builds or ("build",)]
        self.until_workers(1 + len(started))
        return started

    def until_workers(self, count: int) -> None:
        """Wait until so many workers have said that they live."""
        until(lambda: self.value("select count(*) from workers") >= count, what=f"{count} workers at work")

    def enqueue(self, count: int = 1, **values: Any) -> list[int]:
        """Enqueue jobs alike; their ids."""
        return [placed.job_id for placed in place(self.installation, [Order(**values)] * count)]

    def gate(self, name: str) -> Path:
        """A file for which jobs with `{"gate": …}` wait; `touch` opens it."""
        return self.folder / f"gate-{name}"

    @property
    def url(self) -> str:
        """The address of the database."""
        return self.installation.database.url

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return query(self.url, statement)

    def value(self, statement: str) -> Any:
        """The first column of the first row."""
        return self.rows(statement)[0][0]

    def states(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return dict(self.rows("select state, count(*)::int from jobs group by state"))

    def until(self, statement: str, *, seconds: float = HANGING, what: str = "") -> Any:
        """Wait until a query's first value is true."""
        return until(lambda: self.value(statement), seconds=seconds, what=what or statement)

    def until_working(self, count: int = 1) -> list[tuple[int, int, int]]:
        """Wait until so many runs' programs are at work; their (run, job, pid of the holder), oldest first."""

        def working() -> list[tuple[int, int, int]]:
            live = self.rows("select id, job_id, pid from runs where state = 'running' order by id")
            begun = self.labour_log.read_text(encoding="utf-8")
            return [row for row in live if f"start {row[0]} {row[1]} " in begun]

        until(lambda: len(working()) >= count, what=f"{count} programs at work")
        return working()

    def until_ended(self, *, seconds: float = HANGING) -> dict[str, int]:
        """Wait until every job has ended; how many are in each state."""
        try:
            self.until(f"select count(*) > 0 and bool_and(state in {ENDED}) from jobs", seconds=seconds)
        except AssertionError as late:
            open_jobs = f"select id, state, attempt, reason, run_id from jobs where state not in {ENDED} order by id"
            raise AssertionError(f"jobs not ended after {seconds} s: {self.rows(open_jobs)}") from late
        return self.states()

    def until_nothing_runs(self) -> None:
        """Wait until no process of any run is left on this machine."""
        until(lambda: not trees.living(self.installation.identity, without_supervisor=False), what="the trees' end")

    def close(self) -> None:
        """Kill what still runs and show the logs, which a failing test prints."""
        for member in self.members:
            member.clear()
        until(self._nothing_left, what="the supervisors' end")
        self.installation.database.dispose()
        for log in sorted({member.log for member in self.members}):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            sys.stdout.write("\n".join([f"----- {log.name}", *lines[-LOG_LINES:], ""]))

    def _nothing_left(self) -> bool:
        left = trees.living(self.installation.identity, without_supervisor=False)
        left += trees.unmarked(self.labour_log)
        for pid in {*trees.living(self.installation.identity), *trees.unmarked(self.labour_log)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left


def gone(pid: int) -> Callable[[], bool]:
    """A question for `until`: whether a process can do nothing any more."""
    return lambda: trees.ended(pid)


def _toml(tables: Mapping[str, Any], above: str = "") -> str:
    lines: list[str] = []
    for name, table in tables.items():
        nested = {key: value for key, value in table.items() if isinstance(value, dict)}
        lines.append(f"[{above}{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items() if key not in nested]
        lines.append(_toml(nested, f"{above}{name}."))
    return "\n".join(lines) + "\n"
