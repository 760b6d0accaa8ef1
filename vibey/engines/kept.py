"""Kept: what a doctor found stays good for a minute, and whoever asks meanwhile waits for the one look under way."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from vibey.engines.contract import Health

KEPT_SECONDS = 60.0


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    health: Health | None = None
    found_at: float = 0.0


class Kept:
    """Findings of one kind of look, by what was looked at."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.Lock()

    def health(self, at: Hashable, find: Callable[[], Health]) -> Health:
        """What `find` says, or said less than a minute ago."""
        with self._lock:
            entry = self._entries.setdefault(at, _Entry())
        with entry.lock:
            if entry.health is None or time.monotonic() - entry.found_at >= KEPT_SECONDS:
                entry.health = find()
                entry.found_at = time.monotonic()
            return entry.health
