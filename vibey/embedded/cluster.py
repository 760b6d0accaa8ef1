"""A Postgres cluster on disk: making it, its processes, and SQL without a server."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import psutil

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.home import Owner, programs
from vibey.embedded.processes import end, is_alive, processes
from vibey.embedded.record import write_private

if TYPE_CHECKING:
    from pathlib import Path

SETUP_SECONDS = 120.0
# The same order of texts on every machine, whatever its locale.
INITDB = (
    "--username=vibey",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)


def create(cluster: Path, password: str) -> None:
    """Make a cluster with the role and database `vibey`; it appears under its name in one step.

    Raises ServiceUnavailable with what initdb said when it fails.
    """
    home = cluster.parent
    owner = Owner.of(home)
    draft, secret = home / "cluster.new", home / "password"
    if draft.exists():
        shutil.rmtree(draft)
    write_private(secret, password, owner=owner.ids)
    initdb = programs(owner) / "initdb"
    try:
        made = owner.run([initdb, *INITDB, "-D", draft, "--pwfile", secret], seconds=SETUP_SECONDS)
    finally:
        secret.unlink()
    if made.returncode != 0:
        raise _setup_failed("initdb", made.stdout)
    run_sql(draft, "CREATE DATABASE vibey")
    draft.rename(cluster)


def run_sql(cluster: Path, statement: str) -> None:
    """Run one statement in a cluster nobody serves. Raises ServiceUnavailable with what Postgres said."""
    owner = Owner.of(cluster)
    command: list[str | Path] = [programs(owner) / "postgres", "--single", "-D", cluster, "postgres"]
    done = owner.run(command, stdin=statement.encode() + b"\n", seconds=SETUP_SECONDS)
    # This mode ends with 0 whatever became of the statement.
    if done.returncode != 0 or b"ERROR:" in done.stdout:
        raise _setup_failed("setting it up", done.stdout)


def postmaster(cluster: Path) -> psutil.Process | None:
    """Return the live process that serves this cluster, by its pid file and its command line; else None."""
    pid = _recorded_pid(cluster)
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        ours = is_alive(process) and str(cluster) in process.cmdline()
    except psutil.Error:
        return None
    return process if ours else None


def clear_remains(cluster: Path) -> None:
    """Make a cluster without postmaster startable: end what a killed one left, drop a misleading pid file.

    Postgres sees by itself that a process id is gone. It cannot see that the id is now another process's, and
    would refuse to start; but the file also guards against backends still at work, so these are ended first.
    """
    left = processes(lambda process: process.cwd() == str(cluster), name="postgres")
    if not end(left, signal.SIGQUIT, seconds=5) and not end(left, signal.SIGKILL, seconds=5):
        pids = ", ".join(str(process.pid) for process in left)
        raise ServiceUnavailable(
            "the embedded Postgres",
            f"processes {pids} of a killed server do not end",
            f"end them: kill -9 {pids}",
        )
    pid = _recorded_pid(cluster)
    if pid is not None and psutil.pid_exists(pid):
        (cluster / "postmaster.pid").unlink()


def _recorded_pid(cluster: Path) -> int | None:
    try:
        pid = int((cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if pid > 0 else None


def _setup_failed(step: str, said: bytes) -> ServiceUnavailable:
    lines = [line for line in said.decode("utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "FATAL" in line] or lines or ["no output"]
    return ServiceUnavailable(
        "the embedded Postgres",
        f"{step} failed: {telling[0].strip()}",
        "mend that, or set services.database_url to a Postgres of your own",
    )
