"""What happens when a Celery worker starts, is ready, and stops.

At the start the engines it serves are read from its queues, its concurrency is checked against their slots
(or set, when none was given), the schema is checked, and leftovers of dead runs on this machine are killed.
When ready, a thread of the main process keeps the worker's row fresh and watches its canary; see
`vibey.services.pulse` for the protocol. The same thread notices within a tick that another generation is in force
(`vibey.services.following`): the worker then reads its file again, consumes the queues of engines that are new, and no
more those of engines that its file would run in another way. While there are such engines, a change of the file is
noticed in the same way.

A worker offers as many runs of an engine as it had processes for when it began to serve it. For an engine that is new
it starts more processes, unless it was given a `--concurrency`; slots raised later are full until it is restarted.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from celery import signals
from celery.utils.nodenames import worker_direct
from kombu import Queue
from typing_extensions import override

from vibey import tracing
from vibey.domain.errors import NothingApplied, VibeyError
from vibey.engines import orphans
from vibey.publisher import BUILD_TASK, CONTROL_QUEUE, ENGINE_PREFIX, ENQUEUE_QUEUE, MARGIN_SECONDS, engine_queue
from vibey.services import connections, endings, fleet, pulse
from vibey.services.checks import State
from vibey.services.installation import start_ended_servers
from vibey.services.outputs import prune
from vibey.services.programs import CONTROL_PROCESSES, SPARE_PROCESSES
from vibey.services.pulse import Worker
from vibey.services.run import kill_dead_runs
from vibey.services.wording import restart
from vibey.worker.application import app, follower, installation, settings
from vibey.worker.holders import Holders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from vibey.services.following import Follower
    from vibey.services.installation import Installation

log = logging.getLogger("vibey.worker")

LEAVE_SECONDS = 2.0
CLEAN_SECONDS = 600.0
# What the command line asked for: queues to serve alone, queues to leave out, whether a number of processes was given.
_chosen: dict[str, Any] = {"only": [], "without": [], "given": False}


@functools.cache
def mark() -> str:
    """Distinguishes this worker's canaries from those of another of its name; the pool's processes inherit it."""
    return uuid4().hex


@signals.celeryd_init.connect
def prepare(sender: str, conf: Any, options: dict[str, Any], **_: object) -> None:  # noqa: ANN401  Celery's own
    """Refuse a wrong schema, fewer processes than slots or too few connections; choose the number if none was given."""
    _bring_along(options)
    mark()
    try:
        installation().require_schema()
        installation().require_suitable_database()
        pulse.require_name(installation(), sender)
        follower().catch_up()
        queues = _queues(options)
        spare = _spare(queues)
        needed = sum(slots for name, slots in _slots().items() if engine_queue(name) in queues) + spare
        given = options.get("concurrency")
        connections.require_room(installation(), sender, int(given or needed))
        # The pool is forked next: no thread that closes idle connections may hold a lock meanwhile.
        installation().database.dispose()
    except VibeyError as error:
        raise SystemExit(f"vibey: {error}") from None
    _chosen.update(only=_names(options.get("queues")), without=_names(options.get("exclude_queues")), given=bool(given))
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
    spare = _spare(list(sender.app.amqp.queues.consume_from))
    consuming = Consuming(sender, spare, may_grow=not _chosen["given"])
    thread = Pulse(follower(), consuming, Holders(sender.pool))
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


def _slots() -> dict[str, int]:
    """The slots of every engine in force; of those in the file, where nothing was ever applied."""
    content = installation().content
    if content is None:
        return {name: settings().slots_of(name) for name in settings().engine}
    in_order = sorted(content["engine"], key=lambda name: content["engine"][name]["ordinal"])
    return {name: content["engine"][name]["slots"] for name in in_order}


def _is_wanted(engine: str) -> bool:
    """Whether the worker was asked to serve this engine, with -Q and -X, should it be there."""
    queue = engine_queue(engine)
    return (not _chosen["only"] or queue in _chosen["only"]) and queue not in _chosen["without"]


def _spare(queues: Sequence[str]) -> int:
    """How many processes a worker needs beside those for slots: to route and tick, or to stay answerable."""
    return CONTROL_PROCESSES if CONTROL_QUEUE in queues else SPARE_PROCESSES


class Consuming:
    """What Celery's consumer takes messages for, and how many processes there are for each engine."""

    def __init__(self, consumer: Any, spare: int, *, may_grow: bool) -> None:  # noqa: ANN401  Celery's consumer
        """Begin with the processes the worker started with; `spare` of them are for no engine."""
        self.name: str = consumer.hostname
        self.concurrency: int = consumer.controller.concurrency
        self.slots: dict[str, int] = {}
        self._consumer = consumer
        self._spare = spare
        self._may_grow = may_grow

    def serve(self, engines: Mapping[str, int]) -> dict[str, str]:
        """Serve these engines, given with their slots, and no others; says of which it cannot, and why."""
        self.slots = {name: self.slots[name] for name in engines if name in self.slots}
        left = self.concurrency - self._spare - sum(self.slots.values())
        problems, lack = {}, 0
        for name, wanted in engines.items():
            if name in self.slots:
                continue
            if self._may_grow and wanted > left:
                lack += wanted - max(0, left)
                left = wanted
            offered = min(wanted, max(0, left))
            left -= offered
            if offered:
                self.slots[name] = offered
            else:
                problems[name] = f"no process is left for {name}; {restart(self.name, wanted)}"
        self.concurrency += lack
        # Celery's own loop does it: nothing of a consumer may be touched by two threads.
        self._consumer.call_soon(self._consume, set(self.slots), lack)
        return problems

    def _consume(self, engines: set[str], more: int) -> None:
        try:
            self._take_from(engines, more)
        except Exception:
            # Between two connections nothing is consumed; the next begins with the queues as they are known by now.
            log.exception("could not change the queues that are consumed")

    def _take_from(self, engines: set[str], more: int) -> None:
        queues = self._consumer.app.amqp.queues
        if more:
            self._consumer.pool.grow(more)
        wanted = {engine_queue(name) for name in engines}
        for name in [name for name in queues.consume_from if name.startswith(ENGINE_PREFIX) and name not in wanted]:
            self._consumer.cancel_task_queue(name)
        for name in sorted(wanted - set(queues.consume_from)):
            queues.select_add(Queue(name, routing_key=name, no_ack=True))
            self._consumer.add_task_queue(name)

    def limit_runs(self, seconds: int) -> None:
        """Have Celery end a run's process that hangs beyond every limit of its own after so long."""
        self._consumer.app.tasks[BUILD_TASK].time_limit = seconds


class Pulse(threading.Thread):
    """The thread that keeps a worker's row fresh, sends its canary, and ends a worker that consumes nothing."""

    def __init__(self, following: Follower, consuming: Consuming, holders: Holders) -> None:
        """Make the thread; `start` sets it going."""
        super().__init__(name="vibey-pulse", daemon=True)
        self._following = following
        self._consuming = consuming
        self._holders = holders
        self._worker = Worker(consuming.name, (), consuming.concurrency)
        self._ending = threading.Event()
        self._beating = threading.Lock()
        self._last_beat = time.monotonic()
        self._since: datetime | None = None
        self._unheard = 0
        self._teller: threading.Thread | None = None
        self._starter: threading.Thread | None = None
        self._examiner: threading.Thread | None = None

    @property
    def _installation(self) -> Installation:
        return self._following.installation

    @property
    def _interval(self) -> float:
        return min(10.0, self._installation.timing.presence_ms / 4000)

    @override
    def run(self) -> None:
        """Beat until told to stop, and follow what is in force; then look after the pool until it has ended."""
        orphans.adopt()
        self._live()
        idle = threading.Event()
        while not idle.wait(self._interval):
            self._end_orphans()
            self._end_idle()

    def _live(self) -> None:
        try:
            self._begin()
        except Exception:
            log.exception("could not begin as usual; beats are due all the same")
        cleaned = time.monotonic()
        while not self._ending.wait(self._installation.timing.tick_ms / 1000):
            self._end_orphans()
            try:
                followed = self._follow()
                if followed or time.monotonic() - self._last_beat >= self._interval:
                    self._beat()
                    self._end_idle()
                    self._tell_endings()
                if followed:
                    pulse.wake_pools(self._installation)
            except VibeyError as error:
                log.warning("could not look for what is in force: %s", error)
                self._start_servers()
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
        if self._beating.acquire(timeout=LEAVE_SECONDS):
            self._beating.release()
        if self._since is not None:
            pulse.leave(self._installation, self._worker, self._since)

    def _begin(self) -> None:
        self._serve()
        if self._worker.engines:
            self._clean_up()
            self._examine(self._worker.engines)
        self._beat()
        try:
            pulse.wake_pools(self._installation)
            self._warn_of_connections()
        except VibeyError as error:
            log.warning("could not wake the router, or count connections: %s", error)

    def _warn_of_connections(self) -> None:
        """Warn where the database may not have enough connections for all workers, this one among them."""
        for found in connections.check(self._installation):
            if found.state is not State.OK:
                log.warning("connections: %s; %s", found.detail, found.fix)

    def _follow(self) -> bool:
        """Serve what the generation in force asks for; False where neither that nor the reading of the file changed."""
        known = self._installation, self._following.problem
        if (self._following.catch_up(), self._following.problem) == known:
            return False
        before = set(self._worker.engines)
        self._serve()
        log.info("generation %s: serving %s", self._worker.generation, ", ".join(self._worker.engines) or "no engine")
        fresh = [name for name in self._worker.engines if name not in before]
        if fresh:
            self._examiner = threading.Thread(target=self._examine, args=(fresh,), name="vibey-examine", daemon=True)
            self._examiner.start()
        return True

    def _serve(self) -> None:
        """Serve the engines in force that the worker was asked for and runs as they are asked to be run."""
        installed, problems = self._installation, dict[str, str]()
        if installed.content is None:
            problems[""] = str(NothingApplied())
            log.warning("serving no engine: %s", problems[""])
        served = dict[str, int]()
        for name, slots in _slots().items() if installed.content is not None else ():
            if not _is_wanted(name):
                continue
            if odd := installed.disagreement(name):
                problems[name] = "; ".join(filter(None, [odd, self._following.problem]))
                log.warning(
                    "not serving engine %s: %s; run: vibey apply, or correct the file here", name, problems[name]
                )
            else:
                served[name] = slots
        problems |= self._consuming.serve(served)
        self._consuming.limit_runs(installed.settings.engines.run_timeout_seconds + MARGIN_SECONDS)
        offered = self._consuming.slots
        self._worker = Worker(
            self._consuming.name,
            tuple(offered),
            self._consuming.concurrency,
            tuple(offered.values()),
            installed.generation,
            problems,
        )

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
        engines = self._installation.settings.engine
        routed = [name for name in self._worker.engines if name in engines and engines[name].app]
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

    def _examine(self, engines: Sequence[str]) -> None:
        try:
            for name, health in fleet.examine(self._installation, engines).items():
                if not health.good:
                    log.warning("engine %s: %s; %s", name, health.detail, health.fix)
        except VibeyError as error:
            log.warning("could not examine the engines: %s", error)

    def _end_orphans(self) -> None:
        """Kill what has lost both its supervisor and its holder, and so has become a child of this process.

        Programs that look at an engine, and embedded servers, are in sessions of their own as well. The former last
        some seconds; a worker that once had to start the latter leaves orphans alone from then on.
        """
        if self._starter is None and not (self._examiner and self._examiner.is_alive()):
            try:
                if killed := orphans.end_orphans(looks=1):
                    log.error("killed %d processes of jobs that had killed their supervisor and its holder", killed)
            except OSError:
                log.exception("could not look for orphans")

    def _end_idle(self) -> None:
        try:
            self._holders.end_idle(self._installation, self._interval)
        except VibeyError as error:
            log.warning("could not look for processes of the pool that do nothing: %s", error)
        except Exception:
            log.exception("could not look for processes of the pool that do nothing")

    def _beat(self) -> None:
        with self._beating:
            if not self._ending.is_set():
                self._renew()

    def _renew(self) -> None:
        since, self._last_beat = self._last_beat, time.monotonic()
        try:
            presence = pulse.appear(self._installation, self._worker, self._since)
        except VibeyError as error:
            log.warning("could not renew this worker's row: %s", error)
            self._unheard = 0
            self._start_servers()
            return
        if presence is None:
            log.critical("a worker %s that began earlier lives: ending this one; %s", self._worker.name, pulse.RENAME)
            self._end()
            return
        self._since = presence.started_at
        sang = presence.silent_ms < (self._last_beat - since) * 1000
        if not self._asked() or sang:
            self._unheard = 0
            return
        # Counted in canaries, not in time: an outage or a stop of this process is no deafness.
        self._unheard += 1
        if self._unheard * self._interval * 1000 > self._installation.timing.canary_ms:
            log.critical("this worker has consumed none of its last %d canaries: ending it", self._unheard)
            self._end()

    def _end(self) -> None:
        """End this worker in good order."""
        os.kill(os.getpid(), signal.SIGTERM)
        self._ending.set()

    def _asked(self) -> bool:
        """Send a canary; False when no child is free to sing, or the broker did not take it."""
        if self._holders.busy >= self._worker.concurrency:
            return False
        if self._installation.publisher.canary(worker_direct(self._worker.name), self._worker.name, mark()):
            return True
        self._start_servers()
        return False

    def _start_servers(self) -> None:
        """Start embedded servers that have ended, such as a Postgres whose disk was full: nobody else watches them.

        In a thread of its own, for that may take minutes and beats are due.
        """
        if self._starter is None or not self._starter.is_alive():
            self._starter = threading.Thread(target=self._start_ended_servers, name="vibey-servers", daemon=True)
            self._starter.start()

    def _start_ended_servers(self) -> None:
        try:
            started = start_ended_servers(self._installation.settings)
        except (VibeyError, OSError) as error:
            log.warning("could not start the embedded servers: %s", error)
            return
        if started:
            log.warning("started embedded servers that had ended")
