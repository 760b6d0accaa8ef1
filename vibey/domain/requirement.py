"""Requirement: what a job asks of an engine. Jobs that the same engines may serve form one group of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from json import dumps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibey.domain.effort import Effort


def conversation(project: str, session: str | None) -> str | None:
    """A session's name among those of all projects."""
    return None if session is None else f"{project}/{session}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """The question put to every engine.

    `excluded` is the job's own word and absolute. `pinned` names the only engines that may run it, configured or not;
    empty: any may. `workspace` names the engines that can work in the repository the job names; None: it names none.

    `avoided` comes from a rise of effort and is waived for a tier it would leave empty. `handed_off` names engines that
    wound down and gave the job back; it is waived only when no other engine is left. (Decisions recorded before the two
    were told apart have both in `avoided`.) `affinity` is the engine that served the previous attempt.
    """

    pool: str
    project: str
    effort: Effort
    capabilities: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    avoided: frozenset[str] = frozenset()
    affinity: str | None = None
    handed_off: frozenset[str] = frozenset()
    pinned: frozenset[str] = frozenset()
    workspace: frozenset[str] | None = None

    @property
    def later_parts(self) -> dict[str, list[str]]:
        """The parts that came after the first release, without those that are empty.

        Digests and snapshots name only these, so a requirement without them keeps its key and its recorded form.
        """
        parts = {"handed_off": sorted(self.handed_off), "pinned": sorted(self.pinned)}
        named = {name: engines for name, engines in parts.items() if engines}
        return named if self.workspace is None else named | {"workspace": sorted(self.workspace)}

    @property
    def needs(self) -> tuple[object, ...]:
        """All that an assessment of engines depends on: jobs of different pools and projects may share one."""
        engines = self.excluded, self.avoided, self.handed_off, self.pinned, self.workspace
        return self.effort, self.capabilities, engines, self.affinity

    @property
    def key(self) -> int:
        """The group's key: a signed 64-bit digest of all that decides which engines are eligible.

        Affinity is left out: it moves weight among eligible engines, so jobs that differ only in it wait for the same
        things. So is the session, which is no part of a requirement at all: a group for each would make the queue as
        wide as it is deep.
        """
        parts: list[object] = [
            self.pool,
            self.project,
            int(self.effort),
            sorted(self.capabilities),
            sorted(self.excluded),
            sorted(self.avoided),
        ]
        if later := self.later_parts:
            parts.append(later)
        text = dumps(parts, separators=(",", ":"))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
