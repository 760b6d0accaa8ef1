"""Watch: keeps a run's lease while its work goes on, and ends the work when it has to end.

It has one thread, born when the run first has something to guard. The thread sleeps until the next of: a
renewal is due, the timeout, silence for too long, news from outside. It never touches the work's output; it
only extends and stops.

A run stalls after a silence: a time without output and without progress. Where the engine's work may be silent
(`silent_work`), the thread also looks, during a silence, at what the processes do (`vibey.engines.activity`); the run
then stalls only if they were active in no more than an eighth of that time. A client whose provider does not answer
is not still all the time: it breaks its request off and sends it again every two to five minutes.

The lease's arithmetic, all on this process's clocks. A renewal sent at moment s and answered "kept" proves
that the database ended no lease at s or later, and counts a full length from an instant after s. So the tree
may live up to s + length - length/10: counted from *before* the call, however long the answer took, less a
margin for killing. The next renewal is due a third of a length after s; two may fail in a row and the third
is still in time. A call that raises proves nothing: it is repeated soon, and the supervisor's clock runs on.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.engines import activity
from vibey.engines.contract import Exit, Renewal, RunStopped, StopReason
from vibey.engines.moment import Moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vibey.engines.process import SupervisedProcess

logger = logging.getLogger(__name__)

# After a sleep the monotonic clock lags; looking this often finds an overdue renewal soon enough.
_LONGEST_WAIT_SECONDS = 2.0
_LONGEST_RETRY_SECONDS = 1.0
_LONGEST_JOIN_SECONDS = 0.2
# How often silent work is looked at during the silence that makes a stall, and how far apart at least.
_LOOKS_BEFORE_STALL = 30
_SHORTEST_LOOK_SECONDS = 0.1
_STILL_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: the lease, the most a run may take, the longest silence (None: any), the grace when ended.

    `silent_work`: what the processes do without output ends a silence, too.
    """

    lease_seconds: float
    timeout_seconds: float
    stall_seconds: float | None = None
    grace_seconds: float = 10.0
    silent_work: bool = False

    def safe_end(self, sent: Moment) -> Moment:
        """Up to when a renewal sent at this moment lets the work live."""
        return sent.plus(self.lease_seconds * 0.9)

    def next_due(self, sent: Moment) -> Moment:
        """When to renew again."""
        return sent.plus(self.lease_seconds / 3)


class Watch:
    """The guard of one run. `begin` starts its thread (once), `end` stops it; between, processes may join."""

    def __init__(
        self,
        limits: Limits,
        *,
        claimed_at: Moment,
        renew: Callable[[], Renewal],
        wake: Callable[[float], bool] | None,
        name: str,
    ) -> None:
        self.limits = limits
        self._renew = renew
        self._done = threading.Event()
        self._wake = wake
        self._name = name
        self._lock = threading.Lock()
        self._processes: list[SupervisedProcess] = []
        self._thread: threading.Thread | None = None
        self._began = Moment.now()
        self._heard_at = self._began
        self._looked_at = self._began
        self._seen = activity.Sample()
        self._active: deque[tuple[Moment, float]] = deque()
        self._lease_end = limits.safe_end(claimed_at)
        self._due = limits.next_due(claimed_at)
        self._unreached = False
        self._is_deaf = False
        self.stopped: StopReason | None = None

    def begin(self) -> None:
        """Start watching; calling it again changes nothing."""
        if self._thread is None:
            thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
            # Where no thread can be started this raises, and nothing is watched: then no process may start either.
            thread.start()
            self._thread = thread

    def end(self) -> None:
        """Stop watching and kill what still lives. No renewal is sent after this."""
        self._done.set()
        for process in self._members():
            process.close()
        # The thread may be in a caller's `wake`, or in a renewal that hangs with the database. Nothing waits for
        # that: it finds the run over and ends by itself.
        if self._thread is not None and self._wake is None:
            self._thread.join(_LONGEST_JOIN_SECONDS)

    def start(self, starter: Callable[[Moment], SupervisedProcess]) -> SupervisedProcess:
        """A process under the present lease; raises RunStopped when the run has to end."""
        self.begin()
        with self._lock:
            if self.stopped is None and self._lease_end.has_come_awake():
                self.stopped = StopReason.LEASE_LOST
            if self.stopped is not None:
                raise RunStopped(self.stopped)
            process = starter(self._lease_end)
            self._processes.append(process)
        return process

    def heard(self) -> None:
        """The work gave a sign of life that is not output."""
        self._heard_at = Moment.now()

    def endings(self) -> Iterator[Exit]:
        """How each process that has ended did so."""
        return (process.exit for process in self._members() if process.exit is not None)

    def stop(self, reason: StopReason) -> None:
        """End the work: at once for a lost lease, else with the grace; only a lost lease replaces a reason."""
        with self._lock:
            lost = reason is StopReason.LEASE_LOST
            if self.stopped is not None and (not lost or self.stopped is StopReason.LEASE_LOST):
                return
            self.stopped = reason
            members = list(self._processes)
        for process in members:
            process.stop(reason, 0.0 if lost else self.limits.grace_seconds)

    def _members(self) -> list[SupervisedProcess]:
        with self._lock:
            return list(self._processes)

    def _watch(self) -> None:
        while not self._done.is_set():
            news = self._rest(self._next_look())
            if self._done.is_set():
                return
            if self.stopped is not StopReason.LEASE_LOST and (news or self._due.has_come()):
                self._renew_once()
            self._check_time()

    def _rest(self, seconds: float) -> bool:
        """Wait so long, or until there is news; whether there is. Without a way to await news, a renewal brings it."""
        if self._wake is None or self._is_deaf:
            return self._done.wait(seconds)
        try:
            return self._wake(seconds)
        except Exception as error:  # noqa: BLE001  (whatever it is, the lease has to be renewed)
            logger.warning("%s: news cannot be awaited, a cancel is seen at the next renewal: %s", self._name, error)
            self._is_deaf = True
            return False

    def _next_look(self) -> float:
        looks = [self._due.seconds_left(), _LONGEST_WAIT_SECONDS]
        if self.stopped is None:
            looks.append(self._began.plus(self.limits.timeout_seconds).awake_seconds_left())
            if self.limits.stall_seconds is not None:
                looks.append(self._stall_due(self.limits.stall_seconds).awake_seconds_left())
        return max(0.001, min(looks))

    def _renew_once(self) -> None:
        sent = Moment.now()
        try:
            answer = self._renew()
        except Exception as error:  # noqa: BLE001  (whatever kept the answer away, the lease's clock decides)
            self._retry_soon(error)
            return
        self._unreached = self._is_deaf = False
        if answer is Renewal.LOST:
            self.stop(StopReason.LEASE_LOST)
            return
        self._due = self.limits.next_due(sent)
        self._extend(self.limits.safe_end(sent))
        if answer is Renewal.CANCEL:
            self.stop(StopReason.CANCEL)

    def _retry_soon(self, error: Exception) -> None:
        if not self._unreached:
            logger.warning("%s: its lease could not be renewed, trying again: %s", self._name, error)
        self._unreached = True
        self._due = Moment.now().plus(min(_LONGEST_RETRY_SECONDS, self.limits.lease_seconds / 20))

    def _extend(self, lease_end: Moment) -> None:
        with self._lock:
            self._lease_end = max(self._lease_end, lease_end)
            members = list(self._processes)
        for process in members:
            process.extend(lease_end)

    def _check_time(self) -> None:
        if self.stopped is not None:
            return
        if self._lease_end.has_come_awake():
            self.stop(StopReason.LEASE_LOST)
        elif self._began.plus(self.limits.timeout_seconds).has_come_awake():
            self.stop(StopReason.TIMEOUT)
        elif self._is_stalled():
            self.stop(StopReason.STALL)

    def _is_stalled(self) -> bool:
        longest = self.limits.stall_seconds
        if longest is None or not self._stall_due(longest).has_come_awake():
            return False
        if self.limits.silent_work:
            active_seconds = self._look(longest)
            return self._last_heard().plus(longest).has_come_awake() and active_seconds <= longest * _STILL_SHARE
        return True

    def _stall_due(self, longest: float) -> Moment:
        """When to see whether the run has stalled: at the end of the silence, or when its processes are looked at."""
        if not self.limits.silent_work:
            return self._last_heard().plus(longest)
        return self._last_look().plus(max(_SHORTEST_LOOK_SECONDS, longest / _LOOKS_BEFORE_STALL))

    def _look(self, longest: float) -> float:
        """Look at the processes; for how many of the last `longest` seconds they were active."""
        now = Moment.now()
        seen = activity.sample(process.root for process in self._members() if process.exit is None)
        if seen.is_active_since(self._seen, now.awake_seconds_since(self._looked_at)):
            self._active.append((now, now.awake_seconds_since(self._last_look())))
        self._seen, self._looked_at = seen, now
        while self._active and self._active[0][0].plus(longest).has_come_awake():
            self._active.popleft()
        return sum(seconds for _, seconds in self._active)

    def _last_look(self) -> Moment:
        """The last output or look, whichever was later: as long as there is output, there is no need to look."""
        return max(self._looked_at, self._last_heard())

    def _last_heard(self) -> Moment:
        return max((self._heard_at, *(process.heard_at for process in self._members())))
