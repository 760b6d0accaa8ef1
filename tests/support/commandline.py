"""A command line on a test's own database, with a fleet of engines that cost nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.cli import Cli, write_config
from tests.support.installation import Bench
from vibey.services.route import run_pass

if TYPE_CHECKING:
    from pathlib import Path

ENGINES = """
[engines.slots]
near = 2
[engine.near]
kind = "noop"
tier = "local"
weight = 2
capabilities = ["web"]
[engine.far]
kind = "noop"
tier = "local"
[engine.bought]
kind = "noop"
"""


class CommandLine(Cli):
    """`vibey` beside a `Bench` on the same database, for tests that need to look or meddle behind its back."""

    def __init__(self, database_url: str, redis_url: str, folder: Path) -> None:
        """Write the configuration and the fleet; `bench` has a live worker for every engine."""
        self._services = {"database_url": database_url, "redis_url": redis_url, "data_dir": str(folder / "data")}
        self.config = folder / "vibey.toml"
        self._keys: dict[str, object] = {"mode": "singleton"}
        self._write()
        super().__init__(self.config)
        engine = {
            "near": {"kind": "noop", "tier": "local", "weight": 2, "capabilities": ["web"]},
            "far": {"kind": "noop", "tier": "local"},
            "bought": {"kind": "noop"},
        }
        engines = {"mode": "singleton", "slots": {"near": 2}}
        self.bench = Bench(database_url, redis_url, folder, {"engine": engine, "engines": engines})

    def set_default(self, **keys: object) -> None:
        """Apply the file with these keys of `[engines]`, which the default project follows."""
        self._keys.update(keys)
        self._write()
        assert self("apply", "--yes").code == 0

    def _write(self) -> None:
        lines = [f"{key} = {json.dumps(value)}" for key, value in self._keys.items()]
        write_config(self.config, self._services, "\n".join(["[engines]", *lines, ENGINES]))

    def enqueued(self, count: int = 1, *options: str) -> list[int]:
        """Enqueue jobs alike; their ids."""
        return [int(self("enqueue", "{}", *options, "--json").json["job_id"]) for _ in range(count)]

    def route(self) -> None:
        """Routing passes over the main pool until nothing more can be granted."""
        while (passed := run_pass(self.bench.installation, "main")) is not None and passed.granted:
            pass
