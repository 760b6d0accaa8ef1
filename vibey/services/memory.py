"""Memory: how the garbage collector is set in processes that route.

A pass makes thousands of small values that are all alive together, which sets the default collector off again and again
without anything to find: a tenth of a pass. Here it looks less often, and never at what was there before.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECT_AFTER = (100_000, 50, 100)


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
