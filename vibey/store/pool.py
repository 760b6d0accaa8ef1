"""The pool of a process's connections, which closes those that have been idle for some seconds.

A process that works keeps its connection from one statement to the next. One that waits needs none, and the server has
only so many for all processes of the fleet. So each connection that nobody has used for `IDLE_SECONDS` is closed, the
last one included; the next statement opens another. The connection used last is used first, so that of several as many
as possible become idle.

A thread of each process does that. It exists only while there are connections to close, and a forked process, whose
pool is another one, starts its own.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy.pool import QueuePool
from typing_extensions import override

if TYPE_CHECKING:
    from sqlalchemy.pool import ConnectionPoolEntry
    from sqlalchemy.util.queue import Queue

# Longer than the pauses of what asks all the time: ticks, the pulse of a worker, beat, pages that follow.
IDLE_SECONDS = 10.0
_RETURNED_AT = "vibey.returned_at"


class IdleClosingPool(QueuePool):
    """SQLAlchemy's pool, whose connections are closed once they have been idle for `IDLE_SECONDS`."""

    @override
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Begin without connections, as SQLAlchemy's does."""
        super().__init__(*args, **{**kwargs, "use_lifo": True})
        self._guard = threading.Lock()
        self._closer: threading.Thread | None = None
        self._disposed = threading.Event()

    @override
    def dispose(self) -> None:
        """Close every connection that is not in use."""
        super().dispose()
        self._disposed.set()

    @override
    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        record.info[_RETURNED_AT] = time.monotonic()
        super()._do_return_conn(record)
        with self._guard:
            if self._closer is None:
                self._closer = threading.Thread(target=self._close_idle, name="vibey-idle", daemon=True)
                self._closer.start()

    def _close_idle(self) -> None:
        """Close connections as they become idle for too long, until there are none."""
        pause: float | None = IDLE_SECONDS
        while pause is not None:
            self._disposed.wait(pause)
            pause = self._next_pause()

    def _next_pause(self) -> float | None:
        """Close what has been idle for too long; the seconds until something else will have been, None if nothing."""
        now = time.monotonic()
        closed: list[ConnectionPoolEntry] = []
        stack = cast("Queue[ConnectionPoolEntry]", self._pool)
        # What was returned first lies at the bottom. What is taken meanwhile is taken from the top.
        with self._guard, stack.mutex:
            while stack.queue and (self._disposed.is_set() or now - _returned_at(stack.queue[0]) >= IDLE_SECONDS):
                closed.append(stack.queue.popleft())
            pause = _returned_at(stack.queue[0]) + IDLE_SECONDS - now if stack.queue else None
            if pause is None:
                self._closer = None
        for record in closed:
            record.close()
            self._dec_overflow()
        return pause


def _returned_at(record: ConnectionPoolEntry) -> float:
    return float(record.info[_RETURNED_AT])
