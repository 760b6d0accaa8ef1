"""Procrastinate doing nothing, on a database of its own on the same Postgres.

    peer_procrastinate.py produce              make the schema, then answer lines of JSON: {"count": 1000}
    peer_procrastinate.py worker CONCURRENCY   work until ended

Run by the peers' own interpreter; knows nothing of Vibey. Tasks are coroutines, which it runs without a thread, and are
deferred in batches; workers are told of new jobs by the database, as is its default, and finished jobs stay in the
table, as is its default too. Time is the database's, from before the first deferral to the last success.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from threading import Event
from time import monotonic
from typing import Any

DATABASE = "BENCH_DATABASE_URL"
QUEUE = "bench"
BATCH = 1_000
WAIT_SECONDS = 300.0
OPEN = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
ENDED = "select extract(epoch from max(at))::float from procrastinate_events where type = 'succeeded'"
NOW = "select extract(epoch from clock_timestamp())::float"


def application(connector: Any) -> tuple[Any, Any]:  # noqa: ANN401  a peer's types
    """Procrastinate's application on this connector, and its one task."""
    app = import_module("procrastinate").App(connector=connector)

    async def nothing() -> None:
        """Do nothing."""

    return app, app.task(name="nothing", queue=QUEUE)(nothing)


def work(concurrency: int) -> None:
    """Run a worker until it is told to end; it fetches and listens on connections beside those of its jobs."""
    connector = import_module("procrastinate").PsycopgConnector(
        conninfo=os.environ[DATABASE], min_size=2, max_size=concurrency + 2
    )
    app, _ = application(connector)
    app.run_worker(queues=[QUEUE], concurrency=concurrency)


def produce() -> None:
    """Make the schema and answer questions until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr
    psycopg = import_module("psycopg")
    app, nothing = application(import_module("procrastinate").SyncPsycopgConnector(conninfo=os.environ[DATABASE]))
    with app.open(), psycopg.connect(os.environ[DATABASE], autocommit=True) as connection:
        if connection.execute("select to_regclass('procrastinate_jobs') is null").fetchone()[0]:
            app.schema_manager.apply_schema()
        for line in sys.stdin:
            seconds = jobs(nothing, connection, json.loads(line)["count"])
            answers.write(f"{json.dumps({'seconds': seconds})}\n")
            answers.flush()


def jobs(nothing: Any, connection: Any, count: int) -> float:  # noqa: ANN401  a peer's types
    """Defer so many jobs and wait for the end of the last; the seconds it took."""
    if count == 0:
        return 0.0
    began = connection.execute(NOW).fetchone()[0]
    for start in range(0, count, BATCH):
        nothing.batch_defer(*({} for _ in range(min(BATCH, count - start))))
    deadline = monotonic() + WAIT_SECONDS
    pause = Event()
    while connection.execute(OPEN).fetchone()[0]:
        if monotonic() > deadline:
            raise SystemExit(f"Procrastinate did not finish within {WAIT_SECONDS:.0f} s")
        pause.wait(0.05)
    ended: float = connection.execute(ENDED).fetchone()[0]
    return ended - float(began)


def main(what: str, *numbers: str) -> None:
    """Work, or produce."""
    if what == "worker":
        work(int(numbers[0]))
    else:
        produce()


if __name__ == "__main__":
    main(*sys.argv[1:])
