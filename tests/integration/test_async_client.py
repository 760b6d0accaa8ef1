"""The client for programs with an event loop: the calls of `Vibey`, and a loop that goes on meanwhile."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey import AsyncVibey, InvalidInput, Order, Refused, TimedOut, Vibey
from vibey.domain.errors import UnknownName
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """An installation with one local engine."""
    return open_bench(engine={"a": noop()})


def run(bench: Bench, body: Callable[[AsyncVibey], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine with a client of the installation, in a loop that reports what was never awaited or closed."""

    async def main() -> None:
        async with AsyncVibey(settings=bench.installation.settings) as vibey:
            await body(vibey)

    asyncio.run(main(), debug=True)


def finish_jobs(bench: Bench) -> None:
    """Route what is due and carry it out, in this process."""
    route(bench.installation, "main")
    for run_id, token, _ in bench.live():
        carry_out(bench.installation, run_id, token)


def test_a_job_from_enqueue_to_result(bench: Bench) -> None:
    """Every call returns what the blocking client returns, and raises the same errors."""

    async def body(vibey: AsyncVibey) -> None:
        placed = await vibey.enqueue({"n": 1}, idempotency_key="k")
        assert (await vibey.job(placed)).state == "queued"
        waiting = asyncio.create_task(vibey.wait(placed, timeout=300))
        await asyncio.to_thread(finish_jobs, bench)
        job = await waiting
        assert (job.state, job.engine) == ("succeeded", "a")
        assert await vibey.result(placed) == job.result
        again = await vibey.enqueue({"n": 1}, idempotency_key="k")
        assert (again.job_id, again.created) == (placed.job_id, False)
        other, third = await vibey.enqueue_many([Order(), Order()])
        assert (await vibey.cancel(other)).state == "cancelled"
        with pytest.raises(Refused, match="has no result: cancelled"):
            await vibey.result(other)
        with pytest.raises(TimedOut, match=rf"within 0.2 s: job {third.job_id};"):
            await vibey.wait_all([other, third], timeout=0.2)
        with pytest.raises(UnknownName, match="unknown job 99"):
            await vibey.job(99)
        with pytest.raises(InvalidInput, match="colour"):
            await vibey.enqueue(colour="red")  # type: ignore[call-arg]

    run(bench, body)


def test_many_wait_at_once(bench: Bench) -> None:
    """Five hundred waits take no thread each, and one that is cancelled ends by itself while its job goes on."""

    async def body(vibey: AsyncVibey) -> None:
        placed = await vibey.enqueue()
        waits = [asyncio.create_task(vibey.wait(placed)) for _ in range(500)]
        given_up = asyncio.create_task(vibey.wait(placed))
        # once the database has answered others, this one has begun to wait
        assert (await vibey.job(placed)).state == "queued"
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await asyncio.to_thread(finish_jobs, bench)
        assert {job.state for job in await asyncio.gather(*waits)} == {"succeeded"}

    run(bench, body)


def test_an_async_session(bench: Bench) -> None:
    """A job becomes part of the transaction of SQLAlchemy's AsyncSession, and its commit wakes the router."""
    query(bench.url, "create table orders (id int primary key)")

    async def body(vibey: AsyncVibey) -> None:
        engine = create_async_engine(bench.url.replace("psycopg2", "psycopg"))
        async with AsyncSession(engine) as session:
            await session.execute(text("insert into orders values (1)"))
            await vibey.enqueue({"n": 1}, connection=session)
            assert bench.value("select count(*) from jobs") == 0
            await session.rollback()
            await session.execute(text("insert into orders values (2)"))
            await vibey.enqueue({"n": 2}, connection=session)
            await session.commit()
        async with engine.connect() as connection:
            await vibey.enqueue({"n": 3}, connection=connection)
        await engine.dispose()

    run(bench, body)
    assert bench.rows("select payload from jobs") == [({"n": 2},)]
    assert bench.rows("select id from orders") == [(2,)]
    assert bench.messages() == 1


def test_waiting_in_a_loop_with_the_blocking_client_is_reported(bench: Bench) -> None:
    """A wait that blocks a running loop warns, and names the client to use; outside of a loop it does not."""
    with Vibey(settings=bench.installation.settings) as vibey:
        placed = vibey.enqueue()
        finish_jobs(bench)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert vibey.wait(placed).succeeded

        async def body() -> None:
            with pytest.warns(RuntimeWarning, match="use vibey.AsyncVibey") as caught:
                assert vibey.wait(placed).succeeded
            assert caught[0].filename == __file__

        asyncio.run(body())
