"""Interpreter: how Python itself is set in processes that route.

*The collector.* A pass makes thousands of small values that are all alive together, which sets the default collector
off again and again without anything to find: a tenth of a pass. Here it looks less often, and never at what was there
before.

*Turns of threads.* While one thread decides the next part of a pass, another waits for the database to have written the
last one (`vibey.services.granting`). As soon as it has, it needs the interpreter for a moment to send the next; by
default it could wait five milliseconds for that, half of what writing takes.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECT_AFTER = (100_000, 50, 100)
TURN_SECONDS = 0.0001


def tune() -> None:
    """Have this process's collector look less often, and past what is there now; and its threads take short turns."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(TURN_SECONDS)


@contextmanager
def tuned() -> Iterator[None]:
    """As `tune`, and as before afterwards."""
    thresholds, turn = gc.get_threshold(), sys.getswitchinterval()
    tune()
    try:
        yield
    finally:
        sys.setswitchinterval(turn)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
