"""Beat's scheduler, for clocks that are set back.

Celery's keeps when each task was sent last, and when it is due next, by the wall clock. Set that clock back by two
hours, and it sends nothing for two hours: no tick, and so no lease is judged and no lost message made up for. Here a
task that was sent in the future counts as sent now, so that the next is due after its interval, as ever. A clock set
forward needs nothing: what then seems overdue is sent at once.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.beat import PersistentScheduler
from typing_extensions import override

log = logging.getLogger("vibey.beat")


class SteadyScheduler(PersistentScheduler):
    """Celery's scheduler, which goes on when the clock is set back."""

    @override
    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One turn of the scheduler; how long the next may be waited for, in seconds."""
        entries: list[Any] = list(self.schedule.values())
        early = [entry for entry in entries if entry.last_run_at > entry.default_now()]
        for entry in early:
            entry.last_run_at = entry.default_now()
        if early:
            names = ", ".join(str(entry.name) for entry in early)
            log.warning("the clock was set back: what was sent in the future counts as sent now: %s", names)
            self._heap = None
        wait: float = super().tick(*args, **kwargs)
        return wait
