"""The client for programs that run an event loop. `from vibey import AsyncVibey`.

```python
async with AsyncVibey() as vibey:
    placed = await vibey.enqueue({"prompt": "fix the flaky test"}, effort="high")
    job = await vibey.wait(placed, timeout=600)
```

It has the calls of `Vibey`, as coroutines, with the same arguments, values and errors. The drivers underneath block, so
each call runs in one of a few threads, and the loop goes on. Waiting takes no thread: between two queries the coroutine
sleeps, so a thousand may wait at once, and one that is cancelled ends; its job does not. A call that is cancelled while
its thread is at work is finished by that thread: an `enqueue` may have happened. With an `idempotency_key` it can be
repeated safely.

One may be shared by all tasks of a loop, and used from several loops.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from vibey.client import Vibey, job_id_of, order, result_of
from vibey.domain.errors import TimedOut
from vibey.services.batch import progress_until_ended
from vibey.services.enqueue import place_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

    from vibey.client import Cancelled, Job, Order, Placed, Wishes
    from vibey.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class AsyncVibey:
    """One installation, for a program with an event loop that gives it jobs."""

    def __init__(
        self,
        config: str | Path | None = None,
        *,
        settings: Settings | None = None,
        database_url: str = "",
        redis_url: str = "",
        redis_prefix: str = "vibey:",
    ) -> None:
        """As `Vibey`; nothing is opened yet."""
        self._vibey = Vibey(
            config, settings=settings, database_url=database_url, redis_url=redis_url, redis_prefix=redis_prefix
        )
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="vibey-async")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections and end the threads, once calls under way have returned. No call can follow."""
        await self._run(self._vibey.close)
        await asyncio.to_thread(self._threads.shutdown)

    async def enqueue(
        self, payload: Mapping[str, Any] | str | None = None, *, connection: object = None, **wishes: Unpack[Wishes]
    ) -> Placed:
        """Enqueue one job; a text as its payload is a prompt, and `connection` is as in `enqueue_many`."""
        return (await self.enqueue_many([order(payload, wishes)], connection=connection))[0]

    async def enqueue_many(self, orders: Iterable[Order], *, connection: object = None) -> list[Placed]:
        """Enqueue jobs in one transaction, all or none, and wake the router.

        `connection` may be what `Vibey.enqueue_many` takes, or SQLAlchemy's AsyncConnection or AsyncSession on psycopg.
        The jobs then become part of its transaction.
        """
        wanted = list(orders)
        run_sync = getattr(connection, "run_sync", None)
        if run_sync is None:
            return await self._run(self._vibey.enqueue_many, wanted, connection=connection)
        installation = await self._run(getattr, self._vibey, "installation")
        # The installation's identity is read in a thread: in the caller's greenlet it would block the loop.
        await self._run(installation.database.identity)
        placed: list[Placed] = await run_sync(
            lambda session: place_within(session, installation, wanted, self._threads.submit)
        )
        return placed

    async def wake(self, pool: str = "main") -> None:
        """Wake the router; see `Vibey.wake`."""
        await self._run(self._vibey.wake, pool)

    async def job(self, job: int | Placed) -> Job:
        """How a job is now; UnknownName when there is none."""
        return await self._run(self._vibey.job, job)

    async def wait(self, job: int | Placed, timeout: float | None = None) -> Job:  # noqa: ASYNC109  as `Vibey.wait`
        """The job once it has ended; TimedOut if it has not within `timeout` seconds."""
        return (await self.wait_all([job], timeout))[0]

    async def wait_all(
        self,
        jobs: Iterable[int | Placed],
        timeout: float | None = None,  # noqa: ASYNC109  as `Vibey.wait_all`
    ) -> list[Job]:
        """The jobs, in the order given, once all have ended; TimedOut if they have not within `timeout` seconds."""
        ids = [job_id_of(job) for job in jobs]
        try:
            async with asyncio.timeout(timeout):
                await self._wait_until_ended(ids)
        except TimeoutError as error:
            still_open = tuple([job_id for job_id in ids if not (await self.job(job_id)).ended])
            if still_open:
                raise TimedOut(still_open, timeout or 0.0) from error
        return [await self.job(job_id) for job_id in ids]

    async def result(
        self,
        job: int | Placed,
        timeout: float | None = None,  # noqa: ASYNC109  as `Vibey.result`
    ) -> Mapping[str, Any] | None:
        """What the job led to, once it has succeeded; Refused, with the reason, if it has ended otherwise."""
        return result_of(await self.wait(job, timeout))

    async def cancel(self, job: int | Placed) -> Cancelled:
        """Cancel a job: at once while it is queued, else through its worker. Refused once it has ended."""
        return await self._run(self._vibey.cancel, job)

    async def _wait_until_ended(self, ids: list[int]) -> None:
        if not ids:
            return
        installation = await self._run(getattr, self._vibey, "installation")
        looks = progress_until_ended(installation, ids)
        while (look := await self._run(next, looks, None)) is not None:  # noqa: ASYNC110  what is waited for is a row
            await asyncio.sleep(look[1])

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **kwargs))
