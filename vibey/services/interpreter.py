"""Interpreter: how Python itself is set in processes that route.

*The collector.* A pass makes thousands of small values that are all alive together, which sets the default collector
off again and again without anything to find: a tenth of a pass. Here it looks less often, and never at what was there
before.

*Turns of threads.* While one thread decides the next part of a pass, another waits for the database to have written the
last one (`vibey.services.granting`). As soon as it has, it needs the interpreter for a moment to send the next; by
default it could wait five milliseconds for that, half of what writing takes. Turns are short only that long: they would
slow down every thread that has little to do but much to answer.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECT_AFTER = (100_000, 50, 100)
USUAL_TURN_SECONDS = sys.getswitchinterval()
SHORT_TURN_SECONDS = 0.0001


def calm_collector() -> None:
    """Have this process's collector look less often, and past what is there now."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@contextmanager
def calmed_collector() -> Iterator[None]:
    """As `calm_collector`, and as before afterwards."""
    before = gc.get_threshold()
    calm_collector()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def short_turns() -> Iterator[None]:
    """Have threads take short turns. Where two do at once, the first to end has the other go on with long ones."""
    try:
        sys.setswitchinterval(SHORT_TURN_SECONDS)
        yield
    finally:
        sys.setswitchinterval(USUAL_TURN_SECONDS)
