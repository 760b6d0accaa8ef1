"""The sample project beside a fleet: its app in this process, its own worker, and the diary its tasks keep."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.wait import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from tests.support.fleet import Fleet, Member

PROJECT = Path(__file__).parents[1] / "sample_project"
APP = "bookshop.celery:app"
VARIABLES = ("BOOKSHOP_REDIS", "BOOKSHOP_DIARY")


@dataclass(frozen=True)
class Line:
    """One line of the diary; `at` in nanoseconds."""

    word: str
    engine: str
    pid: int
    at: int
    what: str


def engine(tier: str = "local", **more: Any) -> dict[str, Any]:
    """The table of an engine that runs the bookshop's tasks and nothing else."""
    return {"kind": "celery", "app": APP, "tier": tier, "env": list(VARIABLES), **more}


class Bookshop:
    """The project as its programs have it. It is imported once in a process, and set up anew for each fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """Give the fleet's processes what the project needs, and import it here."""
        self.fleet = fleet
        self._diary = fleet.folder / "diary"
        self._diary.touch()
        variables = {
            "BOOKSHOP_REDIS": fleet.settings.services.redis_url,
            "BOOKSHOP_DIARY": str(self._diary),
            "BOOKSHOP_VIBEY": str(fleet.config),
        }
        fleet.environment.update(variables, PYTHONPATH=f"{fleet.environment['PYTHONPATH']}{os.pathsep}{PROJECT}")
        self.tasks: Any = _project(variables)
        self.tasks.DIARY = self._diary
        self.app: Any = self.tasks.app
        self.app.conf.vibey_config = str(fleet.config)

    def worker(self, name: str = "shop") -> Member:
        """Start the project's own worker and wait until it serves."""
        member = self.fleet.start(name, "worker", "-n", f"{name}@%h", "--concurrency", "2", app="bookshop.celery")
        until(lambda: f"{name}@" in member.text() and "ready." in member.text(), what="the shop's worker")
        return member

    def diary(self, *words: str) -> list[Line]:
        """The lines with these words, or all."""
        lines = [line.split(" ", 4) for line in self._diary.read_text(encoding="utf-8").splitlines()]
        found = [Line(word, engine, int(pid), int(at), what) for word, engine, pid, at, what in lines]
        return [line for line in found if not words or line.word in words]

    def jobs(self, task_id: str, columns: str = "state") -> list[Any]:
        """Columns of a call's jobs, oldest first."""
        rows = self.fleet.rows(f"select {columns} from jobs where task_id = '{task_id}' order by id")
        return [row[0] if len(row) == 1 else row for row in rows]

    def close(self) -> None:
        """Close what this process has open."""
        from vibey.routed.task import client_of

        client_of(self.app).close()
        self.app.backend.result_consumer.stop()
        self.app.backend.client.close()
        self.app.close()


def _project(variables: Mapping[str, str]) -> ModuleType:
    """The project's tasks; it reads the variables when it is imported, and never again."""
    if "bookshop.tasks" not in sys.modules:
        sys.path.insert(0, str(PROJECT))
        os.environ.update(variables)
        try:
            importlib.import_module("bookshop.tasks")
        finally:
            sys.path.remove(str(PROJECT))
            for name in variables:
                os.environ.pop(name)
    return sys.modules["bookshop.tasks"]


def most_at_once(lines: list[Line]) -> int:
    """How many were at work at once at most, by the first and last line of each process."""
    spans: dict[int, list[int]] = {}
    for line in lines:
        spans.setdefault(line.pid, []).append(line.at)
    edges = sorted([(min(at), 1) for at in spans.values()] + [(max(at), -1) for at in spans.values()])
    level, most = 0, 0
    for _, step in edges:
        level += step
        most = max(most, level)
    return most
