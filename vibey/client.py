"""Client: Vibey for Python programs. `from vibey import Vibey`.

```python
with Vibey() as vibey:                                   # as the command line: $VIBEY_CONFIG, else ./vibey.toml
    placed = vibey.enqueue({"task": "build"}, effort="high", idempotency_key="build 17")
    job = vibey.wait(placed, timeout=600)                # a Job; TimedOut when it takes longer
    print(job.state, job.engine, job.result)
```

Making one is cheap and opens nothing; each service is connected to when first used. One may be shared by all threads
of a process, and lives through a fork: the child opens connections of its own. Every error is a `VibeyError`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from vibey.domain.errors import InvalidInput, Refused, TimedOut
from vibey.domain.settlement import JobState
from vibey.services import control, views
from vibey.services.batch import until_ended
from vibey.services.control import Cancelled
from vibey.services.enqueue import Order, Placed, local_repository, order_of, place, place_within
from vibey.services.installation import Installation
from vibey.settings import Settings, Source, load, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

__all__ = ["Cancelled", "Job", "Order", "Placed", "Run", "TaskWishes", "Vibey", "Wishes"]

ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class TaskWishes(TypedDict, total=False):
    """What one call of a routed task may ask for: `task.apply_async(args, vibey={"effort": "high"})`."""

    project: str
    pool: str
    effort: str
    capabilities: Sequence[str]
    engines: Sequence[str]
    exclude: Sequence[str]
    session: str | None
    max_attempts: int | None
    anyway: bool
    title: str | None
    labels: Mapping[str, str]


class Wishes(TaskWishes, total=False):
    """What a job may ask for, by the names of a batch file's keys; `Order` has the defaults.

    `repo` is a path seen from here or a name below an engine's `workspace_roots`. `not_before` is an instant with its
    time zone, in place of `delay_seconds`.
    """

    repo: str | None
    ref: str | None
    verify: str | None
    priority: int
    idempotency_key: str | None
    deadline_seconds: float | None
    delay_seconds: float | None
    traceparent: str | None
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a job on one engine. Instants are ISO 8601 in UTC, None for what has not happened."""

    run_id: int
    engine: str
    why: str
    state: str
    attempt: int
    granted_at: str | None
    started_at: str | None
    ended_at: str | None
    failure_class: str | None
    detail: str
    cost_usd: float | None

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Self:
        """From a run as `vibey job --json` shows it."""
        return cls(**{name: view[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was when it was looked at; `reason` says why it is where it is."""

    job_id: int
    project: str
    pool: str
    title: str
    labels: Mapping[str, str]
    state: str
    attempt: int
    max_attempts: int
    engine: str | None
    reason: str
    result: Mapping[str, Any] | None
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> Self:
        """From a job as `vibey job --json` shows it."""
        plain = {name: view[name] for name in cls.__dataclass_fields__ if name != "runs"}
        return cls(**plain, runs=tuple(Run.of(run) for run in view["runs"]))

    @property
    def ended(self) -> bool:
        """Whether it has succeeded, failed or been cancelled."""
        return self.state in ENDS

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.state == JobState.SUCCEEDED


class Vibey:
    """One installation, for a program that gives it jobs."""

    def __init__(
        self,
        config: str | Path | None = None,
        *,
        settings: Settings | None = None,
        database_url: str = "",
        redis_url: str = "",
        redis_prefix: str = "vibey:",
    ) -> None:
        """Say which: a configuration file, settings, or both addresses; none of them means as the command line.

        InvalidInput for more than one of these, or for one address without the other.
        """
        if (config is not None) + (settings is not None) + bool(database_url or redis_url) > 1:
            raise InvalidInput("Vibey", "several of them", "one of config, settings, or database_url with redis_url")
        if bool(database_url) != bool(redis_url):
            raise InvalidInput("Vibey", database_url or redis_url, "database_url and redis_url, both or neither")
        services = {"database_url": database_url, "redis_url": redis_url, "redis_prefix": redis_prefix}
        self._config = None if config is None else Path(config)
        self._settings = settings
        self._services = services if database_url else None
        self._lock = threading.Lock()
        self._opened: tuple[int, Installation] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close this process's connections; the next call opens them again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    @property
    def installation(self) -> Installation:
        """What the services of `vibey.services` take; opened, and its schema checked, on first use in a process."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                installation = Installation.open(self._chosen())
                installation.require_schema()
                self._opened = os.getpid(), installation
            return self._opened[1]

    def enqueue(
        self,
        payload: Mapping[str, Any] | str | None = None,
        *,
        connection: object = None,
        **wishes: Unpack[Wishes],
    ) -> Placed:
        """Enqueue one job; a text as its payload is a prompt, and `connection` is as in `enqueue_many`."""
        return self.enqueue_many([order(payload, wishes)], connection=connection)[0]

    def enqueue_many(self, orders: Iterable[Order], *, connection: object = None) -> list[Placed]:
        """Enqueue jobs in one transaction, all or none, and wake the router.

        With `connection`, an open connection to the installation's own database (SQLAlchemy's Connection or Session,
        one of psycopg2 or psycopg, or Django's), they become part of the caller's transaction: they exist once it is
        committed, and never if it is not. With a driver's own connection the router is woken only by `wake`, or else
        by the next tick.
        """
        wanted = list(orders)
        if connection is None:
            return place(self.installation, wanted)
        return place_within(connection, self.installation, wanted)

    def wake(self, pool: str = "main") -> None:
        """Wake the router: for a program that has committed on a driver's own connection, which reports no commit."""
        self.installation.wake(pool)

    def job(self, job: int | Placed) -> Job:
        """How a job is now; UnknownName when there is none."""
        return Job.of(views.job(self.installation, job_id_of(job)))

    def wait(self, job: int | Placed, timeout: float | None = None) -> Job:
        """The job once it has ended; TimedOut if it has not within `timeout` seconds."""
        return self.wait_all([job], timeout)[0]

    def wait_all(self, jobs: Iterable[int | Placed], timeout: float | None = None) -> list[Job]:
        """The jobs, in the order given, once all have ended; TimedOut if they have not within `timeout` seconds."""
        _warn_in_event_loop()
        ids = [job_id_of(job) for job in jobs]
        deadline = None if timeout is None else time.monotonic() + timeout
        patience = threading.Event()

        def pause(seconds: float) -> None:
            left = seconds if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(tuple(job_id for job_id in ids if not self.job(job_id).ended), timeout or 0.0)
            patience.wait(min(seconds, left))

        if ids:
            for _ in until_ended(self.installation, ids, pause):
                pass
        return [self.job(job_id) for job_id in ids]

    def result(self, job: int | Placed, timeout: float | None = None) -> Mapping[str, Any] | None:
        """What the job led to, once it has succeeded; Refused, with the reason, if it has ended otherwise."""
        return result_of(self.wait(job, timeout))

    def cancel(self, job: int | Placed) -> Cancelled:
        """Cancel a job: at once while it is queued, else by telling its holder. Refused once it has ended."""
        return control.cancel(self.installation, job_id_of(job))

    def _chosen(self) -> Settings:
        if self._settings is not None:
            return self._settings
        if self._services is not None:
            return settings_of(Source(None, Path.cwd(), {"services": self._services}), {})
        return load(self._config)


def order(payload: Mapping[str, Any] | str | None, wishes: Wishes) -> Order:
    """The order these wishes amount to; InvalidInput for an instant that is none, or given beside a delay."""
    known: dict[str, Any] = {"payload": {} if payload is None else payload, **wishes}
    if known.get("repo") is not None:
        known["repo"] = local_repository(known["repo"])
    instant = known.pop("not_before", None)
    if instant is not None:
        if not isinstance(instant, datetime) or instant.tzinfo is None or known.get("delay_seconds") is not None:
            raise InvalidInput("not_before", instant, "an instant with a time zone, and no delay_seconds beside it")
        seconds = (instant - datetime.now(UTC)).total_seconds()
        known["delay_seconds"] = seconds if seconds > 0 else None
    return order_of(known)


def job_id_of(job: int | Placed) -> int:
    """The number of a job that is named by it, or by what enqueueing it returned."""
    return job.job_id if isinstance(job, Placed) else job


def result_of(ended: Job) -> Mapping[str, Any] | None:
    """The result of a job that has ended; Refused, with the reason, unless it has succeeded."""
    if not ended.succeeded:
        raise Refused(f"job {ended.job_id} has no result: {ended.state}, {ended.reason}", "see: vibey job")
    return ended.result


def _warn_in_event_loop() -> None:
    """Warn when the calling thread runs an event loop: it would serve nothing else until the job has ended."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001  as asyncio documents for libraries
        message = "Vibey.wait and Vibey.result block the running event loop; use vibey.AsyncVibey"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
