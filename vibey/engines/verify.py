"""Verify: the operator's check of what an engine has done, run in the run's tree, for at most its time.

It is supervised like the work itself, and gets nothing of the engine's: neither its extra variables nor its key.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from vibey.engines.contract import Check, Exit, Progress, StopReason
from vibey.engines.environment import allowed
from vibey.engines.handover import LastLine
from vibey.engines.results import storable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from vibey.engines.within import TreeContext

TAIL_LINES, TAIL_CHARACTERS = 30, 4000
GRACE_SECONDS = 5.0


def run(name: str, check: Check, within: TreeContext) -> Generator[Progress, None, dict[str, Any]]:
    """Run it to its end; `{"name", "ok", "exit", "seconds", "tail"}`, `exit` None if nobody saw it end."""
    began = time.monotonic()
    process = within.spawn(check.argv, environment=allowed(os.environ))
    timer = threading.Timer(check.timeout_seconds, process.stop, (StopReason.TIMEOUT, GRACE_SECONDS))
    timer.start()
    last, tail = LastLine(), deque[str](maxlen=TAIL_LINES)
    try:
        for line in process.lines():
            tail.append(line[:TAIL_CHARACTERS])
            progress = last.take(line)
            if progress is not None:
                yield progress
        ending = process.wait()
    finally:
        timer.cancel()
        timer.join()
    tail.extend(_remarks(check, ending))
    return {
        "name": name,
        "ok": ending.code == 0 and ending.stopped is None,
        "exit": ending.code,
        "seconds": round(time.monotonic() - began, 3),
        "tail": storable("\n".join(tail)[-TAIL_CHARACTERS:]),
    }


def words(verified: Mapping[str, Any]) -> str:
    """How a check failed, for people."""
    last = str(verified["tail"]).strip().rpartition("\n")[2]
    how = "could not be run" if verified["exit"] is None else f"exit {verified['exit']}"
    return f"verify {verified['name']} failed, {how}: {last[:200]}"


def _remarks(check: Check, ending: Exit) -> list[str]:
    if ending.errno is not None:
        return [f"{check.argv[0]}: {os.strerror(ending.errno)}"]
    return [f"not done after {check.timeout_seconds:g} s"] if ending.stopped is StopReason.TIMEOUT else []
