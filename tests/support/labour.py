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
- `escapes`: leave a process behind in a session of its own, without any variable and so without the run's marks;
- `kill`: `holder` kills the worker's process that holds the run, `guard` the supervisor between them, `both` both;
- `stop`: stop one of them for good.

A program that is sent SIGUSR1 leaves such a process behind and kills its supervisor.
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
        self._again = (log, engine, json.dumps({"run_id": job["run_id"], "job_id": job["job_id"]}))
        self.guard = os.getppid()

    def say(self, word: str) -> None:
        """Append one line; a single write, so lines of many processes never mix."""
        os.write(self._log, f"{word} {self._words} {os.getpid()} {time.time_ns()}\n".encode())

    def live(self, seconds: float, gate: str) -> None:
        """Work that long, and until the gate is open."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or (gate and not os.path.exists(gate)):  # noqa: PTH110  (pathlib takes 10 ms)
            self.say("alive")
            select.select([], [], [], PULSE_SECONDS)

    def leave_behind(self) -> None:
        """Start a process that nothing leads back to this one from; return when it is at work."""
        begun, begin = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.dup2(begin, 0)
                os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, *self._again], {})  # noqa: S606
            os._exit(0)
        os.close(begin)
        os.read(begun, 1)
        os.close(begun)

    def escape(self) -> None:
        """Leave such a process behind and kill the supervisor."""
        self.leave_behind()
        os.kill(self.guard, signal.SIGKILL)


def _be_left_behind(log: str, engine: str, job: str) -> None:
    labour = Labour(log, engine, json.loads(job))
    labour.say("alive")
    os.write(0, b".")
    labour.live(600, "")


def _raise_family(labour: Labour) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        labour.live(600, "")
        os._exit(0)


def _strike(guard: int, signum: int, whom: str) -> None:
    with open(f"/proc/{guard}/stat", encoding="utf-8") as stat:  # noqa: PTH123  (as above)
        holder = int(stat.read().rpartition(")")[2].split()[1])
    if whom == "both":
        # Or it would kill everything as soon as the holder is dead; and we die with it.
        os.kill(guard, signal.SIGSTOP)
    for pid in {"guard": [guard], "holder": [holder], "both": [holder, guard]}[whom]:
        os.kill(pid, signum)


def main(log: str, engine: str) -> None:
    """Do one job."""
    job = json.load(sys.stdin)
    payload = job["payload"]
    labour = Labour(log, engine, job)
    signal.signal(signal.SIGUSR1, lambda *_: labour.escape())
    labour.say("start")
    if "needs" in payload and not os.path.exists(payload["needs"]):  # noqa: PTH110  (as above)
        os.kill(os.getpid(), signal.SIGKILL)
    if payload.get("family"):
        _raise_family(labour)
    if payload.get("escapes"):
        labour.leave_behind()
    for word, signum in (("stop", signal.SIGSTOP), ("kill", signal.SIGKILL)):
        if word in payload:
            _strike(labour.guard, signum, payload[word])
    labour.live(payload.get("seconds", 0), payload.get("gate", ""))
    if job["attempt"] <= payload.get("fails", 0):
        sys.exit(1)
    if payload.get("hands_off") == engine:
        sys.exit(75)
    labour.say("end")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        _be_left_behind(*sys.argv[1:])
    else:
        main(sys.argv[1], sys.argv[2])
