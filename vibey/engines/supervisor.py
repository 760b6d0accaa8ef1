"""The supervisor: a small process between a holder and the process tree of one run; it dies last.

Authority. The database says who owns a run; the *holder* (a worker process) renews the lease there. The
supervisor knows nothing of databases. It obeys one number: the instant up to which the holder has proved the
lease, on the monotonic clock that every process of this boot shares. An absolute instant, never "so long from
now": a message that lay in a buffer while either side was stopped cannot lengthen a lease. Past that instant
the supervisor acts alone.

Words on the control socket. To the supervisor: first the launch block, then lines `lease MONOTONIC_NS
BOOT_NS` and `stop GRACE_MS REASON`. To the holder: `started PID TICKS` or `refused ERRNO`, `frozen`,
`thawed`, and last `ended STATUS REASON LEFT`, sent when nothing of the tree is left: STATUS is that of the
direct child (negative: the signal that killed it), REASON is `-` for an end of its own, LEFT counts what even
KILL could not reach.

States. *Running*, until one of:
- the direct child ends by itself: what it left in the background is killed, then the end is reported. A run
  is over when its tree is.
- `stop` with a grace: TERM to the whole tree, and KILL to what is left once the grace is over. Grace counts
  for the tree, not for the direct child: a shell that dies at once does not take its saving client with it.
- `stop` without one, the lease's instant, or a lost holder: KILL.

*Frozen*: the machine was suspended so long that the lease has ended by the clock that counts sleep, though
not by the one that does not. Whether the run is still ours only the database knows (it judges no lease right
after a gap), so the tree is stopped, which is as good as dead to everybody else, until the holder has asked
and extends the lease.

Who dies, and what then:
- the holder: its end of the socket closes, its process handle becomes readable and our parent changes. Any
  one of these is enough, so a copy of the socket in some forked stranger cannot keep the tree alive. KILL.
- the holder is stopped, or cut off from the database: nothing extends the lease; its instant comes. KILL.
- this process: the kernel kills the direct child (parent-death signal); the holder sees the socket close and
  kills whatever carries the run's marks. If the holder died with us, the next worker on this host does that at
  its start.
- this process is stopped: the holder, seeing no answer past the instant, kills us and the tree itself.

Descendants cannot get away by a session or double fork of their own: we are their subreaper, so orphans
become our children. Only what the kernel will not show or let us signal (another user's, after sudo) escapes;
it is counted.

This file is loaded by its path, in isolated mode (-I -S) and with the fewest imports: its start is part of
the cost of every run.
"""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the public module costs 4 ms more to import, for enum names nobody here needs

if TYPE_CHECKING or __package__:
    from vibey.engines import launch, proctable
else:
    import launch
    import proctable

BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
LONGEST_WAIT_MS = 1000
FIRST_KILL_PAUSE_MS = 2
LONGEST_KILL_PAUSE_MS = 200
GIVE_UP_NS = 10_000_000_000
# What tells everything at once (a terminal, a service manager) must not take the guard before the guarded.
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


class Supervisor:
    """One run's tree and the reasons it may go on; `run` returns when nothing of it is left."""

    def __init__(self, control: int, order: launch.Launch) -> None:
        self._control = control
        self._inbox = b""
        self._holder = order.holder
        self._holder_lost = False
        self._lease_end = order.lease_end
        self._lease_end_boot = order.lease_end_boot
        self._kernel = launch.Kernel()
        self._adopts = self._kernel.adopt_orphans()
        self._child = 0
        self._status: int | None = None
        self._empty = False
        self._frozen = False
        self._reason = "-"
        self._grace_end: int | None = None
        self._killing_since: int | None = None
        self._kill_pause_ms = FIRST_KILL_PAUSE_MS
        self._poll = select.poll()
        self._holder_signs = [control]
        self._watch_events()

    def _watch_events(self) -> None:
        self._deaths, wake = os.pipe()
        for descriptor in (self._control, self._deaths, wake):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        handle = proctable.handle_of(self._holder)
        if handle is not None:  # otherwise the closing socket and the change of parent tell as much
            self._holder_signs.append(handle)
        for descriptor in (self._deaths, *self._holder_signs):
            self._poll.register(descriptor, select.POLLIN)

    def run(self, order: launch.Launch, output: int) -> None:
        """Start the tree, guard it to its end, report."""
        self._child, errno = launch.start_child(order, self._kernel, output)
        os.close(output)
        if not self._child:
            self._tell(f"refused {errno}")
            return
        row = proctable.read(self._child)
        self._tell(f"started {self._child} {row.started if row else 0}")
        while not self._is_over():
            self._judge()
            self._attend(self._poll.poll(self._patience_ms()))
            self._reap()
        self._tell(f"ended {self._status} {self._reason} {0 if self._empty else len(self._tree())}")

    def _attend(self, ready: list[tuple[int, int]]) -> None:
        for descriptor, _ in ready:
            if descriptor == self._deaths:
                os.read(self._deaths, 4096)
            elif descriptor == self._control:
                self._listen()
            else:
                self._lose_holder()

    def _lose_holder(self) -> None:
        # Its signs stay readable from now on, and would turn every wait into a busy loop.
        if not self._holder_lost:
            self._holder_lost = True
            for descriptor in self._holder_signs:
                self._poll.unregister(descriptor)

    def _is_over(self) -> bool:
        if self._empty and self._status is not None:
            return True
        since = self._killing_since
        return since is not None and time.monotonic_ns() - since > GIVE_UP_NS

    def _judge(self) -> None:
        now = time.monotonic_ns()
        if self._killing_since is None:
            self._decide(now)
        if self._killing_since is not None:
            self._signal_tree(signal.SIGKILL)

    def _decide(self, now: int) -> None:
        asleep = time.clock_gettime_ns(BOOT_CLOCK) >= self._lease_end_boot
        if self._holder_lost or os.getppid() != self._holder:
            self._kill(now, "holder_lost")
        elif now >= self._lease_end:
            self._kill(now, "lease_lost")
        elif self._grace_end is not None:
            if asleep or now >= self._grace_end:
                self._kill(now, self._reason)
        elif self._status is not None:
            self._kill(now, "-")
        elif asleep:
            self._freeze()
        elif self._frozen:
            self._thaw()

    def _kill(self, now: int, reason: str) -> None:
        self._killing_since = now
        # An end of its own stays one, whatever became of the holder meanwhile.
        if self._status is None or self._grace_end is not None:
            self._reason = reason

    def _freeze(self) -> None:
        # Repeated at every look: a process may have been born while the first round went by.
        self._signal_tree(signal.SIGSTOP)
        if not self._frozen:
            self._frozen = True
            self._tell("frozen")

    def _thaw(self) -> None:
        self._frozen = False
        self._signal_tree(signal.SIGCONT)
        self._tell("thawed")

    def _patience_ms(self) -> int:
        if self._killing_since is not None:
            self._kill_pause_ms = min(2 * self._kill_pause_ms, LONGEST_KILL_PAUSE_MS)
            return self._kill_pause_ms
        ends = [self._lease_end] if self._grace_end is None else [self._lease_end, self._grace_end]
        left = (min(ends) - time.monotonic_ns()) // 1_000_000 + 1
        return max(0, min(left, LONGEST_WAIT_MS))

    def _listen(self) -> None:
        try:
            while chunk := os.read(self._control, 65536):
                self._inbox += chunk
            self._lose_holder()
        except BlockingIOError:
            pass  # all there is has been read
        except OSError:
            self._lose_holder()
        *lines, self._inbox = self._inbox.split(b"\n")
        for line in lines:
            self._obey(line.decode().split())

    def _obey(self, words: list[str]) -> None:
        if words[0] == "lease":
            self._lease_end = max(self._lease_end, int(words[1]))
            self._lease_end_boot = max(self._lease_end_boot, int(words[2]))
        elif words[0] == "stop" and self._killing_since is None:
            ended_by_itself = self._status is not None and self._grace_end is None
            if not ended_by_itself:
                self._stop(int(words[1]), words[2])

    def _stop(self, grace_ms: int, reason: str) -> None:
        now = time.monotonic_ns()
        if grace_ms == 0 or self._frozen:
            self._kill(now, reason)
        elif self._grace_end is None:
            self._reason = reason
            self._grace_end = now + grace_ms * 1_000_000
            self._signal_tree(signal.SIGTERM)

    def _reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child:
                    self._status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            self._empty = self._adopts or not self._group_lives()

    def _group_lives(self) -> bool:
        try:
            os.killpg(self._child, 0)
        except OSError:
            return False
        return True

    def _tree(self) -> list[proctable.Process]:
        return [row for row in proctable.descendants(proctable.table(), [os.getpid()]) if row.alive]

    def _signal_tree(self, signum: int) -> None:
        if self._adopts:
            for process in self._tree():
                proctable.send(process, signum)
        # Until its leader is reaped, no other group can have this number.
        if not self._adopts or (self._status is None and signum == signal.SIGKILL):
            try:
                os.killpg(self._child, signum)
            except OSError:
                return

    def _tell(self, line: str) -> None:
        try:
            os.write(self._control, f"{line}\n".encode())
        except OSError:
            return  # a holder that is gone, or has not read for so long, is told nothing more


def main(control: int, output: int) -> None:
    """Run one supervision over two inherited descriptors: the control socket and the tree's output pipe."""
    for descriptor in (control, output):
        os.set_inheritable(descriptor, False)  # noqa: FBT003  (its parameters are positional)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    order = launch.receive(control)
    if order is not None:
        Supervisor(control, order).run(order, output)
