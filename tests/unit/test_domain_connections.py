"""How many connections a fleet needs, and how many a database allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibey.domain.connections import COMMANDS, LEAST_SERVER, Allowance, of_fleet, of_server, of_worker
from vibey.services.programs import CONTROL_PROCESSES, SPARE_PROCESSES


def test_every_process_and_every_worker_counts() -> None:
    """One for each process of a pool, and what the main process of each worker needs; the rest is there once."""
    assert of_worker(101) == 103
    alone = of_fleet([])
    assert alone > COMMANDS
    assert of_fleet([2, 101]) == alone + of_worker(2) + of_worker(101)
    assert of_fleet([2, 51, 51]) > of_fleet([2, 102])


def test_the_page_has_the_sum() -> None:
    """For one machine, and for each further one."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "limits-of-the-machine.md").read_text(encoding="utf-8")
    beside = of_fleet([CONTROL_PROCESSES, 5 + SPARE_PROCESSES]) - 5
    assert f"with *s* slots may need *s* + {beside}:" in page
    build, control = of_worker(5 + SPARE_PROCESSES) - 5, of_worker(CONTROL_PROCESSES)
    assert f"adds its slots and {build}, and {control} where it has a control worker" in page


@pytest.mark.parametrize("slots", [1, 50, 150, 200, 1000])
def test_an_embedded_server_always_has_enough(slots: int) -> None:
    """Also after what Postgres keeps for superusers."""
    workers = (2, slots + 1)
    assert of_server(workers) >= max(LEAST_SERVER, of_fleet(workers) + 3)


@pytest.mark.parametrize(
    ("server", "role", "database", "allowed", "limit"),
    [
        (97, -1, -1, 97, "max_connections"),
        (97, 40, -1, 40, "the connection limit of the role"),
        (97, 40, 30, 30, "the connection limit of the database"),
        (97, 0, -1, 0, "the connection limit of the role"),
    ],
)
def test_the_least_limit_counts_and_is_named(server: int, role: int, database: int, allowed: int, limit: str) -> None:
    """-1 is Postgres's word for no limit."""
    found = Allowance.of(server, role, database, 5)
    assert (found.allowed, found.limit, found.connected) == (allowed, limit, 5)
