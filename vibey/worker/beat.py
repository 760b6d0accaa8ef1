"""Beat's scheduler, for clocks that are set back.

Celery's keeps when each task was sent last, and when it is due next, by the wall clock. Set that clock back by two
hours, and it sends nothing for two hours: no tick, and so no lease is judged and no lost message made up for. Here a
task that was sent in the future counts as sent now, so that the next is due after its interval, as ever. A clock set
forward needs nothing: what then seems overdue is sent at once.

How often the tick is due follows from the lease in force, which may change while beat runs: ticks that are further
apart than a tenth of one make leases end late.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any

from celery.beat import PersistentScheduler
from celery.schedules import schedule
from typing_extensions import override

from vibey.domain.errors import VibeyError
from vibey.worker.application import installation

log = logging.getLogger("vibey.beat")

FOLLOW_SECONDS = 5.0


class SteadyScheduler(PersistentScheduler):
    """Celery's scheduler, which goes on when the clock is set back, and ticks as what is in force asks."""

    @override
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Begin; what is in force is looked at with the first turn."""
        self._looked_at: float | None = None
        super().__init__(*args, **kwargs)

    @override
    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One turn of the scheduler; how long the next may be waited for, in seconds."""
        self._follow()
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

    def _follow(self) -> None:
        """Have the tick sent as often as the lease in force needs it, now and then looked at."""
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < FOLLOW_SECONDS:
            return
        self._looked_at = now
        try:
            seconds = installation().current().timing.tick_ms / 1000
        except VibeyError as error:
            log.warning("could not look for what is in force: %s", error)
            return
        tick: Any = self.schedule.get("tick")
        if tick is not None and tick.schedule.run_every != timedelta(seconds=seconds):
            tick.schedule = schedule(timedelta(seconds=seconds), app=self.app)
            self._heap = None
            log.info("a tick is due every %s s", seconds)
