"""Pools as stored: which engines a root pool reaches, and the tree routing walks, with the layers of the moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.layer import scheduled
from vibey.domain.pool import Member, Pool, Select, default_pool
from vibey.store import fleet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.domain.engine import EngineFacts
    from vibey.domain.layer import Layer, Window
    from vibey.store.database import Connection


MAIN = "main"


@dataclass(frozen=True, slots=True)
class Trees:
    """A root pool, the definitions it may refer to, and the adjustments in force on members by key.

    `generation` is the one in force as they were read.

    Without a definition `main` is the default tree of all engines. Any other root without one, such as a
    pool that was taken out of the configuration while jobs were queued for it, has no engines: its jobs
    wait rather than run elsewhere.
    """

    root: str
    definitions: Mapping[str, Mapping[str, Any]]
    adjustments: Mapping[str, tuple[Layer, ...]]
    generation: int | None = None

    @classmethod
    def load(cls, connection: Connection, root: str) -> Trees:
        """Read the definitions and adjustments."""
        generation, definitions, adjustments = fleet.pools_in_force(connection)
        return cls(root, definitions, adjustments, generation)

    @property
    def is_known(self) -> bool:
        """Whether the root is configured, or the default tree."""
        return self.root == MAIN or self.root in self.definitions

    @property
    def engine_names(self) -> tuple[str, ...] | None:
        """The engines under the root; None means every configured engine."""
        if self.root in self.definitions:
            return self._tree(self.root).leaves
        return None if self.root == MAIN else ()

    def build(self, engines: Sequence[EngineFacts], windows: Sequence[Window], now_ms: int) -> Pool:
        """The tree to walk at this instant."""
        tree = self._tree(self.root) if self.root in self.definitions else default_pool(self.root, engines)
        return tree.laden({engine.name: engine.weight for engine in engines}, self.layers(windows, now_ms))

    def layers(self, windows: Sequence[Window], now_ms: int) -> dict[str, tuple[Layer, ...]]:
        """The layers in force at this instant on members by key: schedules, then adjustments."""
        layers = scheduled(windows, now_ms) if windows else {}
        for member, adjusted in self.adjustments.items():
            layers[member] = (*layers.get(member, ()), *adjusted)
        return layers

    @staticmethod
    def keys(pool: Pool) -> list[str]:
        """The keys of a pool and all pools under it."""
        return [each.key for each in pool.nested()]

    def _tree(self, key: str) -> Pool:
        definition = self.definitions[key]
        return Pool(
            key,
            Select(definition["select"]),
            tuple(map(self._member, definition["members"])),
            definition.get("by_weight", False),
            definition.get("waits", False),
        )

    def _member(self, item: Mapping[str, Any]) -> Member:
        nested = self._tree(item["pool"]) if item.get("pool") else None
        key = nested.key if nested else item["engine"]
        return Member(key, nested, item.get("weight"), item.get("tier"))
