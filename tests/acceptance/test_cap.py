"""The cap as people read it, on real workers: the README's file, and the one that `vibey init` writes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.cli import Cli
from tests.support.wait import until
from vibey.services import starter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fleet import Fleet

JOBS = 12
README = Path(__file__).parents[2] / "README.md"


def _work(fleet: Fleet, runs: int, sound: Callable[[Fleet], None]) -> dict[str, Any]:
    """Twelve jobs, of which so many may run; what `vibey status` says once the others wait for midnight."""
    fleet.muster()
    fleet.enqueue(JOBS)
    counts = "select count(*) filter (where state = 'succeeded'), count(*) filter (where state = 'queued') from jobs"
    until(lambda: fleet.rows(counts) == [(runs, JOBS - runs)], what="as many jobs to run as the cap has")
    until(lambda: fleet.rows("select reason from group_states") == [("cap_spent",)], what="the others to wait for it")
    assert fleet.value("select count(*) from runs") == runs
    sound(fleet)
    status: dict[str, Any] = Cli(fleet.config)("status", "--json").json
    return status


@pytest.mark.timeout(300)
def test_five_paid_jobs_a_day_are_five(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """The README's file on a machine without its local program: five of twelve jobs run."""
    tables = tomllib.loads(README.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0])
    cap = tables["engines"]["paid_daily_cap"]
    engine = {"local": tables["engine"]["local"], "cloud": {"tier": "paid"}}
    fleet = open_fleet(engine=engine, engines=tables["engines"])
    status = _work(fleet, cap, sound)
    assert (status["cap"]["used"], status["cap"]["limit"], status["paid_outside_cap_today"]) == (cap, 5, 0)
    assert fleet.rows("select distinct why, counted from runs") == [("fallback", True)]


@pytest.mark.timeout(300)
def test_what_init_writes_holds_for_paid_engines_alone(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """A fleet of coding clients has no local engine; the file's cap of ten stops it all the same."""
    engines = tomllib.loads(starter.compose([]))["engines"]
    fleet = open_fleet(engine={"client": {"tier": "paid"}}, engines=engines)
    status = _work(fleet, engines["paid_daily_cap"], sound)
    assert (status["cap"]["used"], status["cap"]["remaining"], status["paid_outside_cap_today"]) == (10, 0, 0)
    assert fleet.rows("select distinct why, counted from runs") == [("assign", True)]
