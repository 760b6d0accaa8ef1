"""Many faults over many jobs, repeatable by their seed: `make chaos SEED=7`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.fleet import Fleet
from tests.support.havoc import Havoc
from vibey import embedded
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FAULTS = int(os.environ.get("VIBEY_CHAOS_FAULTS", "100"))
SEED = int(os.environ.get("VIBEY_CHAOS_SEED") or "1")


@pytest.fixture
def havoc(data_dir: Path, tmp_path: Path) -> Iterator[Havoc]:
    """A busy fleet on servers of its own."""
    migrate.upgrade(embedded.ensure(data_dir).database_url)
    engines = {"slots": {"near": 3, "side": 1, "far": 2}, "lease_seconds": 4, "run_timeout_seconds": 60}
    engine = {"near": {"weight": 3}, "side": {}, "far": {"tier": "paid"}}
    fleet = Fleet(tmp_path, None, "test:", {"engine": engine, "engines": engines})
    yield Havoc(fleet, data_dir, SEED)
    fleet.close()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_faults_without_end_break_no_promise(havoc: Havoc, sound: Callable[[Fleet], None]) -> None:
    """However often whatever is struck: no job is lost or run twice at once, no slot exceeded, nothing stuck."""
    havoc.fleet.until_workers(4)
    havoc.feed()
    for _ in range(FAULTS):
        havoc.strike()
    havoc.complete()
    states = havoc.fleet.until_ended(seconds=300)
    assert sum(states.values()) == havoc.enqueued
    assert states == {"succeeded": havoc.enqueued}, havoc.struck
    sound(havoc.fleet)
