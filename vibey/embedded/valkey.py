"""The embedded Redis-compatible server: started, asked, stopped and removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.binaries import program_version, redis_binary
from vibey.embedded.processes import (
    ADDRESS_TAKEN,
    Log,
    end,
    exchange,
    free_port,
    processes,
    wait_until,
)
from vibey.embedded.record import Server, write_private

if TYPE_CHECKING:
    from pathlib import Path

    import psutil

START_SECONDS = 60.0
STOP_SECONDS = 20.0
START_TRIES = 3

# The title stays what was started, configuration file and all: by it a process is known as ours.
CONFIGURATION = """\
# Written anew at each start.
bind 127.0.0.1
port {port}
protected-mode yes
requirepass {password}
unixsocket ""
daemonize yes
set-proc-title no
pidfile ""
logfile "{log}"
dir "{directory}"
databases 16
tcp-backlog 128
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class Valkey:
    """The server of one directory."""

    name = "redis"

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._configuration = self._directory / "valkey.conf"
        logs = self._directory.parent / "logs"
        self._log = logs / f"{self._directory.name}.log"

    def answers(self, at: Server) -> bool:
        """Say whether the recorded port answers to the recorded password; no other server knows it.

        Without a process of ours the password is not sent: another user may listen on the port. A server that cannot
        write to its disk refuses even a PING, but it runs, and goes on once there is room.
        """
        if not self._processes():
            return False
        request = f"AUTH {at.password}\r\nPING\r\n".encode()
        answer = exchange(at.port, request, lines=2) if at.port else b""
        return answer.startswith((b"+OK\r\n+PONG\r\n", b"+OK\r\n-MISCONF"))

    def pid(self) -> int | None:
        """Return the server's process id, None when none runs."""
        found = self._processes()
        return found[0].pid if found else None

    def version(self) -> str:
        """Return the release of the program, such as 9.1.2."""
        return program_version(redis_binary())

    def start(self, at: Server) -> Server:
        """Return when it answers; the port returned is the one it has.

        Raises ServiceUnavailable when it cannot be started, or runs and stays silent.
        """
        if self.answers(at):
            return at
        running = self._processes()
        if running:
            if not wait_until(lambda: self.answers(at), seconds=START_SECONDS):
                raise self._unavailable(f"process {running[0].pid} is silent on port {at.port}")
            return at
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._launch(at)

    def stop(self) -> bool:
        """End it after it wrote what it has; say whether it ran."""
        found = self._processes()
        if not end(found, signal.SIGTERM, seconds=STOP_SECONDS):
            raise self._unavailable(f"process {found[0].pid} does not end")
        return bool(found)

    def destroy(self) -> None:
        """Stop it and remove its files."""
        self.stop()
        if self._configuration.is_file():  # else the folder is not of our making
            shutil.rmtree(self._directory)
        self._log.unlink(missing_ok=True)

    def _launch(self, at: Server) -> Server:
        """Start the server, elsewhere if the port is taken between looking and listening."""
        log = Log(self._log)
        for _ in range(START_TRIES):
            port, log = free_port(at.port), Log(self._log)
            if port != at.port:
                at = Server.new(port)
            self._configure(at)
            said = subprocess.run(
                [redis_binary(), self._configuration],
                capture_output=True,
                check=False,
                cwd=self._directory,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                text=True,
            )
            if said.returncode == 0 and self._came_up(at):
                return at
            if not log.says(ADDRESS_TAKEN):
                break
        raise self._unavailable(log.verdict())

    def _came_up(self, at: Server) -> bool:
        """Wait until it answers, or is gone."""
        wait_until(lambda: self.answers(at) or not self._processes(), seconds=START_SECONDS)
        return self.answers(at)

    def _configure(self, at: Server) -> None:
        text = CONFIGURATION.format(
            port=at.port, password=at.password, log=_quoted(self._log), directory=_quoted(self._directory)
        )
        write_private(self._configuration, text)

    def _processes(self) -> list[psutil.Process]:
        ours = str(self._configuration)
        return processes(lambda process: ours in process.cmdline(), name="valkey-server")

    def _unavailable(self, detail: str) -> ServiceUnavailable:
        remedy = f"read {self._log}, or set services.redis_url to a server of your own"
        return ServiceUnavailable("the embedded Redis-compatible server", detail, remedy)


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
