"""The Celery application and its thin tasks: `celery -A vibey worker|beat|flower`.

A body decodes and makes one service call. The tasks' names are the contract with producers in any language.
"""

from __future__ import annotations

import functools
import logging
import threading
from typing import TYPE_CHECKING, Any, ParamSpec

from celery import current_task

from vibey.domain.errors import Contended, ServiceUnavailable
from vibey.publisher import (
    AUDIT_TASK,
    BUILD_TASK,
    CANARY_TASK,
    ENQUEUE_QUEUE,
    ENQUEUE_TASK,
    MARGIN_SECONDS,
    MEASURE_TASK,
    PRUNE_TASK,
    ROUTE_TASK,
    TICK_TASK,
)
from vibey.worker import lifecycle
from vibey.worker.application import app, follower, installation

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
log = logging.getLogger("vibey.tasks")

AGAIN_SECONDS = 1.0

__all__ = ["app", "audit", "build", "canary", "enqueue", "measure", "prune", "route", "tick"]


def guarded(body: Callable[P, object]) -> Callable[P, None]:
    """The outermost guard of a task: nothing a task raises may reach the worker.

    A `MemoryError` raised by a task ends the whole worker, siblings included. Whatever was lost here the
    tick finds.
    """

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            body(*args, **kwargs)
        except (ServiceUnavailable, Contended) as error:
            log.warning("task %s: %s", body.__name__, error)
        except Exception:
            log.exception("task %s%r failed", body.__name__, args)
        except BaseException as error:
            log.critical("task %s%r was ended by %s", body.__name__, args, type(error).__name__)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                raise

    return run


# Acknowledged late, as the one task whose message is more than a wake-up; its id makes a second delivery harmless.
@app.task(name=ENQUEUE_TASK, acks_late=True, reject_on_worker_lost=True)
@guarded
def enqueue(**values: Any) -> None:  # noqa: ANN401  keyword arguments as the command line's, checked by the service
    """Enqueue one job; a bad one is logged with what was wrong.

    A message that finds no database is sent round again. Its id is the job's idempotency key, if it has no other:
    however often it comes, there is one job.
    """
    from vibey.services.enqueue import order_of, place
    from vibey.tracing import taken

    request = current_task.request
    keyed = {
        **values,
        "idempotency_key": values.get("idempotency_key") or f"message {request.id}",
        # a producer that traces its messages names its span in their headers
        "traceparent": values.get("traceparent") or taken(request.get("traceparent")),
    }
    try:
        place(installation(), [order_of(keyed)])
    except (ServiceUnavailable, Contended):
        threading.Event().wait(AGAIN_SECONDS)
        app.send_task(ENQUEUE_TASK, kwargs=keyed, queue=ENQUEUE_QUEUE)
        raise


# Routers and ticks leave after some seconds; this only catches one that hangs.
@app.task(name=ROUTE_TASK, time_limit=MARGIN_SECONDS)
@guarded
def route(pool: str) -> None:
    """Route one pool until nothing more can be granted."""
    from vibey.services.route import route as route_pool

    route_pool(installation(), pool)


@app.task(name=BUILD_TASK)
@guarded
def build(run_id: int, token: int) -> None:
    """Carry out one granted run, if its token still holds."""
    from vibey.services.run import carry_out

    carry_out(installation(), run_id, token, follower().follow)


@app.task(name=TICK_TASK, time_limit=MARGIN_SECONDS)
@guarded
def tick() -> None:
    """Repair what was left lying, and route what is due."""
    from vibey.services.tick import tick as tick_once

    tick_once(installation())


@app.task(name=MEASURE_TASK)
@guarded
def measure(*projects: str) -> None:
    """Measure these projects, or all, as far as their measurement is wanted and not current."""
    from vibey.services.measure import refresh, refresh_all

    if projects:
        refresh(installation(), projects)
    else:
        refresh_all(installation())


@app.task(name=AUDIT_TASK)
@guarded
def audit() -> None:
    """Audit the installation, when it is time for that."""
    from vibey.services.audit import audit_in_turn

    audit_in_turn(installation())


@app.task(name=PRUNE_TASK)
@guarded
def prune() -> None:
    """Remove jobs that ended longer ago than they are kept, for some seconds."""
    from vibey.services.prune import ROUND_SECONDS
    from vibey.services.prune import prune as prune_for

    prune_for(installation(), seconds=ROUND_SECONDS)


@app.task(name=CANARY_TASK)
@guarded
def canary(worker: str, mark: str = "") -> None:
    """A worker's proof that it consumes; another worker's canary, in a queue that both have by one name, is none."""
    from vibey.services.pulse import sing

    if mark == lifecycle.mark():
        sing(installation(), worker)
