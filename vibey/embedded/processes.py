"""Ports, processes and logs of servers in the background."""

from __future__ import annotations

import secrets
import signal
import socket
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LOOPBACK = "127.0.0.1"
# Below the ports kernels hand to outgoing connections (Linux 32768 up, macOS 49152 up), so that no client's
# connection sits on a sticky port while its server is down, nor connects to itself when it looks for it.
PORTS = range(15_000, 32_000)
ADDRESS_TAKEN = "Address already in use"
FAILURE_WORDS = ("FATAL", "PANIC", "Fatal", "Failed", "error", ADDRESS_TAKEN)


def free_port(preferred: int = 0) -> int:
    """Return `preferred` if it can be listened on, else another that can."""
    if preferred and port_is_free(preferred):
        return preferred
    while True:
        port = secrets.choice(PORTS)
        if port_is_free(port):
            return port


def port_is_free(port: int) -> bool:
    """Say whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do: a port whose old connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def exchange(port: int, request: bytes, *, lines: int = 0, seconds: float = 2.0) -> bytes:
    """Send `request` to a loopback port; return what comes back first, or until `lines` ends of line came.

    Nothing, or less, when the port is closed, silent or hangs up.
    """
    answer = b""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=seconds) as connection:
            connection.sendall(request)
            while part := connection.recv(4096):
                answer += part
                if answer.count(b"\r\n") >= lines:
                    break
    except OSError:
        pass
    return answer


def wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Ask again and again until it is true or the time is up; say which."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return True


def processes(wanted: Callable[[psutil.Process], bool], *, name: str) -> list[psutil.Process]:
    """Return the live processes of that program which are `wanted`; those we may not look at are not ours."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name().startswith(name) and is_alive(process) and wanted(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def is_alive(process: psutil.Process) -> bool:
    """Say whether it still runs; a dead process nobody has collected does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(found: Sequence[psutil.Process], how: signal.Signals, *, seconds: float) -> bool:
    """Signal them all and wait; say whether all are gone. A process that was paused is resumed to hear it."""
    for process in found:
        for number in (how, signal.SIGCONT):
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                break
    return wait_until(lambda: not any(is_alive(process) for process in found), seconds=seconds)


class Log:
    """A server's log, read from where it ended when this was made: what one start had to say."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._start = path.stat().st_size if path.exists() else 0

    def says(self, words: str) -> bool:
        """Say whether these words were logged since."""
        return any(words in line for line in self._lines())

    def verdict(self) -> str:
        """Return the last line that names a failure, else the last one that says anything."""
        lines = [line.strip() for line in self._lines() if line.strip()] or ["its log is empty"]
        failures = [line for line in lines if any(word in line for word in FAILURE_WORDS)]
        return (failures or lines)[-1]

    def _lines(self) -> list[str]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._start)
            return file.read().decode("utf-8", errors="replace").splitlines()
