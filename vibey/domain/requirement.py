"""Requirement: what a job asks of an engine. Jobs with equal requirements form one group of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from json import dumps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibey.domain.effort import Effort


@dataclass(frozen=True, slots=True)
class Requirement:
    """The question put to every engine, the same for all jobs of a group.

    `excluded` is the job's own word and absolute. `avoided` comes from a rise of effort or a handoff and is
    waived for a tier it would leave empty. `affinity` is the engine that served the previous attempt.
    """

    pool: str
    project: str
    effort: Effort
    capabilities: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()
    affinity: str | None = None
    session: str | None = None

    @property
    def key(self) -> int:
        """The group's key: a signed 64-bit digest of the canonical form, equal exactly for equal requirements."""
        text = dumps(
            [
                self.pool,
                self.project,
                int(self.effort),
                sorted(self.capabilities),
                sorted(self.excluded),
                sorted(self.avoided),
                self.affinity,
                self.session,
            ],
            separators=(",", ":"),
        )
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
