"""Fixtures of the acceptance tests: fleets of real processes, killed and judged when the test is over."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checker import violations
from tests.support.fleet import Fleet
from vibey import embedded
from vibey.services.audit import audit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def open_fleet(
    database_url: str, redis_url: str, tmp_path: Path, unique_name: Callable[[str], str]
) -> Iterator[Callable[..., Fleet]]:
    """A function that makes this test's fleet: `open_fleet(engine={...}, engines={...})`; it starts no process."""
    opened: list[Fleet] = []

    def opener(redis: str = redis_url, **tables: Any) -> Fleet:
        servers = embedded.Services(database_url, redis)
        opened.append(Fleet(tmp_path, servers, f"{unique_name('test')}:", tables))
        return opened[-1]

    yield opener
    for fleet in opened:
        fleet.close()


@pytest.fixture
def sound() -> Callable[[Fleet], None]:
    """A function that ends a scenario: nothing of any run is left, and every invariant held.

    Judged twice: by the tests' own checker, which also knows what the jobs' programs wrote, and by `vibey audit`.
    """

    def check(fleet: Fleet) -> None:
        fleet.until_nothing_runs()
        assert violations(fleet.url, fleet.labour_log) == []
        assert audit(fleet.installation).violations == ()

    return check


@pytest.fixture
def ctrl_c_heeded() -> Iterator[None]:
    """Let what is started here heed Ctrl-C, even where these tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
