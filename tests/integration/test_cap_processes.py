"""The cap under real processes: eight routers at once without their lock, and a router killed before each statement."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.routers import Router
from vibey.services.route import run_pass

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROUTERS = 8
FEW, MANY = 20, 200
CAP = 3


OVERFLOW = {"mode": "hybrid", "overflow_after_seconds": 0, "slots": {"l": 1, "p": 50}}
COVERED = {"paid_daily_cap_covers": "all", "slots": {"p": 50}}
RULES: dict[str, dict[str, Any]] = {
    "overflow": OVERFLOW,
    "all": COVERED,
    "all-shared": COVERED | {"paid_daily_cap_scope": "installation"},
}


@pytest.fixture(params=RULES)
def tables(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One paid engine with plenty of slots and a cap of three: overflow at once, or no local engine at all."""
    local = {"l": noop()} if request.param == "overflow" else {}
    return {"engine": {**local, "p": noop("paid")}, "engines": {"paid_daily_cap": CAP, **RULES[request.param]}}


def _units(bench: Bench) -> tuple[int, int, int]:
    """Units of today by the ledger, the runs they belong to, and the runs that say they took one."""
    counted = "select count(*), count(distinct run_id) from ledger where utc_day is not null"
    (units, runs) = bench.rows(counted)[0]
    return units, runs, bench.value("select count(*) from runs where counted and state <> 'withdrawn'")


def _new_day(bench: Bench) -> None:
    """Make all units yesterday's and clear the table of what ran and waited."""
    query(
        bench.url,
        "begin; alter table ledger disable trigger ledger_append_only; delete from ledger where utc_day is not null; "
        "alter table ledger enable trigger ledger_append_only; "
        "update jobs set state = 'cancelled', ended_at = clock_timestamp(), run_id = null where ended_at is null; "
        "update runs set state = 'withdrawn', ended_at = clock_timestamp() where ended_at is null; commit",
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("turns", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_eight_processes_take_exactly_the_cap_each_time(
    open_bench: Callable[..., Bench], tables: dict[str, Any], tmp_path: Path, turns: int
) -> None:
    """Whoever comes first, five jobs and a cap of three make three units, each of a run of its own."""
    bench = open_bench(**tables)
    with ExitStack() as closing:
        routers = [Router(bench.tables, tmp_path) for _ in range(ROUTERS)]
        for router in routers:
            closing.callback(router.close)
        for turn in range(turns):
            bench.staff("p")
            bench.enqueue(5)
            for router in routers:
                router.ask()
            granted = [router.answer() or 0 for router in routers]
            assert (sum(granted), _units(bench)) == (CAP, (CAP, CAP, CAP)), turn
            _new_day(bench)


@pytest.mark.timeout(300)
def test_a_router_killed_before_any_statement_leaves_all_or_nothing(
    open_bench: Callable[..., Bench], tables: dict[str, Any], tmp_path: Path
) -> None:
    """Kill -9 before the first statement of a pass, the second, and so on: units and runs agree, the cap holds."""
    bench = open_bench(**tables)
    survived = False
    for number in range(1, 60):
        bench.staff("p")
        bench.enqueue(5)
        router = Router(bench.tables, tmp_path, dies_at=number)
        router.ask()
        survived = router.answer() is not None
        router.close()
        units, runs, counted = _units(bench)
        assert units == runs == counted
        assert units in {0, CAP}, number
        run_pass(bench.installation, "main")
        assert _units(bench) == (CAP, CAP, CAP), number
        _new_day(bench)
        if survived:
            break
    assert survived, "the router never got to the end of its pass"
