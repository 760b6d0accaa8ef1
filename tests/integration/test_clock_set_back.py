"""The database's clock is set back: what was stored before lies in the future, and holds nothing up for long.

Moving the stored instants that the protocol goes by ahead is the same as setting the clock back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.wait import until
from vibey.services import pulse
from vibey.services.audit import audit
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.tick import tick
from vibey.store import fleet

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE_SECONDS = 6
INSTANTS = {
    "runs": ("lease_expires_at", "sent_at"),
    "workers": ("seen_at", "canary_at", "started_at"),
    "installation": ("last_tick_at", "judge_after", "last_clean_at"),
}


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """Two engines, short leases, and a tick that has been."""
    bench = open_bench(engine={"l": noop(), "m": noop()}, engines={"lease_seconds": LEASE_SECONDS})
    tick(bench.installation)
    return bench


def set_clock_back(bench: Bench, hours: int = 2) -> None:
    """Let what is stored lie as far in the future as after such a step."""
    for table, columns in INSTANTS.items():
        moved = ", ".join(f"{column} = {column} + interval '{hours} hours'" for column in columns)
        query(bench.url, f"update {table} set {moved}")


def seconds_until(bench: Bench, instant: str) -> float:
    """Seconds from now until an instant that a query yields."""
    return float(bench.value(f"select extract(epoch from ({instant}) - clock_timestamp())::float"))


def test_a_run_whose_holder_died_is_ended(bench: Bench) -> None:
    """Within two lease lengths and a tick, however far the clock went."""
    bench.enqueue(1)
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    assert _start(bench.installation, run, token) is not None
    set_clock_back(bench)
    tick(bench.installation)
    assert seconds_until(bench, f"select lease_expires_at from runs where id = {run}") <= LEASE_SECONDS
    assert seconds_until(bench, "select judge_after from installation") <= LEASE_SECONDS

    def is_lost() -> bool:
        tick(bench.installation)
        return bool(bench.value(f"select state from runs where id = {run}") == "lost")

    until(is_lost, what="the run to be ended")
    assert audit(bench.installation).violations == ()


def test_a_grant_that_nobody_took_is_withdrawn(bench: Bench) -> None:
    """Its message is lost, and it is not sent again before its lease is over."""
    bench.enqueue(1)
    route(bench.installation, "main")
    set_clock_back(bench)
    tick(bench.installation)
    first = bench.live()[0][0]
    until(
        lambda: bool(
            tick(bench.installation) and bench.value(f"select state from runs where id = {first}") != "granted"
        ),
        what="the grant to be withdrawn",
    )
    assert bench.value(f"select state from runs where id = {first}") == "withdrawn"


def test_leases_are_judged_again_although_that_was_postponed(bench: Bench) -> None:
    """The instant from which leases are judged is no further ahead than a lease, also if no tick saw the step."""
    query(bench.url, "update installation set judge_after = clock_timestamp() + interval '2 hours'")
    tick(bench.installation)
    assert seconds_until(bench, "select judge_after from installation") <= LEASE_SECONDS


def test_a_worker_whose_report_lies_ahead_serves_nothing_until_its_next_one(bench: Bench) -> None:
    """It may have died before the step; one that lives reports again within seconds."""
    presence_ms = bench.installation.timing.presence_ms

    def served() -> set[bool]:
        rows = bench.installation.database.statement(lambda c: fleet.SERVED.all(c, presence_ms=presence_ms))
        return {row.served for row in rows}

    assert served() == {True}
    set_clock_back(bench)
    assert served() == {False}
    bench.enqueue(1)
    assert route(bench.installation, "main") == 0
    pulse.appear(bench.installation, pulse.Worker("worker@test", ("l", "m"), 64))
    assert served() == {True}
    assert route(bench.installation, "main") == 1


def test_nothing_is_shortened_while_the_clock_goes_on(bench: Bench) -> None:
    """A lease that was just renewed keeps its whole length."""
    bench.enqueue(1)
    route(bench.installation, "main")
    before = bench.rows("select id, lease_expires_at from runs")
    tick(bench.installation)
    assert bench.rows("select id, lease_expires_at from runs") == before
