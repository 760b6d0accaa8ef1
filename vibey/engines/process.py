"""SupervisedProcess: the holder's side of one process tree; `vibey.engines.supervisor` tells the whole story.

One thread reads (`lines`, `wait`), any thread may `extend` and `stop`. Output is read as it comes and never
held beyond one line; when the supervisor says that the tree is dead, what is still in the pipe is taken and
no more is waited for, so a stranger who got hold of the pipe cannot keep the run open. A supervisor that does
not answer is not waited for either.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.engines import processes, proctable
from vibey.engines.contract import Exit, Log, StopReason
from vibey.engines.launch import Launch
from vibey.engines.moment import Moment
from vibey.engines.stream import LineCutter, Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vibey.engines.marks import Marks

_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]); import supervisor; del sys.path[0];"
    " supervisor.main(int(sys.argv[2]), int(sys.argv[3]))"
)
_PIECE = 64 * 1024
_LARGEST_PIPE = 1024 * 1024
_LOOK_MS = 250
# How long past an end that must have come the supervisor is still trusted to bring it about.
_LATE_AFTER_LEASE_SECONDS = 0.25
_LATE_AFTER_STOP_SECONDS = 3.0
_HANDSHAKE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """What to start: arguments, whole environment, working folder, input file, what to mask in its output."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    stdin: Path | None = None
    secrets: tuple[str, ...] = ()


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """The file this environment's PATH leads to; None if there is none, or the name is a relative path."""
    if os.path.dirname(name) and not os.path.isabs(name):  # noqa: PTH117, PTH120
        return None
    return shutil.which(name, path=environment.get("PATH", os.defpath))


class SupervisedProcess:
    """A process tree under a supervisor of its own. Starting it returns at once; `wait` says how it ended."""

    def __init__(self, order: Order, *, marks: Marks, lease_end: Moment, log: Log) -> None:
        self._marks = marks
        self._log = log
        self._lock = threading.Lock()
        self._lease_end = lease_end
        self._stop_reason: StopReason | None = None
        self._stop_due: Moment | None = None
        self._exit: Exit | None = None
        self._child: tuple[int, int] | None = None
        self._inbox = b""
        self._redactor = Redactor(order.secrets)
        self._guard: subprocess.Popen[bytes] | None = None
        self._output = -1
        self._control: socket.socket | None = None
        self.heard_at = Moment.now()
        self._start(order)

    def _start(self, order: Order) -> None:
        environment = {**order.environment, **self._marks.variables()}
        program = find_program(order.argv[0], environment)
        if program is None:
            self._exit = Exit(None, errno=errno.ENOENT)
            return
        launch = Launch(
            holder=os.getpid(),
            lease_end=self._lease_end.monotonic_ns,
            lease_end_boot=self._lease_end.boot_ns,
            directory=str(order.directory),
            stdin=str(order.stdin or os.devnull),
            program=program,
            argv=order.argv,
            environment=environment,
        )
        block = launch.packed()
        control, self._output, self._guard = _start_guard(self._marks)
        self._control = control
        try:
            control.settimeout(_HANDSHAKE_SECONDS)
            control.sendall(block)
        except OSError:
            self._take_over()
        control.setblocking(False)  # noqa: FBT003  (its one parameter is positional)

    @property
    def root(self) -> int:
        """The process that everything of the tree is below; 0 if none was started."""
        return 0 if self._guard is None else self._guard.pid

    @property
    def exit(self) -> Exit | None:
        """How the tree ended; None while that is not known."""
        return self._exit

    def lines(self) -> Iterator[str]:
        """Lines of output as they come, until the tree is dead; a line of over 4 MiB comes in parts."""
        cutter = LineCutter()
        for piece in self._relayed():
            yield from cutter.feed(piece)
        yield from cutter.rest()

    def wait(self) -> Exit:
        """Relay the rest of the output; how the tree ended, once nothing of it is left."""
        for _ in self._relayed():
            pass
        assert self._exit is not None  # noqa: S101  (for the type checker: _relayed ends with it)
        return self._exit

    def extend(self, lease_end: Moment) -> None:
        """Let the tree live up to this moment; an earlier one than before changes nothing."""
        with self._lock:
            self._lease_end = max(self._lease_end, lease_end)
            self._say(f"lease {lease_end.monotonic_ns} {lease_end.boot_ns}")

    def stop(self, reason: StopReason, grace_seconds: float) -> None:
        """Have the tree ended: TERM, and KILL after the grace; KILL at once for none. Does not wait."""
        with self._lock:
            self._stop_reason = self._stop_reason if self._stop_reason and grace_seconds else reason
            due = Moment.now().plus(grace_seconds + _LATE_AFTER_STOP_SECONDS)
            self._stop_due = min(self._stop_due or due, due)
            self._say(f"stop {int(grace_seconds * 1000)} {reason.value}")

    def close(self) -> None:
        """Kill the tree if it lives, see it dead, let go of everything. Safe to call again."""
        if self._exit is None:
            self.stop(self._stop_reason or StopReason.CANCEL, 0.0)
            self.wait()
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
            if self._output >= 0:
                os.close(self._output)
                self._output = -1

    def _say(self, line: str) -> None:
        if self._control is not None and self._exit is None:
            try:
                self._control.send(f"{line}\n".encode(), socket.MSG_DONTWAIT)
            except OSError:
                return  # dead or stopped: the reading side notices either

    def _relayed(self) -> Iterator[bytes]:
        """Pieces of output, each already in the log and without secrets, until the tree is dead."""
        for piece in self._pieces():
            self.heard_at = Moment.now()
            clean = self._redactor.feed(piece)
            self._log.write(clean)
            yield clean
        if seam := self._redactor.rest():
            self._log.write(seam)
            yield seam

    def _pieces(self) -> Iterator[bytes]:
        if self._control is None or self._exit is not None:
            return
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        while self.exit is None:
            for descriptor, _ in poll.poll(_LOOK_MS):
                if descriptor != self._output:
                    self._listen()
                elif piece := os.read(self._output, _PIECE):
                    yield piece
                else:
                    poll.unregister(self._output)
            self._check_guard()
        yield from self._remains()

    def _remains(self) -> Iterator[bytes]:
        os.set_blocking(self._output, False)
        left = _LARGEST_PIPE
        try:
            while left > 0 and (piece := os.read(self._output, _PIECE)):
                left -= len(piece)
                yield piece
        except BlockingIOError:
            return

    def _listen(self) -> None:
        assert self._control is not None  # noqa: S101  (for the type checker: it is open while we poll it)
        try:
            heard = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._take_over()
            return
        *lines, self._inbox = (self._inbox + heard).split(b"\n")
        for line in lines:
            self._understand(line.decode().split())

    def _understand(self, words: list[str]) -> None:
        if words[0] == "started":
            self._child = int(words[1]), int(words[2])
        elif words[0] == "refused":
            self._ended(Exit(None, errno=int(words[1])))
        elif words[0] == "ended":
            code = None if words[1] == "None" else int(words[1])
            self._ended(Exit(code, stopped=_reason(words[2]), unreachable=int(words[3])))
        else:
            self._log.note(f"the run's processes are {words[0]}")

    def _ended(self, ending: Exit) -> None:
        with self._lock:
            self._exit = ending
        if self._guard is not None:
            try:
                self._guard.wait(_LATE_AFTER_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._guard.kill()
                self._guard.wait()

    def _check_guard(self) -> None:
        if self._exit is None and self._is_late():
            self._take_over()

    def _is_late(self) -> bool:
        with self._lock:
            # Sleep alone is no reason: the supervisor has frozen the tree and waits for our renewal.
            if self._lease_end.plus(_LATE_AFTER_LEASE_SECONDS).has_come_awake():
                self._stop_reason = self._stop_reason or StopReason.LEASE_LOST
                return True
            return self._stop_due is not None and self._stop_due.has_come_awake()

    def _take_over(self) -> None:
        """Do the supervisor's work: it died, or it is stopped and answers nothing."""
        assert self._guard is not None  # noqa: S101  (for the type checker: nothing talks without one)
        if self._guard.poll() is None:
            processes.kill_descendants(self._guard.pid)
            self._guard.kill()
            self._guard.wait()
        if self._child is not None:
            row = proctable.read(self._child[0])
            if row is not None and row.started == self._child[1]:
                _kill_group(row.pid)
        processes.kill_marked(self._marks)
        self._ended(Exit(None, stopped=self._stop_reason, guard_lost=True))


def _start_guard(marks: Marks) -> tuple[socket.socket, int, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    output, theirs_output = os.pipe()
    # A Python that is itself a shared library may be found by this variable only.
    environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    arguments = (str(Path(__file__).parent), str(theirs.fileno()), str(theirs_output))
    try:
        guard = subprocess.Popen(
            (sys.executable, "-I", "-S", "-c", _BOOTSTRAP, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), theirs_output),
            env={**environment, **marks.variables()},
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(output)
        raise
    finally:
        theirs.close()
        os.close(theirs_output)
    return ours, output, guard


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        return


def _reason(word: str) -> StopReason | None:
    return next((reason for reason in StopReason if reason.value == word), None)
