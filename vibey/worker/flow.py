"""Ways in which a worker of ours spends less on each job than Celery's defaults would.

Task events, which Flower lives on, are buffered by Celery and flushed at every turn of its loop, which with short jobs
is several times a job; here they leave together, a few times a second. The garbage collector is calmed (see
`vibey.services.interpreter`). And timers that were cancelled are dropped: Celery sets one for the time limit of each
task, which kombu would keep, with the task's message, until that time has come: the main process would grow for hours.
"""

from __future__ import annotations

import heapq
from typing import Any

from celery import bootsteps, signals
from celery.worker.consumer.events import Events
from typing_extensions import override

from vibey.services.interpreter import calm_collector

FLUSH_SECONDS = 0.2
SWEEP_SECONDS = 20.0


class GatheredEvents(bootsteps.StartStopStep):
    """Lets the consumer's task events leave together every `FLUSH_SECONDS`."""

    requires: tuple[type[bootsteps.Step] | str, ...] = (Events,)

    @override
    def start(self, parent: Any) -> None:
        """Take the place of the dispatcher's flush at every turn of the loop."""
        if parent.hub and parent.event_dispatcher is not None:
            parent.event_dispatcher.on_send_buffered = _Flush(parent)


class _Flush:
    """Asks for one flush at a time; called for every event that is buffered."""

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401  Celery's consumer
        self._consumer = consumer
        self._asked = False

    def __call__(self) -> None:
        if self._asked or not self._consumer.hub:
            return
        self._asked = True
        self._consumer.hub.call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._asked = False
        if self._consumer.event_dispatcher:
            self._consumer.event_dispatcher.flush()


class SweptTimers(bootsteps.StartStopStep):
    """Drops the loop's cancelled timers every `SWEEP_SECONDS`."""

    requires: tuple[type[bootsteps.Step] | str, ...] = (Events,)

    @override
    def __init__(self, parent: Any, **options: Any) -> None:
        """Begin without a timer of its own."""
        super().__init__(parent, **options)
        self._own: Any = None

    @override
    def start(self, parent: Any) -> None:
        """Begin to sweep; once more after each broken connection."""
        if parent.hub:
            self._own = parent.hub.call_repeatedly(SWEEP_SECONDS, sweep, parent.hub.timer)

    @override
    def stop(self, parent: Any) -> None:
        """Sweep no more."""
        if self._own is not None:
            self._own.cancel()


def sweep(timer: Any) -> None:  # noqa: ANN401  kombu's timer
    """Drop what was cancelled, in place: an iterator of the timer holds this very list."""
    queue = timer._queue  # noqa: SLF001  `clear` is all that it offers
    queue[:] = [each for each in queue if not each.entry.canceled]
    heapq.heapify(queue)


@signals.worker_process_init.connect
def calm(**_: object) -> None:
    """Calm the collector of this child of the pool."""
    calm_collector()
