"""The child process of a `python` engine: imports the callable, calls it, writes the report.

Argument: `pkg.module:function`. With `--check` it only imports and says on its output what is wrong.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.outcome import FailureClass, one_line
from vibey.engines.calling import Answer, CallInfo, DeclaredFailure, Misconfigured
from vibey.engines.ours import write_report
from vibey.engines.results import LARGEST_RESULT, storable

if TYPE_CHECKING:
    from collections.abc import Callable

Document = dict[str, object]


def imported(dotted: str) -> object:
    """The object of this name; raises Misconfigured."""
    module_name, _, path = dotted.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:
        traceback.print_exc()
        raise Misconfigured(f"{dotted} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def load(dotted: str) -> Callable[[object, CallInfo], object]:
    """The callable of this name; raises Misconfigured."""
    found = imported(dotted)
    if not callable(found):
        raise Misconfigured(f"{dotted} is not callable")
    return found


def call(dotted: str, job: Document) -> Document:
    """Call it with the job; the report of how that went."""
    try:
        return _report_of(load(dotted)(job["payload"], info_of(job)))
    except DeclaredFailure as declared:
        return {"failure": declared.document()}
    except SystemExit as leaving:
        return _work_failure(f"the callable called sys.exit({leaving.code!r})")
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is the job's, and its report is due)
        traceback.print_exc(limit=-50)
        return _work_failure(f"{type(error).__name__}: {error}")


def _report_of(returned: object) -> Document:
    answer = returned if isinstance(returned, Answer) else Answer(returned)
    report: Document = {
        "result": answer.result,
        "cost_usd": answer.cost_usd,
        "tokens_in": answer.tokens_in,
        "tokens_out": answer.tokens_out,
        "near_quota": answer.near_quota,
    }
    try:
        size = len(json.dumps(storable(report), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return _work_failure(f"the callable's result is not JSON: {error}")
    if size > LARGEST_RESULT:
        return _work_failure(f"the callable's result takes {size} bytes; at most {LARGEST_RESULT} are kept")
    return report


def _work_failure(detail: str) -> Document:
    return {"failure": {"class": FailureClass.WORK.value, "detail": one_line(detail)}}


def info_of(job: Document) -> CallInfo:
    """The run that this job document was handed to."""
    return CallInfo(
        job_id=int(str(job["job_id"])),
        run_id=int(str(job["run_id"])),
        engine=str(job["engine"]),
        attempt=int(str(job["attempt"])),
        effort=str(job["effort"]),
        project=str(job["project"]),
        session=None if job["session"] is None else str(job["session"]),
        run_directory=Path.cwd(),
    )


def serve(arguments: list[str], check: Callable[[str], object], carry_out: Callable[[str, Document], Document]) -> int:
    """What a child process does: check what its argument names, or carry out the job with it and leave the report.

    Exit status: 0 once a report is written, or the check is good; else 78.
    """
    # It led here and is not for the programs the job starts.
    os.environ.pop("PYTHONPATH", None)
    if arguments[0] == "--check":
        try:
            check(arguments[1])
        except Misconfigured as error:
            sys.stdout.write(f"{error}\n")
            return 78
        return 0
    job = json.loads(Path(os.environ["VIBEY_JOB_FILE"]).read_text(encoding="utf-8"))
    write_report(Path(os.environ["VIBEY_RESULT_FILE"]), carry_out(arguments[0], job))
    return 0


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], load, call))
