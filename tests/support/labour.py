"""The program of the jobs of the fault tests: it writes down, for as long as it lives, that it is at work.

Arguments: the log and the engine's name. Each line of the log is `WORD RUN JOB ENGINE PID NANOSECONDS`, the words being
`start`, `alive` (again and again, from every process of the tree) and `end`. A killed tree leaves no `end`: its last
line is then as late as it can be known to have lived. The job's payload says what to do:

- `seconds`: how long to work (default 0);
- `gate`: a file to wait for before it ends;
- `fails`: fail by exit 1 in so many first attempts;
- `hands_off`: on the engine of this name, wind down early as a program does that saved its state, by exit 75;
- `needs`: a file without which it dies at once, by its own hand, as a program that crashes does;
- `family`: start a child in a session of its own that ignores TERM, and ignore TERM too;
- `kill`: `holder` kills the worker's process that holds the run, `guard` the supervisor between them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

PULSE_SECONDS = 0.02


class Labour:
    """One process of a job's tree."""

    def __init__(self, log: str, engine: str, job: dict[str, object]) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._words = f"{job['run_id']} {job['job_id']} {engine}"

    def say(self, word: str) -> None:
        """Append one line; a single write, so lines of many processes never mix."""
        os.write(self._log, f"{word} {self._words} {os.getpid()} {time.time_ns()}\n".encode())

    def live(self, seconds: float, gate: str) -> None:
        """Work that long, and until the gate is open."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or (gate and not os.path.exists(gate)):  # noqa: PTH110  (pathlib takes 10 ms)
            self.say("alive")
            select.select([], [], [], PULSE_SECONDS)


def _raise_family(labour: Labour) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        labour.live(600, "")
        os._exit(0)


def _grandparent() -> int:
    with open(f"/proc/{os.getppid()}/stat", encoding="utf-8") as stat:  # noqa: PTH123  (as above)
        return int(stat.read().rpartition(")")[2].split()[1])


def main(log: str, engine: str) -> None:
    """Do one job."""
    job = json.load(sys.stdin)
    payload = job["payload"]
    labour = Labour(log, engine, job)
    labour.say("start")
    if "needs" in payload and not os.path.exists(payload["needs"]):  # noqa: PTH110  (as above)
        os.kill(os.getpid(), signal.SIGKILL)
    if payload.get("family"):
        _raise_family(labour)
    if "kill" in payload:
        os.kill(_grandparent() if payload["kill"] == "holder" else os.getppid(), signal.SIGKILL)
    labour.live(payload.get("seconds", 0), payload.get("gate", ""))
    if job["attempt"] <= payload.get("fails", 0):
        sys.exit(1)
    if payload.get("hands_off") == engine:
        sys.exit(75)
    labour.say("end")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
