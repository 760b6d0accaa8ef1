"""Hybrid dispatch on a real database: holds, overflow, the exact cap, fallback rules, and their records."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control, notes
from vibey.services.route import route, run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import reap, tick
from vibey.store import cap

if TYPE_CHECKING:
    from collections.abc import Callable


def _fleet(open_bench: Callable[..., Bench], **engines: Any) -> Bench:
    """One local engine with one slot, one paid with five, hybrid, ten seconds, a cap of three."""
    rules = {"mode": "hybrid", "overflow_after_seconds": 10, "paid_daily_cap": 3, "slots": {"l": 1, "p": 5}}
    return open_bench(engine={"l": noop(), "p": noop("paid")}, engines=rules | engines)


def _events(bench: Bench, kind: str) -> list[dict[str, Any]]:
    return [data for (data,) in bench.rows(f"select data from ledger where kind = '{kind}' order by id")]


def _hold_for(bench: Bench, seconds: float) -> None:
    query(bench.url, f"update jobs set held_at = held_at - interval '{seconds} seconds' where held_at is not null")


def _engines(bench: Bench) -> Counter[str]:
    return Counter(engine for _, _, engine in bench.live())


def _start_on(bench: Bench, engine: str) -> Held:
    run, token, _ = next(each for each in bench.live() if each[2] == engine)
    started = _start(bench.installation, run, token)
    assert started is not None
    return Held.of(started, token)


def test_a_full_local_engine_holds_then_overflows_up_to_the_cap(open_bench: Callable[..., Bench]) -> None:
    """One job goes local, the others are held; after the threshold three overflow and the cap stops the rest."""
    bench = _fleet(open_bench)
    bench.enqueue(6)
    route(bench.installation, "main")
    assert _engines(bench) == {"l": 1}
    assert len(_events(bench, "EngineSlotWaitStarted")) == 5
    assert bench.rows("select reason from group_states") == [("held",)]
    _hold_for(bench, 9)
    assert route(bench.installation, "main") == 0
    _hold_for(bench, 1.1)
    assert route(bench.installation, "main") == 3
    assert _engines(bench) == {"l": 1, "p": 3}
    assert bench.rows("select reason from group_states") == [("slots_full",)]
    assert len(_events(bench, "EngineSlotWaitStarted")) == 5


def test_an_overflow_is_recorded_with_its_grounds(open_bench: Callable[..., Bench]) -> None:
    """Each unit's event names engine, attempt, slots in use, wait, threshold, cap, count, rest, mode and day."""
    bench = _fleet(open_bench, overflow_after_seconds=0)
    bench.enqueue(5)
    route(bench.installation, "main")
    events = _events(bench, "EngineOverflowSelected")
    assert [event["cap_remaining_after"] for event in events] == [2, 1, 0]
    assert [event["paid_today"] for event in events] == [0, 1, 2]
    first = events[0]
    assert first["local_slots"] == [{"engine": "l", "in_use": 1, "slots": 1}]
    assert (first["engine"], first["attempt"], first["paid_daily_cap"]) == ("p", 1, 3)
    assert (first["mode"], first["mode_source"], first["overflow_after_seconds"]) == ("hybrid", "declared", 0)
    days = bench.rows("select distinct utc_day::text, data ->> 'utc_day' from ledger where utc_day is not null")
    assert days == [(first["utc_day"], first["utc_day"])]
    assert bench.value("select count(*) from runs where counted and why = 'overflow'") == 3


def test_a_hold_moves_no_credit_and_burns_no_attempt(open_bench: Callable[..., Bench]) -> None:
    """Looking at held jobs again changes neither rotation nor attempts nor their first hold."""
    bench = _fleet(open_bench)
    bench.enqueue(3)
    route(bench.installation, "main")
    before = bench.rows("select * from credits order by 1, 2"), bench.rows("select id, held_at, attempt from jobs")
    for _ in range(3):
        tick(bench.installation)
    after = bench.rows("select * from credits order by 1, 2"), bench.rows("select id, held_at, attempt from jobs")
    assert after == before


def test_a_freed_local_slot_goes_to_the_first_held_job(open_bench: Callable[..., Bench]) -> None:
    """The oldest held job gets the slot at once, though none has waited for the threshold."""
    bench = _fleet(open_bench)
    first, second, _ = bench.enqueue(3)
    route(bench.installation, "main")
    settle(bench.installation, _start_on(bench, "l"), Success())
    route(bench.installation, "main")
    live = bench.rows("select job_id, engine, why from runs where ended_at is null")
    assert first < second
    assert live == [(second, "l", "assign")]


def test_no_hold_for_what_cannot_follow(open_bench: Callable[..., Bench]) -> None:
    """With a cap of 0, or every paid slot taken, jobs wait for local and nothing is held."""
    bench = _fleet(open_bench, paid_daily_cap=0)
    bench.enqueue(2)
    route(bench.installation, "main")
    assert _events(bench, "EngineSlotWaitStarted") == []
    assert bench.rows("select reason from group_states") == [("slots_full",)]


def test_a_refusal_without_work_gives_the_unit_back_once(open_bench: Callable[..., Bench]) -> None:
    """Refused for capacity with nothing spent: released. With tokens spent: kept."""
    bench = _fleet(open_bench, overflow_after_seconds=0, paid_daily_cap=2, retry_backoff_seconds=0)
    bench.enqueue(3)
    route(bench.installation, "main")
    refused = Failure(FailureClass.CAPACITY, "busy", CapacityKind.BUSY)
    settle(bench.installation, _start_on(bench, "p"), refused)
    assert len(_events(bench, "EngineOverflowReleased")) == 1
    spent = Failure(FailureClass.CAPACITY, "window", CapacityKind.WINDOW, tokens_in=5)
    settle(bench.installation, _start_on(bench, "p"), spent)
    assert len(_events(bench, "EngineOverflowReleased")) == 1
    with bench.installation.database.autocommit() as connection:
        assert cap.used(connection, cap.today(connection)) == {"default": 1}


def test_a_withdrawn_overflow_gives_its_unit_back(open_bench: Callable[..., Bench]) -> None:
    """A paid grant nobody started is undone, its unit included; cancelling one before its start does the same."""
    bench = _fleet(open_bench, overflow_after_seconds=0)
    jobs = bench.enqueue(3)
    route(bench.installation, "main")
    control.cancel(bench.installation, jobs[2])
    assert len(_events(bench, "EngineOverflowReleased")) == 1
    bench.let_time_pass(3600)
    reap(bench.installation)
    assert len(_events(bench, "EngineOverflowReleased")) == 2


def test_a_lost_paid_run_keeps_its_unit_and_says_so(open_bench: Callable[..., Bench]) -> None:
    """Work that may have been done stays counted; without paid_rerun_after_loss the job stops there."""
    bench = _fleet(open_bench, overflow_after_seconds=0, lease_seconds=3, paid_rerun_after_loss=False)
    bench.enqueue(2)
    route(bench.installation, "main")
    held = _start_on(bench, "p")
    bench.let_time_pass(60)
    reap(bench.installation)
    assert _events(bench, "EngineOverflowReleased") == []
    failed = _events(bench, "JobFailed")
    assert [(event["run"], event["cap_unit"]) for event in failed] == [("lost", "kept")]
    assert bench.rows(f"select state from jobs where id = {held.job.job_id}") == [("failed",)]


@pytest.mark.parametrize(
    ("rule", "granted", "reason", "units"),
    [("allow", 4, None, 0), ("count", 3, "cap_spent", 3), ("never", 0, "fallback_not_allowed", 0)],
)
@pytest.mark.parametrize("mode", ["singleton", "hybrid"])
def test_a_fallback_obeys_its_rule_in_either_mode(
    open_bench: Callable[..., Bench], mode: str, rule: str, granted: int, reason: str | None, units: int
) -> None:
    """With the local engine gone: allowed and recorded, counted up to the cap, or not at all."""
    bench = _fleet(open_bench, mode=mode, paid_fallback=rule)
    control.pause_engine(bench.installation, "l", paused=True)
    bench.enqueue(4)
    assert route(bench.installation, "main") == granted
    assert len(_events(bench, "PaidFallbackSelected")) == granted
    assert bench.rows("select reason from group_states") == ([] if reason is None else [(reason,)])
    assert bench.value("select count(*) from ledger where utc_day is not null") == units


def test_paid_without_any_local_engine_is_a_plain_assignment(open_bench: Callable[..., Bench]) -> None:
    """Where no local engine is configured there is nothing to fall back from, and nothing is counted."""
    bench = open_bench(engine={"p": noop("paid")}, engines={"mode": "hybrid", "paid_daily_cap": 0})
    bench.enqueue(1)
    route(bench.installation, "main")
    assert bench.rows("select why, counted from runs") == [("assign", False)]


def test_busy_restarting_and_probing_local_engines_are_full_not_gone(open_bench: Callable[..., Bench]) -> None:
    """None of these turns into a fallback: the job is held, or waits."""
    bench = _fleet(open_bench)
    for trouble in (
        "update engines set busy_until = clock_timestamp() + interval '1 minute' where name = 'l'",
        "update workers set engines = '{p}'",
    ):
        bench.rows(trouble)
        bench.enqueue(1)
        route(bench.installation, "main")
        assert bench.live() == []
        bench.rows("update engines set busy_until = null")
        bench.staff()
    assert _events(bench, "PaidFallbackSelected") == []


def test_projects_have_caps_of_their_own(open_bench: Callable[..., Bench]) -> None:
    """One project's spent cap leaves another's untouched, in one and the same pass."""
    bench = _fleet(open_bench, overflow_after_seconds=0, slots={"l": 1, "p": 50})
    control.new_project(bench.installation, "other")
    bench.enqueue(6)
    bench.enqueue(6, project="other")
    route(bench.installation, "main")
    with bench.installation.database.autocommit() as connection:
        assert cap.used(connection, cap.today(connection)) == {"default": 3, "other": 3}


def test_an_installation_has_one_cap_for_all(open_bench: Callable[..., Bench]) -> None:
    """With scope installation the cap is shared, whoever comes first in the queue."""
    bench = _fleet(open_bench, overflow_after_seconds=0, paid_daily_cap_scope="installation", slots={"l": 1, "p": 50})
    control.new_project(bench.installation, "other")
    bench.enqueue(3)
    bench.enqueue(6, project="other")
    route(bench.installation, "main")
    with bench.installation.database.autocommit() as connection:
        assert cap.used(connection, cap.today(connection)) == {"default": 2, "other": 1}


def test_units_of_yesterday_do_not_count_today(open_bench: Callable[..., Bench]) -> None:
    """The cap is of one UTC day: what was taken before midnight is not in the way after it."""
    bench = _fleet(open_bench, overflow_after_seconds=0, slots={"l": 1, "p": 50})
    bench.enqueue(8)
    route(bench.installation, "main")
    assert _engines(bench)["p"] == 3
    query(bench.url, "alter table ledger disable trigger ledger_append_only")
    query(bench.url, "update ledger set utc_day = utc_day - 1 where utc_day is not null")
    route(bench.installation, "main")
    assert _engines(bench)["p"] == 6


def test_a_hundred_thousand_held_jobs_are_held_set_wise(open_bench: Callable[..., Bench]) -> None:
    """First holds of a whole group take few statements, and looking at them again costs the same as at one."""
    bench = _fleet(open_bench)
    bench.enqueue(20_001)
    while bench.value("select count(*) from ledger where kind = 'EngineSlotWaitStarted'") < 20_000:
        assert run_pass(bench.installation, "main") is not None
        notes.note_rest(bench.installation, "main")
    counted = "select xact_commit from pg_stat_database where datname = current_database()"
    assert bench.value("select count(*) from jobs where held_at is null and state = 'queued'") == 0
    before = bench.value(counted)
    tick(bench.installation)
    assert bench.value(counted) - before < 20
