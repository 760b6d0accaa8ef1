"""The peer: plain Celery doing nothing, as a worker and as a producer that times itself.

    celery -A vibey.bench.plain_celery worker --queues NAME    the worker
    python -m vibey.bench.plain_celery jobs COUNT FOLDER       COUNT no-ops: from the first send to the last end
    python -m vibey.bench.plain_celery noted COUNT FOLDER      the same, each with its start and its end committed
    python -m vibey.bench.plain_celery relay COUNT FOLDER      COUNT times from one task's send to the next one's start

The one module beside the publisher that may know Celery. Its settings are the usual ones for speed: no results,
early acknowledgement, prefetching as it comes; events are off, as is Celery's default, though Vibey's are on. It speaks
through files, because anything a task sent back would cost the peer time that is not its own.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
from pathlib import Path
from threading import Event
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from celery import Celery

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Task

BROKER = "BENCH_BROKER_URL"
DATABASE = "BENCH_DATABASE_URL"
QUEUE = "bench"
WAIT_SECONDS = 300.0

app = Celery("bench", broker=os.environ.get(BROKER, "memory://"), set_as_current=False)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_default_queue=QUEUE,
    task_ignore_result=True,
    worker_hijack_root_logger=False,
)


@app.task(name="bench.nothing")
def nothing() -> None:
    """Do nothing."""


@app.task(name="bench.noted", bind=True)
def noted(self: Task[..., None]) -> None:
    """Do nothing either, with its start and its end each committed as one row of a table with one index."""
    cursor = _session().cursor()
    cursor.execute("insert into noted (task, started_at) values (%s, clock_timestamp())", (self.request.id,))
    cursor.execute("update noted set ended_at = clock_timestamp() where task = %s", (self.request.id,))
    cursor.close()


@functools.cache
def _session() -> Any:  # noqa: ANN401  the driver there is: the peers' environment has psycopg, ours psycopg2
    """This process's connection, on which each statement is a transaction."""
    name = "psycopg" if importlib.util.find_spec("psycopg") else "psycopg2"
    connection = importlib.import_module(name).connect(os.environ[DATABASE])
    connection.autocommit = True
    return connection


@app.task(name="bench.last")
def last(path: str) -> None:
    """Write down that the queue has been worked off, and when."""
    _publish(Path(path), str(time_ns()))


@app.task(name="bench.relay")
def relay(left: int, sent_ns: int, path: str) -> None:
    """Note how long ago this task was sent, then send the next one."""
    notes = Path(path)
    with notes.with_suffix(".notes").open("a", encoding="ascii") as sink:
        sink.write(f"{time_ns() - sent_ns}\n")
    if left > 1:
        relay.apply_async((left - 1, time_ns(), path))
    else:
        _publish(notes, "done")


def jobs(count: int, folder: Path, task: Task[..., None] = nothing) -> dict[str, float]:
    """Send `count` no-ops and one that ends them; seconds from the first send to the last end."""
    path = folder / f"last-{time_ns()}"
    with app.producer_pool.acquire(block=True) as producer:
        connection = producer.connection
        if connection is not None:
            connection.ensure_connection(max_retries=3)
        began = time_ns()
        for _ in range(count):
            task.apply_async(producer=producer)
        last.apply_async((str(path),), producer=producer)
    ended = int(_awaited(path))
    return {"seconds": (ended - began) / 1e9}


def relays(count: int, folder: Path) -> dict[str, list[float]]:
    """Milliseconds from each of `count` sends to the start it led to, each sent by the task before."""
    path = folder / f"relay-{time_ns()}"
    relay.apply_async((count, time_ns(), str(path)))
    _awaited(path)
    lines = path.with_suffix(".notes").read_text(encoding="ascii").split()
    return {"milliseconds": [int(line) / 1e6 for line in lines]}


def _publish(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="ascii")
    draft.rename(path)


def _awaited(path: Path) -> str:
    deadline = monotonic() + WAIT_SECONDS
    pause = Event()
    while not path.exists():
        if monotonic() > deadline:
            raise SystemExit(f"plain Celery did not finish within {WAIT_SECONDS:.0f} s")
        pause.wait(0.01)
    return path.read_text(encoding="ascii")


def main(what: str, count: str, folder: str) -> None:
    """Measure what is asked for and print it as JSON."""
    measures: dict[str, Callable[[int, Path], object]] = {
        "jobs": jobs,
        "noted": functools.partial(jobs, task=noted),
        "relay": relays,
    }
    measured = measures[what](int(count), Path(folder))
    sys.stdout.write(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
