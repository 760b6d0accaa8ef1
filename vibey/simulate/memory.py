"""Memory: which member each class gave a session last, and until when that is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.domain.selection import SessionKey


class Memory:
    """What is remembered of every session. A grant and a good end both make it last from then."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._known: dict[str, dict[SessionKey, tuple[str, int]]] = {}

    def of(self, session: str, now_ms: int) -> dict[SessionKey, str]:
        """What is remembered of a session now."""
        found = self._known.get(session, {})
        return {key: member for key, (member, until_ms) in found.items() if until_ms > now_ms}

    def learn(self, memories: Mapping[SessionKey, str], now_ms: int) -> None:
        """Remember what a grant taught."""
        for key, member in memories.items():
            self._known.setdefault(key[2], {})[key] = (member, now_ms + self._ttl_ms)

    def keep(self, session: str | None, now_ms: int) -> None:
        """Let what is remembered of a session last from now."""
        for key, member in self.of(session or "", now_ms).items():
            self._known[key[2]][key] = (member, now_ms + self._ttl_ms)
