"""A command line on a test's own database, with a fleet of engines that cost nothing."""

from __future__ import annotations

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
        services = {"database_url": database_url, "redis_url": redis_url, "data_dir": str(folder / "data")}
        super().__init__(write_config(folder / "vibey.toml", services, f'[engines]\nmode = "singleton"\n{ENGINES}'))
        engine = {
            "near": {"kind": "noop", "tier": "local", "weight": 2, "capabilities": ["web"]},
            "far": {"kind": "noop", "tier": "local"},
            "bought": {"kind": "noop"},
        }
        engines = {"mode": "singleton", "slots": {"near": 2}}
        self.bench = Bench(database_url, redis_url, folder, {"engine": engine, "engines": engines})

    def enqueued(self, count: int = 1, *options: str) -> list[int]:
        """Enqueue jobs alike; their ids."""
        return [int(self("enqueue", "{}", *options, "--json").json["job_id"]) for _ in range(count)]

    def route(self) -> None:
        """Routing passes over the main pool until nothing more can be granted."""
        while (passed := run_pass(self.bench.installation, "main")) is not None and passed.granted:
            pass
