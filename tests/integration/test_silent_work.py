"""Silence of a coding client: work that prints nothing goes on, and one that does nothing, or next to it, stalls."""

from __future__ import annotations

import socketserver
import sys
import threading
import uuid
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from tests.support.carried import carried_out
from tests.support.recordings import FOLDER
from vibey.domain.effort import Effort
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.engines import activity
from vibey.engines.contract import EngineConfig, Job
from vibey.engines.registry import equipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vibey.domain.outcome import Outcome
    from vibey.engines.contract import Stopped

    Run = Callable[[str], Outcome | Stopped]

STALL_SECONDS = 2.0
# Each goes on for some time of silence, given in its arguments, and needs the address of an echo server.
BEGIN = "import os, socket, sys, time\nseconds, port = float(sys.argv[1]), int(sys.argv[2])\nbegan = time.monotonic()\n"
UNTIL = "while time.monotonic() - began < seconds:\n"
WORKING = {
    "processor": f"{UNTIL}    pass\n",
    "processor of a child": f"if os.fork() == 0:\n    {UNTIL.strip()}\n        pass\n    os._exit(0)\nos.wait()\n",
    "socket": (
        "line = socket.create_connection(('127.0.0.1', port))\n"
        f"{UNTIL}    line.send(b'question')\n    line.recv(100)\n    time.sleep(0.1)\n"
    ),
    "file kept open": (
        f"file = open('kept', 'wb', buffering=0)\n{UNTIL}    file.write(b'one line more')\n    time.sleep(0.1)\n"
    ),
    "files of a moment": (
        f"{UNTIL}    with open('moment', 'a') as file:\n        file.write('a line')\n"
        "        file.write(' or two')\n    time.sleep(0.1)\n"
    ),
    "reading": (
        "open('large', 'wb').write(bytes(1 << 20))\n"
        f"{UNTIL}    with open('large', 'rb', buffering=0) as file:\n        file.read()\n    time.sleep(0.1)\n"
    ),
}
# What clients do while their provider keeps them waiting: they wake their own threads, poll a small file, and send the
# request again every now and then.
STILL = {
    "nothing": "time.sleep(600)\n",
    "wakes threads": (
        "end = os.eventfd(0)\nwhile True:\n    os.write(end, (1).to_bytes(8, 'little'))\n    os.read(end, 8)\n"
        "    time.sleep(0.05)\n"
    ),
    "polls a file": (
        "open('queue', 'wb').write(bytes(100))\nwhile True:\n    with open('queue', 'rb', buffering=0) as file:\n"
        "        file.read(100)\n    time.sleep(0.1)\n"
    ),
    "asks again": (
        "while True:\n    line = socket.create_connection(('127.0.0.1', port))\n    line.send(bytes(30_000))\n"
        "    time.sleep(1.5)\n    line.close()\n"
    ),
}


class _Echo(socketserver.BaseRequestHandler):
    @override
    def handle(self) -> None:
        while received := self.request.recv(65536):
            if len(received) < 100:
                self.request.sendall(received)


@pytest.fixture
def port() -> Iterator[int]:
    """A server that answers short questions, and long ones not at all."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def run(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a script in the place of a client, which is silent for three stalls and then prints a success."""
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))

    def begin(script: str) -> Outcome | Stopped:
        silent = tmp_path / "silent.py"
        silent.write_text(BEGIN + script, encoding="utf-8")
        work = f"'{sys.executable}' '{silent}' {3 * STALL_SECONDS:g} {port}"
        program.write_text(f"#!/bin/sh\n{work} && cat '{FOLDER / 'codex-success.stream'}'\n", encoding="utf-8")
        program.chmod(0o755)
        job = Job(7, 70, 9, 1, Effort.LOW, {"prompt": "go"}, "site", installation=uuid.uuid4().hex)
        return carried_out(equipped(EngineConfig("e", "codex")), job, tmp_path / "runs", 60, STALL_SECONDS)

    return begin


@pytest.mark.parametrize("script", WORKING.values(), ids=WORKING)
def test_silent_work_goes_on(script: str, run: Run) -> None:
    """Whatever a client does without a word, itself or by a program it has started, is no stall."""
    outcome = run(script)
    assert isinstance(outcome, Success), outcome


@pytest.mark.parametrize("script", STILL.values(), ids=STILL)
def test_stillness_is_a_stall(script: str, run: Run) -> None:
    """A client that waits is ended, also one that wakes up now and then."""
    nothing = "no output, and no processor, file or socket activity"
    assert run(script) == Failure(FailureClass.ENGINE, f"stall: {nothing}, for 2 s")


def test_idle_clients_count_as_still() -> None:
    """The most that each of five real clients did in 10 s while their provider kept them waiting; twice is work."""
    before = activity.Sample({(1, 1): 5.0}, {(1, 1): 10**6}, {(1, 1): 10**6}, {(2, 1): 10**6})
    idle = activity.Sample({(1, 1): 5.3}, {(1, 1): 10**6 + 20_000}, {(1, 1): 10**6}, {(2, 1): 10**6})
    assert not idle.is_active_since(before, 10.0)
    assert idle.is_active_since(before, 3.0)
    assert activity.Sample(written={(3, 1): 9}).is_active_since(before, 10.0)
    assert activity.Sample(carried={(2, 1): 10**6 + 60}).is_active_since(before, 10.0)
    assert not activity.Sample().is_active_since(before, 10.0)
