"""What happens when a Celery worker starts, is ready, and stops.

At the start the engines it serves are read from its queues, its concurrency is checked against their slots
(or set, when none was given), the schema is checked, and leftovers of dead runs on this machine are killed.
When ready, a thread of the main process keeps the worker's row fresh and watches its canary; see
`vibey.services.pulse` for the protocol.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from celery import signals
from celery.utils.nodenames import worker_direct
from celery.worker import state
from typing_extensions import override

from vibey import tracing
from vibey.domain.errors import VibeyError
from vibey.publisher import CONTROL_QUEUE, ENQUEUE_QUEUE, engine_queue
from vibey.services import endings, fleet, pulse
from vibey.services.outputs import prune
from vibey.services.pulse import Worker
from vibey.services.run import kill_dead_runs
from vibey.worker.application import app, installation, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.services.installation import Installation

log = logging.getLogger("vibey.worker")

CONTROL_CONCURRENCY = 2
LEAVE_SECONDS = 2.0
CLEAN_SECONDS = 600.0


@signals.celeryd_init.connect
def prepare(sender: str, conf: Any, options: dict[str, Any], **_: object) -> None:  # noqa: ANN401  Celery's own
    """Refuse a wrong schema or fewer processes than slots; choose the number when none was given."""
    _bring_along(options)
    try:
        installation().require_schema()
        installation().require_suitable_database()
        fleet.sync(installation())
        queues = _queues(options)
        spare = _spare(queues)
        needed = _slots(queues) + spare
    except VibeyError as error:
        raise SystemExit(f"vibey: {error}") from None
    given = options.get("concurrency")
    if not given:
        conf.worker_concurrency = needed
        options["concurrency"] = needed
    elif int(given) < needed:
        raise SystemExit(
            f"vibey: worker {sender} has --concurrency {given}, but needs {needed}: one process per slot it serves and "
            f"{spare} beside them; raise it, or serve fewer engines with -Q"
        )


@signals.celeryd_after_setup.connect
def spend(instance: Any, **_: object) -> None:  # noqa: ANN401  Celery's worker
    """Take messages from the worker's own queue as from all others: a canary taken is a canary spent.

    Celery made that queue by itself, to be acknowledged. One canary under way when Redis goes is then restored over a
    connection that is no more, and the worker ends by it.
    """
    for queue in instance.app.amqp.queues.consume_from.values():
        queue.no_ack = queue.name != ENQUEUE_QUEUE


@signals.worker_ready.connect
def appear(sender: Any, **_: object) -> None:  # noqa: ANN401  Celery's consumer
    """Begin to say that this worker lives."""
    queues = list(sender.app.amqp.queues.consume_from)
    served = tuple(name for name in settings().engine if engine_queue(name) in queues)
    worker = Worker(sender.hostname, served, sender.controller.concurrency)
    thread = Pulse(installation(), worker)
    sender.app.vibey_pulse = thread
    thread.start()


@signals.worker_process_shutdown.connect
def tell(**_: object) -> None:
    """Send what this child of the pool still has to tell of its spans."""
    tracing.close()


@signals.worker_shutting_down.connect
def disappear(sender: Any, **_: object) -> None:  # noqa: ANN401, ARG001  Celery's own
    """Stop saying so, and take the row away: its engines count as full from now on."""
    thread = getattr(app, "vibey_pulse", None)
    if thread is not None:
        thread.stop()


def _bring_along(options: dict[str, Any]) -> None:
    """Whoever takes, or leaves, the control queue takes, or leaves, the producers' queue with it."""
    for chosen in (options.get("queues"), options.get("exclude_queues")):
        if isinstance(chosen, list) and CONTROL_QUEUE in chosen and ENQUEUE_QUEUE not in chosen:
            chosen.append(ENQUEUE_QUEUE)


def _queues(options: dict[str, Any]) -> list[str]:
    chosen = _names(options.get("queues"))
    left_out = _names(options.get("exclude_queues"))
    everything = [CONTROL_QUEUE, ENQUEUE_QUEUE, *(engine_queue(name) for name in settings().engine)]
    return [name for name in chosen or everything if name not in left_out]


def _names(value: object) -> list[str]:
    if not value:
        return []
    return [str(name) for name in (value.split(",") if isinstance(value, str) else value)]  # type: ignore[attr-defined]


def _slots(queues: Sequence[str]) -> int:
    served = [name for name in settings().engine if engine_queue(name) in queues]
    return sum(settings().slots_of(name) for name in served)


def _spare(queues: Sequence[str]) -> int:
    """How many processes a worker needs beside those for slots: to route and tick, or to stay answerable."""
    return CONTROL_CONCURRENCY if CONTROL_QUEUE in queues else 1


class Pulse(threading.Thread):
    """The thread that keeps a worker's row fresh, sends its canary, and ends a worker that consumes nothing."""

    def __init__(self, installed: Installation, worker: Worker) -> None:
        """Make the thread; `start` sets it going."""
        super().__init__(name="vibey-pulse", daemon=True)
        self._installation = installed
        self._worker = worker
        self._ending = threading.Event()
        self._interval = min(10.0, installed.timing.presence_ms / 4000)
        self._last_beat = time.monotonic()
        self._unheard = 0
        self._teller: threading.Thread | None = None

    @override
    def run(self) -> None:
        """Beat until told to stop."""
        self._begin()
        cleaned = time.monotonic()
        while not self._ending.wait(self._interval):
            try:
                self._beat()
                self._tell_endings()
            except Exception:
                # A worker without its pulse would go on unseen: its engines would count as full for good.
                log.exception("a beat failed; the next one is due")
            if self._worker.engines and time.monotonic() - cleaned > CLEAN_SECONDS:
                cleaned = time.monotonic()
                # A run lost with its worker still held its lease when this one started. Not here: a tree is large,
                # and beats are due.
                threading.Thread(target=self._clean_up, name="vibey-clean", daemon=True).start()

    def stop(self) -> None:
        """Leave in good order."""
        self._ending.set()
        # A beat under way would write the row again after it was taken away.
        self.join(LEAVE_SECONDS)
        pulse.leave(self._installation, self._worker)

    def _begin(self) -> None:
        if self._worker.engines:
            self._clean_up()
            self._examine()
        self._beat()
        try:
            pulse.wake_pools(self._installation)
        except VibeyError as error:
            log.warning("could not wake the router: %s", error)

    def _clean_up(self) -> None:
        try:
            killed = kill_dead_runs(self._installation)
            pruned = prune(self._installation)
        except (VibeyError, OSError) as error:
            log.warning("could not clean up after earlier runs: %s", error)
            return
        if killed or pruned:
            log.warning("cleaned up: processes of %d dead runs killed, %d old outputs removed", killed, pruned)

    def _tell_endings(self) -> None:
        """Have ends of routed tasks told that no run could tell; in a thread of its own, for beats are due."""
        routed = [name for name in self._worker.engines if self._installation.settings.engine[name].app]
        if routed and (self._teller is None or not self._teller.is_alive()):
            self._teller = threading.Thread(target=self._tell, args=(routed,), name="vibey-tell", daemon=True)
            self._teller.start()

    def _tell(self, engines: list[str]) -> None:
        try:
            told = endings.tell(self._installation, engines)
        except VibeyError as error:
            log.warning("could not look for ends of routed tasks to be told: %s", error)
            return
        if told:
            log.info("told %d ends of routed tasks", told)

    def _examine(self) -> None:
        try:
            for name, health in fleet.examine(self._installation, self._worker.engines).items():
                if not health.good:
                    log.warning("engine %s: %s; %s", name, health.detail, health.fix)
        except VibeyError as error:
            log.warning("could not examine the engines: %s", error)

    def _beat(self) -> None:
        since, self._last_beat = self._last_beat, time.monotonic()
        try:
            silent_ms = pulse.appear(self._installation, self._worker)
        except VibeyError as error:
            log.warning("could not renew this worker's row: %s", error)
            self._unheard = 0
            return
        sang = silent_ms < (self._last_beat - since) * 1000
        if not self._asked() or sang:
            self._unheard = 0
            return
        # Counted in canaries, not in time: an outage or a stop of this process is no deafness.
        self._unheard += 1
        if self._unheard * self._interval * 1000 > self._installation.timing.canary_ms:
            log.critical("this worker has consumed none of its last %d canaries: ending it", self._unheard)
            os.kill(os.getpid(), signal.SIGTERM)
            self._ending.set()

    def _asked(self) -> bool:
        """Send a canary; False when no child is free to sing, or the broker did not take it."""
        if len(state.active_requests) >= self._worker.concurrency:
            return False
        return self._installation.publisher.canary(worker_direct(self._worker.name), self._worker.name)
