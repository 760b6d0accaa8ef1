"""Tell: have an app's result backend hear of ends that no run could tell it of.

As a program its argument is `pkg.module:app`; it reads endings from the file `VIBEY_JOB_FILE` names and leaves the ids
of the jobs whose end was told in the one `VIBEY_RESULT_FILE` names.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from celery import signals
from celery.app.task import Context
from celery.exceptions import WorkerLostError
from celery.utils.nodenames import gethostname

from vibey.domain.call import TaskCall, task_call_of
from vibey.engines.ours import write_report
from vibey.routed.request import request_of
from vibey.routed.task import RoutedTask
from vibey.services.endings import Ending

if TYPE_CHECKING:
    from celery import Celery


def tell(app: Celery, ending: Ending) -> bool:
    """Write REVOKED or FAILURE for a job's call; False when the app has no such task."""
    call = task_call_of(ending.payload)
    task = None if call is None else app.tasks.get(call.task)
    if call is None or not isinstance(task, RoutedTask):
        return False
    if ending.state == "cancelled" or ending.late:
        _revoke(task, call, "expired" if ending.late else "revoked")
    else:
        fail(task, call, WorkerLostError(f"job {ending.job_id} failed in attempt {ending.attempt}: {ending.reason}"))
    return True


def fail(task: RoutedTask, call: TaskCall, error: Exception) -> None:
    """Write FAILURE: to chord, chain and errbacks too, as a worker does for a process it lost."""
    context, wanted = _context(task, call)
    task.backend.mark_as_failure(call.id, error, request=context, store_result=wanted)
    signals.task_failure.send(
        sender=task,
        task_id=call.id,
        exception=error,
        args=context.args,
        kwargs=context.kwargs,
        traceback=None,
        einfo=None,
    )


def _revoke(task: RoutedTask, call: TaskCall, reason: str) -> None:
    context, wanted = _context(task, call)
    task.backend.mark_as_revoked(call.id, reason, request=context, store_result=wanted)
    signals.task_revoked.send(
        sender=task, request=context, terminated=reason == "revoked", signum=None, expired=reason == "expired"
    )


def _context(task: RoutedTask, call: TaskCall) -> tuple[Context, bool]:
    """The call's context, and whether its result is to be stored."""
    try:
        _, _, request = request_of(task.app, call, hostname=gethostname())
    except Exception:  # noqa: BLE001  arguments nobody can read, and with them the links: its own result is still due
        request = {**call.headers, "args": (), "kwargs": {}, "hostname": gethostname(), "delivery_info": {}}
    context = Context(request, called_directly=False)
    ignored = request.get("ignore_result")
    ignored = task.ignore_result if ignored is None else ignored
    return context, not ignored or bool(task.store_errors_even_if_ignored)


def main(arguments: list[str]) -> int:
    """Tell all that can be told; what cannot is left to a later try."""
    from vibey.routed.child import app_of

    found = json.loads(Path(os.environ["VIBEY_JOB_FILE"]).read_text(encoding="utf-8"))
    # Calls of one app carry its settings, and so the same ones.
    calls = [call for ending in found if (call := task_call_of(ending["payload"])) is not None]
    app = app_of(arguments[0], calls[0] if calls else None)
    told = [ending["job_id"] for ending in found if _tried(app, Ending(**ending))]
    write_report(Path(os.environ["VIBEY_RESULT_FILE"]), {"told": told})
    return 0


def _tried(app: Celery, ending: Ending) -> bool:
    try:
        return tell(app, ending)
    except Exception:  # noqa: BLE001  one result backend or callback in trouble keeps no other end untold
        traceback.print_exc()
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
