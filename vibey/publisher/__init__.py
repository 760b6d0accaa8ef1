"""The Celery application's settings and the one place that sends its messages.

A message is a wake-up, never a right: losing one costs time until the next tick, and a second delivery is a
no-op, because a run may only be started by its token. That is why messages are acknowledged before the work
(`acks_late` would run an hour-long job twice after a mere connection drop), why none is ever scheduled
ahead (an ETA message is held unacknowledged in one worker's memory), and why there is no result backend.

Queues are static: `vibey.control` for routing and ticks, `vibey.enqueue` for producers, so that a backlog
of theirs keeps no tick waiting (a worker takes from its queues in turn), and `engine.NAME` for each
engine's runs. A name that is not among them cannot be sent to.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from vibey.domain.faults import fault_of_redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from celery.app.base import Celery
    from kombu.entity import Queue

log = logging.getLogger("vibey.publisher")

CONTROL_QUEUE = "vibey.control"
ENQUEUE_QUEUE = "vibey.enqueue"
ROUTE_TASK = "vibey.route"
BUILD_TASK = "vibey.build"
TICK_TASK = "vibey.tick"
ENQUEUE_TASK = "vibey.enqueue"
CANARY_TASK = "vibey.canary"
MEASURE_TASK = "vibey.measure"
AUDIT_TASK = "vibey.audit"
PRUNE_TASK = "vibey.prune"
MEASURE_SECONDS = 3600.0
# How often beat asks whether it is time for an audit.
AUDIT_SECONDS = 600.0
PRUNE_SECONDS = 600.0
ENGINE_PREFIX = "engine."
MARGIN_SECONDS = 600
RETRIES: dict[str, Any] = {"max_retries": 2, "interval_start": 0, "interval_max": 0.5}


def engine_queue(engine: str) -> str:
    """The queue that carries an engine's runs."""
    return f"{ENGINE_PREFIX}{engine}"


@dataclass(frozen=True, slots=True)
class Build:
    """One grant to be sent: what the worker needs, and the words a person sees beside it in Flower."""

    run_id: int
    token: int
    engine: str
    job_id: int
    project: str
    attempt: int

    @property
    def words(self) -> str:
        """Job, project and engine, as Flower shows them."""
        return f"job {self.job_id} · {self.project} · {self.engine} · run {self.run_id} attempt {self.attempt}"


def celery_settings(
    broker_url: str, prefix: str, engines: Iterable[str], *, run_timeout_seconds: int, tick_seconds: float
) -> dict[str, Any]:
    """Celery's configuration, each choice with its reason."""
    from kombu.entity import Queue

    names = [CONTROL_QUEUE, ENQUEUE_QUEUE, *(engine_queue(engine) for engine in engines)]
    return {
        "broker_url": broker_url,
        "broker_connection_retry_on_startup": True,
        # the default gives up after 100 tries, which a long outage of Redis exceeds
        "broker_connection_max_retries": None,
        # a server whose disk or memory is full refuses commands; by default a worker ends at the first of these, and
        # its runs with it
        "broker_channel_error_retry": True,
        "broker_transport_options": {
            # nothing stays unacknowledged, so this only has to exceed every run
            "visibility_timeout": run_timeout_seconds + 6 * MARGIN_SECONDS,
            # without these a frozen Redis blocks a publisher for ever
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 25,
            # several applications can share one Redis
            "global_keyprefix": prefix,
        },
        "result_backend": None,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_acks_late": False,
        "task_reject_on_worker_lost": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # a worker with busy children must not hold messages that an idle one could take
        "worker_disable_prefetch": True,
        "worker_prefetch_multiplier": 1,
        # a wake-up taken is a wake-up spent: nothing is ever unacknowledged, so nothing can come twice after a dropped
        # connection, and each message costs Redis a question less; only a producer's job is acknowledged
        "task_queues": [Queue(name, routing_key=name, no_ack=name != ENQUEUE_QUEUE) for name in names],
        "task_default_queue": CONTROL_QUEUE,
        "task_routes": {ENQUEUE_TASK: {"queue": ENQUEUE_QUEUE}},
        "task_default_exchange": "vibey",
        "task_default_routing_key": CONTROL_QUEUE,
        # a mistyped queue name raises instead of filling a queue nobody reads
        "task_create_missing_queues": False,
        # a queue of each worker's own: its canary proves that it really consumes
        "worker_direct": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_publish_retry": True,
        "task_publish_retry_policy": RETRIES,
        # prefork: time limits and termination work nowhere else
        "worker_pool": "prefork",
        "worker_proc_alive_timeout": 60,
        # the holder's own clock ends a run; this only catches a holder that hangs
        "task_time_limit": run_timeout_seconds + MARGIN_SECONDS,
        "worker_max_tasks_per_child": 2000,
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # a fuse: nothing here uses ETA
        "worker_eta_task_limit": 100,
        "timezone": "UTC",
        "enable_utc": True,
        # none expires: a worker judges that by its own clock, and one that is ahead of beat's would throw every tick
        # away; a backlog is worked off quickly, for a message with nothing to do is one statement
        "beat_schedule": {
            "tick": {
                "task": TICK_TASK,
                "schedule": tick_seconds,
                "options": {"queue": CONTROL_QUEUE},
            },
            "measure": {
                "task": MEASURE_TASK,
                "schedule": MEASURE_SECONDS,
                "options": {"queue": CONTROL_QUEUE},
            },
            "audit": {
                "task": AUDIT_TASK,
                "schedule": AUDIT_SECONDS,
                "options": {"queue": CONTROL_QUEUE},
            },
            "prune": {
                "task": PRUNE_TASK,
                "schedule": PRUNE_SECONDS,
                "options": {"queue": CONTROL_QUEUE},
            },
        },
        "beat_max_loop_interval": max(0.5, min(5.0, tick_seconds)),
    }


def make_app(name: str, settings: dict[str, Any]) -> Celery:
    """A Celery application with these settings and no others; connects only when used."""
    # Not from `celery` itself, nor `Queue` from `kombu`: both put another module in their place as they are imported,
    # and a thread that imports them meanwhile is left with the first.
    from vibey.publisher.application import Application

    app = Application(name, set_as_current=False)
    app.conf.update(settings)
    return app


class Publisher:
    """Sends wake-ups. A failure to send is logged and left to the tick; it never fails the caller."""

    def __init__(self, make: Callable[[], Celery]) -> None:
        """Send through the producer pool of the application that `make` gives, asked for with the first message.

        Most commands only look, and Celery takes a quarter of a second to import.
        """
        self._make = make

    @cached_property
    def _app(self) -> Celery:
        return self._make()

    def route(self, pool: str) -> bool:
        """Ask for a routing pass; False when it could not be sent."""
        try:
            # a producer may be a Celery task itself, and this message none of its children
            options: dict[str, Any] = {"queue": CONTROL_QUEUE, "add_to_parent": False}
            self._app.send_task(ROUTE_TASK, args=[pool], argsrepr=pool, kwargsrepr="", **options)
        except Exception as error:  # noqa: BLE001  whatever the broker's trouble, the tick sends again
            log.warning("could not send a wake-up for pool %s: %s", pool, _reason(error))
            return False
        return True

    def builds(self, grants: Sequence[Build]) -> int:
        """Send one message per grant to its engine's queue; returns how many went out, 0 when that is not sure."""
        if not grants:
            return 0
        try:
            with self._app.producer_pool.acquire(block=True, timeout=10) as acquired:
                producer: Any = acquired
                push = producer.connection.ensure(producer, self._push, **RETRIES)
                push(producer, grants)
        except Exception as error:  # noqa: BLE001  whatever the broker's trouble, the tick sends again
            log.warning("could not send %d grants: %s", len(grants), _reason(error))
            return 0
        return len(grants)

    def canary(self, queue: Queue, worker: str, mark: str) -> bool:
        """Send a worker its own canary, which carries its mark; False when the broker did not take it."""
        options: dict[str, Any] = {"queue": queue, "expires": 60}
        try:
            self._app.send_task(CANARY_TASK, args=[worker, mark], **options)
        except Exception as error:  # noqa: BLE001  whatever the broker's trouble, the tick sends again
            log.warning("could not send the canary of %s: %s", worker, _reason(error))
            return False
        return True

    def close(self) -> None:
        """Close the connections of the producer pool, if anything was sent."""
        if "_app" in self.__dict__:
            self._app.close()

    def _push(self, producer: Any, grants: Sequence[Build]) -> None:  # noqa: ANN401  kombu's producer is untyped
        """Push the messages of a pass with one command per queue, and their sent-events as one message.

        They are what `send_task` would send; each by itself would take four questions to Redis and a
        millisecond.
        """
        tasks = [self._task(grant) for grant in grants]
        channel = producer.channel
        letters: dict[str, list[str]] = {}
        for grant, task in zip(grants, tasks, strict=True):
            queue = engine_queue(grant.engine)
            letters.setdefault(queue, []).append(_letter(channel, task, queue))
        with channel.conn_or_acquire() as client:
            for queue, texts in letters.items():
                client.lpush(queue, *texts)
        limit = len(grants) + 1
        events = self._app.events.Dispatcher(
            producer.connection, channel=channel, buffer_group=["task"], buffer_limit=limit
        )
        for grant, task in zip(grants, tasks, strict=True):
            queue = engine_queue(grant.engine)
            events.send("task-sent", queue=queue, exchange="", routing_key=queue, **task.sent_event)
        events.flush()

    def _task(self, grant: Build) -> Any:  # noqa: ANN401  Celery's named tuple
        make: Any = self._app.amqp.as_task_v2
        return make(
            f"run-{grant.run_id}",
            BUILD_TASK,
            args=(grant.run_id, grant.token),
            argsrepr=grant.words,
            kwargsrepr="",
            ignore_result=True,
            create_sent_event=True,
        )


def _reason(error: Exception) -> object:
    """Why the broker took no message: what it lacks where that is known, else its own words."""
    return fault_of_redis(str(error)) or error


def _letter(channel: Any, task: Any, queue: str) -> str:  # noqa: ANN401  kombu's channel and task are untyped
    """A task's message as it lies in Redis: what kombu's transport would have written there."""
    body, encoding = channel.encode_body(json.dumps(task.body), channel.body_encoding)
    properties = {
        **task.properties,
        "body_encoding": encoding,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "delivery_mode": 2,
        "delivery_tag": str(uuid4()),
        "priority": 0,
    }
    letter = channel.prepare_message(
        body,
        content_type="application/json",
        content_encoding="utf-8",
        headers=task.headers,
        properties=properties,
    )
    return json.dumps(letter)
