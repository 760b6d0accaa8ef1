"""Metrics on real rows: valid text, the numbers `vibey status` shows, and what jobs at the front wait for."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.scrape import Scrape
from vibey.domain.outcome import CapacityKind, Failure, FailureClass
from vibey.services import views
from vibey.services.audit import audit_in_turn
from vibey.services.exposition import text
from vibey.services.families import FAMILIES
from vibey.services.metrics import Stalls, snapshot
from vibey.services.route import route
from vibey.services.run import carry_out
from vibey.services.tick import tick
from vibey.store import metrics
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = "text/plain; version=0.0.4"


def _scraped(bench: Bench, stalls: Stalls | None = None) -> Scrape:
    return Scrape(text(snapshot(bench.installation, stalls))[0].decode())


def _hybrid(open_bench: Callable[..., Bench], **engines: Any) -> Bench:
    """One local engine with one slot, one paid with two, a hold of a minute, a cap of three."""
    rules = {"mode": "hybrid", "overflow_after_seconds": 60, "paid_daily_cap": 3, "slots": {"l": 1, "p": 2}}
    return open_bench(engine={"l": noop(), "p": noop("paid", account="vendor")}, engines=rules | engines)


def _age(bench: Bench, column: str, seconds: float, where: str = "true") -> None:
    query(bench.url, f"update jobs set {column} = {column} - interval '{seconds} seconds' where {where}")


@pytest.mark.parametrize(
    ("accept", "openmetrics"), [("application/openmetrics-text", True), (PLAIN, False), ("", False)]
)
def test_the_text_is_valid_and_every_family_keeps_the_rules(
    open_bench: Callable[..., Bench], accept: str, *, openmetrics: bool
) -> None:
    """Parsed by Prometheus's own library; names, units, help and labels as its guidelines ask, and as declared."""
    bench = _hybrid(open_bench)
    bench.enqueue(3)
    route(bench.installation, "main")
    assert audit_in_turn(bench.installation)
    body, content_type = text(snapshot(bench.installation), accept)
    assert content_type.startswith("application/openmetrics-text" if openmetrics else "text/plain")
    found = Scrape(body.decode(), openmetrics=openmetrics)
    declared = {each.name.removesuffix("_total"): each for each in FAMILIES}
    assert set(found.families) == set(declared)
    for name, family in found.families.items():
        assert re.fullmatch(r"vibey(_[a-z]+)+", name)
        assert not re.search(r"_(total|count|sum|bucket|ms|milliseconds|percent)$", name)
        assert family.type == declared[name].kind
        assert family.documentation.endswith(".")
        assert family.samples, name
        if openmetrics:
            assert family.unit == ("seconds" if name.endswith("_seconds") else "")
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(declared[name].labels), sample


def test_the_numbers_are_those_of_status(open_bench: Callable[..., Bench]) -> None:
    """Slots, picks, queue, holds and cap are equal to what `vibey status` tells of the same rows."""
    bench = _hybrid(open_bench)
    bench.enqueue(6)
    route(bench.installation, "main")
    _age(bench, "held_at", 61, "held_at is not null")
    route(bench.installation, "main")
    run, token, _ = bench.live()[0]
    carry_out(bench.installation, run, token)
    found, status = _scraped(bench), views.status(bench.installation)
    assert status["cap"]["used"] == 2
    assert found("vibey_cap_units", project="default") == status["cap"]["limit"]
    assert found("vibey_cap_remaining", project="default") == status["cap"]["remaining"]
    assert found.by("vibey_jobs", "state") == {state: status[state] for state in ("queued", "granted", "running")}
    assert found("vibey_jobs_held") == status["held"]
    for engine in status["engines"]:
        name = engine["name"]
        assert found("vibey_slots", engine=name) == engine["slots"]
        assert found("vibey_slots_in_use", engine=name) == engine["in_use"]
        assert found("vibey_engine_staffed", engine=name) == engine["worker"]
        picks = [
            value
            for (series, labels), value in found.values.items()
            if series == "vibey_engine_selected_total" and dict(labels)["engine"] == name
        ]
        assert sum(picks) == engine["selected_count"]
    assert found("vibey_engine_selected_total", engine="p", tier="paid", why="overflow") == 2


def test_picks_are_counted_by_what_they_rested_on(open_bench: Callable[..., Bench]) -> None:
    """Each series is the number of such runs; one of an engine taken out of the configuration stays where it was."""
    bench = _hybrid(open_bench, overflow_after_seconds=0, paid_fallback="allow")
    bench.enqueue(3)
    route(bench.installation, "main")
    for run, token, _ in bench.live():
        carry_out(bench.installation, run, token)
    query(bench.url, "update engines set enabled = false where name = 'l'")
    bench.enqueue(2)
    route(bench.installation, "main")
    query(bench.url, "update engines set configured = false where name = 'l'")
    runs = bench.rows("select engine, why, count(*)::int from runs group by 1, 2")
    found = {
        (dict(labels)["engine"], dict(labels)["why"]): value
        for (name, labels), value in _scraped(bench).values.items()
        if name == "vibey_engine_selected_total" and value
    }
    assert found == {(engine, why): count for engine, why, count in runs}
    assert {why for _, why, _ in runs} == {"assign", "overflow", "fallback"}


def test_waits_are_told_by_the_tier_waited_for(open_bench: Callable[..., Bench]) -> None:
    """A full local engine's queue waits for local; a job that only a paid one may serve, forbidden, for none."""
    engine = {"l": noop(), "p": noop("paid", capabilities=["web"]), "q": noop("paid", capabilities=["x"])}
    bench = open_bench(engine=engine, engines={"slots": {"l": 1, "p": 1, "q": 1}, "paid_fallback": "never"})
    assert _scraped(bench).by("vibey_oldest_wait_seconds", "tier") == {"local": 0, "paid": 0, "none": 0}
    bench.enqueue(3)
    bench.enqueue(1, capabilities=["web"])
    route(bench.installation, "main")
    _age(bench, "due_at", 100, "id = 2")
    _age(bench, "due_at", 50, "id = 3")
    _age(bench, "due_at", 700, "id = 4")
    found = _scraped(bench).by("vibey_oldest_wait_seconds", "tier")
    assert 100 <= found["local"] < 200
    assert found["paid"] == 0
    assert 700 <= found["none"] < 800


def test_a_job_of_lower_priority_is_not_overlooked(open_bench: Callable[..., Bench]) -> None:
    """Every group and every priority in it has a front; what has waited longest anywhere is told."""
    bench = open_bench(engine={"l": noop()}, engines={"slots": {"l": 1}})
    bench.enqueue(1)
    route(bench.installation, "main")
    for priority in (5, -3, 0, 9):
        bench.enqueue(2, priority=priority)
        bench.enqueue(2, priority=priority, effort="max")
    route(bench.installation, "main")
    first = bench.value("select min(id) from jobs where priority = -3 and effort = 4")
    _age(bench, "due_at", 300, f"id = {first}")
    assert 300 <= _scraped(bench)("vibey_oldest_wait_seconds", tier="local") < 400


def _visited(plan: dict[str, Any]) -> int:
    """How many rows of the jobs a plan really looked at."""
    own = plan["Actual Rows"] * plan["Actual Loops"] if plan.get("Relation Name") == "jobs" else 0
    return round(own) + sum(_visited(each) for each in plan.get("Plans", ()))


@pytest.mark.parametrize("ageing", [0, 60])
def test_the_fronts_cost_nothing_for_the_jobs_behind_them(open_bench: Callable[..., Bench], ageing: int) -> None:
    """Three groups of two priorities: a dozen rows are looked at, however many thousand jobs are queued."""
    bench = open_bench(engine={"l": noop()}, engines={"priority_age_seconds": ageing})
    for effort in ("low", "high", "max"):
        for priority in (0, 5):
            bench.enqueue(700, effort=effort, priority=priority)
    query(bench.url, "analyze jobs")
    explained = Statement("explain", "the plan of the fronts", f"explain (analyze, format json) {metrics.FRONTS.sql}")
    limit = metrics.FRONTS_LIMIT
    rows = bench.installation.database.statement(lambda connection: metrics.FRONTS.all(connection, limit=limit))
    assert len(rows) == (3 if ageing else 6)
    (plan,) = bench.installation.database.statement(lambda connection: explained.scalar(connection, limit=limit))
    assert _visited(plan["Plan"]) <= 60


def test_jobs_that_wait_for_a_backoff_are_not_waiting(open_bench: Callable[..., Bench]) -> None:
    """They are queued, and no slot is kept from them."""
    bench = open_bench(engine={"l": noop()})
    bench.enqueue(1)
    query(
        bench.url,
        "update jobs set not_before = clock_timestamp() + interval '1 hour', due_at = due_at - interval '1 h'",
    )
    found = _scraped(bench, Stalls({1: time.monotonic() - 3600}))
    assert found("vibey_jobs", state="queued") == 1
    assert found("vibey_oldest_wait_seconds", tier="local") == 0
    assert found("vibey_stalled_seconds") == 0


def test_a_hold_that_ought_to_be_over_is_overdue(open_bench: Callable[..., Bench]) -> None:
    """Below its threshold a hold is well; beyond it, while overflow could follow, it is told by how much."""
    bench = _hybrid(open_bench)
    bench.enqueue(3)
    route(bench.installation, "main")
    _age(bench, "held_at", 50, "held_at is not null")
    young = _scraped(bench)
    assert young("vibey_hold_overdue_seconds") == 0
    assert young("vibey_stalled_seconds") == 0
    _age(bench, "held_at", 40, "held_at is not null")
    old = _scraped(bench, Stalls({2: time.monotonic() - 60}))
    assert 30 <= old("vibey_hold_overdue_seconds") < 60
    assert old("vibey_stalled_seconds") >= 60
    route(bench.installation, "main")
    assert _scraped(bench)("vibey_hold_overdue_seconds") == 0


def test_a_job_that_stays_beside_a_free_slot_breaks_i10(open_bench: Callable[..., Bench]) -> None:
    """Seen once it may be about to go; seen again and again it is told, and for too long it is a violation."""
    bench = open_bench(engine={"l": noop()}, engines={"slots": {"l": 1}})
    (job, _) = bench.enqueue(2)
    stalls = Stalls()
    first = _scraped(bench, stalls)
    assert first("vibey_stalled_seconds") == 0
    assert first("vibey_invariant_violations", invariant="I10") == 0
    assert set(stalls.since) == {job}
    stalls.since[job] -= 60
    again = _scraped(bench, stalls)
    assert 60 <= again("vibey_stalled_seconds") < 120
    assert again("vibey_invariant_violations", invariant="I10") == 1
    route(bench.installation, "main")
    well = _scraped(bench, stalls)
    assert well("vibey_stalled_seconds") == 0
    assert well("vibey_invariant_violations", invariant="I10") == 0
    assert stalls.since == {}


@pytest.mark.parametrize("state", ["paused", "full", "unstaffed", "open"])
def test_a_job_that_may_not_go_is_not_stalled(open_bench: Callable[..., Bench], state: str) -> None:
    """A slot that the job may not use now is no free slot for it."""
    bench = open_bench(engine={"l": noop()}, engines={"slots": {"l": 1}})
    (job,) = bench.enqueue(1)
    if state == "full":
        route(bench.installation, "main")
        (job,) = bench.enqueue(1)
    elif state == "paused":
        query(bench.url, "update engines set paused = true")
    elif state == "unstaffed":
        query(bench.url, "delete from workers")
    else:
        query(bench.url, "update accounts set open_reason = 'login_failed'")
    assert _scraped(bench, Stalls({job: time.monotonic() - 600}))("vibey_stalled_seconds") == 0


def test_circuits_workers_and_ticks(open_bench: Callable[..., Bench]) -> None:
    """An open circuit is 2 and half open 1; a silent worker's age grows; a tick's age begins anew with each."""
    bench = _hybrid(open_bench)
    assert _scraped(bench).by("vibey_circuit_state", "account") == {"l": 0, "vendor": 0}
    query(
        bench.url,
        "update accounts set open_reason = 'engine_failures', probe_at = clock_timestamp() + interval '1 hour'",
    )
    assert _scraped(bench)("vibey_circuit_state", account="vendor") == 2
    query(bench.url, "update accounts set probe_at = clock_timestamp() - interval '1 second' where name = 'vendor'")
    assert _scraped(bench)("vibey_circuit_state", account="vendor") == 1
    query(bench.url, "update workers set seen_at = seen_at - interval '10 minutes'")
    query(bench.url, "update installation set last_tick_at = clock_timestamp() - interval '5 minutes'")
    late = _scraped(bench)
    assert 600 <= late("vibey_worker_silent_seconds", worker="worker@test") < 700
    assert late("vibey_engine_staffed", engine="l") == 0
    assert 300 <= late("vibey_tick_age_seconds") < 400
    tick(bench.installation)
    assert _scraped(bench)("vibey_tick_age_seconds") < 60


def test_audits_by_themselves_are_told(open_bench: Callable[..., Bench]) -> None:
    """Kept once an hour; every invariant has a number, and a breach is counted under its own."""
    bench = open_bench(engine={"l": noop()})
    assert "vibey_audit_timestamp_seconds" not in {name for name, _ in _scraped(bench).values}
    assert audit_in_turn(bench.installation)
    assert not audit_in_turn(bench.installation)
    sound = _scraped(bench).by("vibey_invariant_violations", "invariant")
    assert set(sound) == {f"I{number}" for number in range(1, 13)} - {"I11"}
    assert set(sound.values()) == {0}
    query(bench.url, "update engines set selected_count = 7")
    query(bench.url, "update audits set as_of = as_of - interval '61 minutes'")
    assert audit_in_turn(bench.installation)
    broken = _scraped(bench)
    assert broken("vibey_invariant_violations", invariant="I7") == 1
    assert broken("vibey_invariant_violations", invariant="I1") == 0
    assert broken("vibey_audit_timestamp_seconds") == pytest.approx(broken("vibey_as_of_timestamp_seconds"), abs=60)


def test_an_audit_that_takes_long_comes_seldom(open_bench: Callable[..., Bench]) -> None:
    """One that took five minutes is not repeated for a hundred times as long."""
    bench = open_bench(engine={"l": noop()})
    assert audit_in_turn(bench.installation)
    query(bench.url, "update audits set took_ms = 300000, as_of = as_of - interval '8 hours'")
    assert not audit_in_turn(bench.installation)
    query(bench.url, "update audits set as_of = as_of - interval '25 minutes'")
    assert audit_in_turn(bench.installation)


def test_failures_open_the_circuit_in_the_metrics_too(open_bench: Callable[..., Bench]) -> None:
    """Credits that ran out close an account's engines, and the gauge says so."""
    from vibey.services.run import _start
    from vibey.services.settle import Held, settle

    bench = open_bench(engine={"p": noop("paid", account="vendor")})
    bench.enqueue(1)
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    started = _start(bench.installation, run, token)
    settle(
        bench.installation, Held.of(started, token), Failure(FailureClass.CAPACITY, "none left", CapacityKind.CREDITS)
    )
    assert _scraped(bench)("vibey_circuit_state", account="vendor") == 2
