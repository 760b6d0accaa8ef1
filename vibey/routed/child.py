"""The child process of a routed run: carries out one call of a task by Celery's own tracer, and writes the report.

Argument: `pkg.module:app`. With `--check` it only imports the app and says on its output what is wrong. It stands where
a process of Celery's pool would: the same signals are sent, results are not waited for within a task, and the limits of
time are kept, the soft one by an exception in the body, the hard one by an end of the process with FAILURE told.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import celery
from celery import signals, states
from celery._state import _set_task_join_will_block  # type: ignore[attr-defined]  # what a pool's process calls
from celery.app.trace import setup_worker_optimizations, trace_task
from celery.exceptions import Ignore, SoftTimeLimitExceeded, TimeLimitExceeded
from celery.utils.nodenames import gethostname

from vibey.domain.call import TaskCall, task_call_of
from vibey.domain.outcome import FailureClass, one_line
from vibey.engines.calling import DeclaredFailure, GivenUp, HandOff, Misconfigured
from vibey.engines.ours import write_report
from vibey.engines.pycall import imported, info_of, serve
from vibey.routed.request import apply_settings, request_of
from vibey.routed.task import Held, RoutedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Document = dict[str, Any]


class Declared(Ignore):
    """Carries what a body declared past the tracer, to whom it is no state of the task."""

    def __init__(self, failure: DeclaredFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def app_of(dotted: str, call: TaskCall | None = None) -> celery.Celery:
    """The Celery app of this name, its tasks imported, with the settings that a call carries.

    Misconfigured when there is none.
    """
    found = imported(dotted)
    if not isinstance(found, celery.Celery):
        raise Misconfigured(f"{dotted} is not a Celery app")
    try:
        # First: tasks and result backend read the settings when they are bound to the app.
        if call is not None:
            apply_settings(found, call)
        found.loader.init_worker()
        setup_worker_optimizations(found, gethostname())
    except Exception as error:
        traceback.print_exc()
        raise Misconfigured(f"the tasks of {dotted} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def carry_out(dotted: str, job: Document) -> Document:
    """Carry out the call this job is; the report of how that went."""
    try:
        call = _call_of(dotted, job)
        app = app_of(dotted, call)
        task = _known_task(app, dotted, call)
        Held.run = info_of(job)
        return _traced(app, task, call)
    except DeclaredFailure as declared:
        return {"failure": declared.document()}
    except BaseException as error:  # noqa: BLE001  whatever it is, it is the job's, and its report is due
        traceback.print_exc(limit=-50)
        return _failed(f"{type(error).__name__}: {error}")


def _call_of(dotted: str, job: Document) -> TaskCall:
    """The call that the job is; HandOff when it is none."""
    call = task_call_of(job["payload"])
    if call is None:
        raise HandOff(f"{dotted} runs calls of its tasks alone")
    return call


def _known_task(app: celery.Celery, dotted: str, call: TaskCall) -> RoutedTask:
    """The task that is called; another engine's app may know it if this one does not."""
    task = app.tasks.get(call.task)
    if not isinstance(task, RoutedTask):
        raise HandOff(f"{dotted} has no routed task {call.task}")
    return task


def _traced(app: celery.Celery, task: RoutedTask, call: TaskCall) -> Document:
    run = Held.run
    assert run is not None  # noqa: S101  for the type checker: set by carry_out
    try:
        args, kwargs, request = request_of(app, call, hostname=f"{run.engine}@{gethostname()}", again=run.attempt > 1)
    except Exception as error:  # noqa: BLE001  whatever its serializer has to say: no other attempt can read it either
        return _last_word(task, call, error)
    _begin_as_worker(app)
    _let_declare(task)
    with _limits(task, call):
        traced: Any = trace_task(task, call.id, args, kwargs, request, app=app, hostname=request["hostname"])
    signals.worker_process_shutdown.send(sender=None, pid=os.getpid(), exitcode=0)
    return _report(traced)


def _report(traced: Any) -> Document:  # noqa: ANN401  Celery's named tuple
    if traced.info is None:
        return {"result": {"celery": states.SUCCESS, "returned": traced.retstr}}
    state: str = traced.info.state
    reason: Any = traced.info.retval
    if state == states.FAILURE:
        return _failed(f"{type(reason).__name__}: {reason}", final=True)
    if isinstance(reason, Declared):
        return {"failure": reason.failure.document()}
    if state == states.REJECTED:
        return _failed(f"rejected: {reason.reason}", final=not reason.requeue)
    return {"result": {"celery": state, "returned": one_line(str(reason))}}


def _failed(detail: str, *, final: bool = False) -> Document:
    return {"failure": {"class": FailureClass.WORK.value, "detail": one_line(detail), "final": final}}


def _begin_as_worker(app: celery.Celery) -> None:
    app.log.setup(loglevel=logging.INFO, redirect_stdouts=False, colorize=False)
    _set_task_join_will_block(True)  # noqa: FBT003  Celery's
    app.loader.init_worker_process()
    signals.worker_process_init.send(sender=None)


def _let_declare(task: RoutedTask) -> None:
    """Let what the body declares pass by Celery, and by its automatic retries."""
    name = "_orig_run" if hasattr(task, "_orig_run") else "run"
    body: Callable[..., Any] = getattr(task, name)

    @wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  the task's own
        try:
            return body(*args, **kwargs)
        except GivenUp:
            raise
        except DeclaredFailure as declared:
            raise Declared(declared) from declared

    setattr(task, name, run)


@contextmanager
def _limits(task: RoutedTask, call: TaskCall) -> Iterator[None]:
    """Keep the call's limits of time, or else the task's."""
    hard, soft = call.headers.get("timelimit") or (None, None)
    hard, soft = hard or task.time_limit, soft or task.soft_time_limit
    end = threading.Timer(hard or 0, _end, (task, call, hard))
    end.daemon = True
    if hard:
        end.start()
    if soft:
        signal.signal(signal.SIGALRM, lambda *_: _soften(soft))
        signal.setitimer(signal.ITIMER_REAL, soft)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        end.cancel()


def _soften(seconds: float) -> None:
    raise SoftTimeLimitExceeded(seconds)


def _end(task: RoutedTask, call: TaskCall, seconds: float) -> None:
    """The hard limit: tell FAILURE, leave a report, be gone."""
    report = _last_word(task, call, TimeLimitExceeded(seconds))
    write_report(Path(os.environ["VIBEY_RESULT_FILE"]), report)
    os._exit(0)


def _last_word(task: RoutedTask, call: TaskCall, error: Exception) -> Document:
    """Tell a FAILURE that is none of the body's own; the report of it."""
    from vibey.routed.tell import fail

    fail(task, call, error)
    return _failed(f"{type(error).__name__}: {error}", final=True)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], app_of, carry_out))
