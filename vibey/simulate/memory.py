"""Memory: which member each class gave a session last, and until when that is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.domain.selection import SessionKey


class Memory:
    """What is remembered of every session. A grant and a good end both make it last from then.

    What is over is dropped once in a session's life, so that no more is kept than was talked of in the last two.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._dropped_ms = 0
        self._known: dict[str, dict[SessionKey, tuple[str, int]]] = {}

    def of(self, session: str, now_ms: int) -> dict[SessionKey, str]:
        """What is remembered of a session now."""
        found = self._known.get(session, {})
        return {key: member for key, (member, until_ms) in found.items() if until_ms > now_ms}

    def learn(self, memories: Mapping[SessionKey, str], now_ms: int) -> None:
        """Remember what a grant taught."""
        if now_ms - self._dropped_ms >= self._ttl_ms:
            self._drop(now_ms)
        for key, member in memories.items():
            self._known.setdefault(key[2], {})[key] = (member, now_ms + self._ttl_ms)

    def keep(self, session: str | None, now_ms: int) -> None:
        """Let what is remembered of a session last from now."""
        for key, member in self.of(session or "", now_ms).items():
            self._known[key[2]][key] = (member, now_ms + self._ttl_ms)

    def _drop(self, now_ms: int) -> None:
        self._dropped_ms = now_ms
        lasting = {session: max(until_ms for _, until_ms in known.values()) for session, known in self._known.items()}
        self._known = {session: self._known[session] for session, until_ms in lasting.items() if until_ms > now_ms}
