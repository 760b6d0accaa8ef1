"""The base class of routed tasks, and their results. `vibey.routed` tells the whole story."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import celery
from celery.canvas import signature
from celery.exceptions import Ignore
from celery.result import AsyncResult
from kombu import Connection
from typing_extensions import override

from vibey.client import TaskWishes, Vibey
from vibey.domain.errors import InvalidInput
from vibey.routed.carrier import Carrier
from vibey.services import endings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.client import Wishes
    from vibey.engines.calling import CallInfo

HEADER = "vibey"
DECLARED = ("project", "pool", "effort", "capabilities", "engines", "exclude", "max_attempts", "labels")

SETTINGS = ("vibey_config", "vibey_database_url", "vibey_redis_url", "vibey_redis_prefix")

_clients: WeakKeyDictionary[celery.Celery, tuple[tuple[str | None, ...], Vibey]] = WeakKeyDictionary()
_lock = threading.Lock()


class Held:
    """The run this process works for, if it is the child that carries out a routed task."""

    run: CallInfo | None = None


class RoutedTask(celery.Task[Any, Any]):
    """A task whose calls are routed. The attributes are set where the task is declared, and are what its jobs ask for.

    `engines`: those that may run it, none for any that has the app. The others as for any job.
    """

    abstract = True
    # What is true of its runs: one that was lost is run again.
    acks_late = True

    project: str = "default"
    pool: str = "main"
    effort: str = "low"
    capabilities: Sequence[str] = ()
    engines: Sequence[str] = ()
    exclude: Sequence[str] = ()
    max_attempts: int | None = None
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def run_info(self) -> CallInfo | None:
        """Within a routed run: its engine, effort, folder and numbers. None where the body runs locally."""
        return Held.run

    @override
    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        *more: Any,
        vibey: TaskWishes | None = None,
        connection: object = None,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult[Any]:
        """As Celery's, through the router; InvalidInput and Refused as for any job.

        `vibey` is what this call asks for beside what the task declares. `connection`, an open SQLAlchemy Connection or
        Session on Vibey's own database, makes the call part of its transaction. `producer` is of no use here.
        """
        asked: TaskWishes = {**(headers or {}).get(HEADER, {}), **(vibey or {})}
        if asked:
            options["headers"] = {**(headers or {}), HEADER: asked}
        elif headers:
            options["headers"] = headers
        declaring = self._declaring_task(args, kwargs)
        if declaring is None and isinstance(connection, Connection):
            options["connection"] = connection
        if declaring is None or self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id, producer, *more, **options)
        within = None if isinstance(connection, Connection) else connection
        carrier: Any = Carrier(self.app, client_of(self.app), declaring.job_options(asked), within)
        try:
            return super().apply_async(args, kwargs, task_id, carrier, *more, **options)
        finally:
            carrier.release()

    @override
    def AsyncResult(self, task_id: str, **kwargs: Any) -> RoutedResult:
        """The result of a call of this task."""
        return RoutedResult(task_id, backend=self.backend, task_name=self.name, app=self.app, **kwargs)

    @override
    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Hand a call that came by the broker on to the router; one that was granted, or is eager, starts."""
        if Held.run is None and not self.request.is_eager and self._declaring_task(args, kwargs) is not None:
            self.signature_from_request(self.request, args, kwargs).apply_async(add_to_parent=False)
            raise Ignore(f"handed on to the router: {task_id}")

    @classmethod
    @override
    def on_bound(cls, app: celery.Celery) -> None:
        """Let `map`, `starmap` and `chunks` of this app's routed tasks go through the router too."""
        route_map_tasks(app)

    def _declaring_task(self, args: object, kwargs: object) -> RoutedTask | None:  # noqa: ARG002  `MapTask` reads them
        """The routed task whose attributes say what a call's job asks for; None for a call that is not routed."""
        return self

    def job_options(self, asked: TaskWishes) -> Wishes:
        """What the job of a call asks for: what the task declares, and over it what the call itself asks for.

        InvalidInput for a key that no call may ask for.
        """
        unknown = sorted(set(asked) - set(TaskWishes.__annotations__))
        if unknown:
            raise InvalidInput("vibey", unknown[0], f"one of the keys {', '.join(TaskWishes.__annotations__)}")
        wishes: Any = {**{name: getattr(self, name) for name in DECLARED}, **asked}
        return cast("Wishes", wishes)


class MapTask(RoutedTask):
    """Celery's `celery.map` or `celery.starmap`, routed where the task that it applies to each item is.

    Celery calls the mapped task in a loop within one task of its own. Where the mapped task is routed, that one task
    becomes one job, with what the mapped task declares, and the loop runs in one slot. A map of any other task goes to
    the broker as before.
    """

    abstract = True
    # As the app's settings say: a map of tasks that are not routed keeps what it had.
    acks_late: Any = None
    unpacks_items = False

    @override
    def run(self, task: Any, it: Sequence[Any]) -> list[Any]:
        """Apply the mapped task to each item, one after the other."""
        mapped = signature(task, app=self.app).type
        return [mapped(*item) if self.unpacks_items else mapped(item) for item in it]

    @override
    def _declaring_task(self, args: Any, kwargs: Any) -> RoutedTask | None:
        mapped = (kwargs or {}).get("task") or (args[0] if args else None)
        found = self.app.tasks.get(str(mapped.get("task"))) if isinstance(mapped, Mapping) else None
        return found if isinstance(found, RoutedTask) else None


def route_map_tasks(app: celery.Celery) -> None:
    """Put tasks of ours in the place of the app's `celery.map` and `celery.starmap`, once."""
    # `app.tasks` would finalize an app whose tasks are still being declared.
    tasks: Any = app._tasks  # type: ignore[attr-defined]  # noqa: SLF001
    for name, unpacks_items in (("celery.map", False), ("celery.starmap", True)):
        if not isinstance(tasks.get(name), MapTask):
            members = {"app": app, "name": name, "unpacks_items": unpacks_items, "__module__": __name__}
            task = type("MapTask", (MapTask,), members)()
            tasks[name] = task
            task.bind(app)


class RoutedResult(AsyncResult[Any]):
    """The result of a routed call: Celery's own, but for `revoke`, which cancels the job."""

    @override
    def revoke(
        self,
        connection: Any = None,
        terminate: bool = False,
        signal: Any = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Cancel the call where it waits; with `terminate` where it runs, too. The other arguments have no meaning.

        As with Celery, what has ended, or runs and is not to be terminated, is let be. A call that has no job, such as
        a map of tasks that are not routed, is revoked by Celery.
        """
        installation = client_of(self.app).installation
        jobs = endings.jobs_of(installation, self.id)
        if not jobs:
            super().revoke(connection, terminate, signal, wait, timeout)
            return
        for job in jobs:
            if job.open and (terminate or not job.running):
                endings.cancel(installation, job.job_id)
        from vibey.routed.tell import tell

        endings.tell_here(installation, self.id, lambda ending: tell(self.app, ending))


def client_of(app: celery.Celery) -> Vibey:
    """The client of an app: by its setting `vibey_config`, or `vibey_database_url` with `vibey_redis_url`.

    Without any, and in a routed run, as the command line: by `$VIBEY_CONFIG`, else ./vibey.toml.
    """
    said = () if Held.run is not None else tuple(app.conf.get(name) for name in SETTINGS)
    with _lock:
        known = _clients.get(app)
        if known is None or known[0] != said:
            known = _clients[app] = said, _client(*said)
        return known[1]


def _client(
    config: str | None = None,
    database_url: str | None = None,
    redis_url: str | None = None,
    redis_prefix: str | None = None,
) -> Vibey:
    return Vibey(
        config, database_url=database_url or "", redis_url=redis_url or "", redis_prefix=redis_prefix or "vibey:"
    )
