"""A cap that covers every paid run, on a real database: units, waits, returns, midnight, and what is told of it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control, views
from vibey.services.audit import audit
from vibey.services.display import outside_cap
from vibey.services.doctor import Check, check
from vibey.services.explain import explain
from vibey.services.measure import mode
from vibey.services.replay import replay
from vibey.services.route import route
from vibey.services.run import _start, carry_out
from vibey.services.settle import Held, settle
from vibey.services.tick import reap
from vibey.settings import ProjectPolicy
from vibey.store import projects

if TYPE_CHECKING:
    from collections.abc import Callable

CAP = 5
ALL = {"paid_daily_cap": CAP, "paid_daily_cap_covers": "all", "retry_backoff_seconds": 0}
SLOTS = {"p": 50}


def _paid_only(open_bench: Callable[..., Bench], **engines: Any) -> Bench:
    """Paid engines and no others, a cap of five that covers all."""
    return open_bench(engine={"p": noop("paid")}, engines=ALL | {"slots": SLOTS} | engines)


def _status(bench: Bench) -> dict[str, Any]:
    return views.status(bench.installation, environ={})


def _is_sound(bench: Bench) -> None:
    assert audit(bench.installation).violations == ()
    assert replay(bench.installation).differing == ()


def _cap_check(bench: Bench) -> Check:
    return next(each for each in check(bench.installation) if each.name == "cap")


def _next_started(bench: Bench) -> Held:
    run, token, _ = bench.live()[0]
    started = _start(bench.installation, run, token)
    assert started is not None
    return Held.of(started, token)


@pytest.mark.parametrize("setting", ["singleton", "hybrid", "auto"])
def test_a_pool_without_local_engines_stops_at_the_cap(open_bench: Callable[..., Bench], setting: str) -> None:
    """Of twelve jobs five run, each with a unit of its own, and seven wait until midnight; every view says so."""
    bench = _paid_only(open_bench, mode=setting)
    jobs = bench.enqueue(12)
    assert route(bench.installation, "main") == CAP
    assert bench.rows("select why, counted, count(*) from runs group by 1, 2") == [("assign", True, CAP)]
    events = bench.rows("select utc_day::text, data from ledger where kind = 'PaidAssignmentSelected' order by id")
    assert [data["cap_remaining_after"] for _, data in events] == [4, 3, 2, 1, 0]
    assert all(data["utc_day"] == day and data["local_slots"] == [] for day, data in events)
    assert events[0][1]["engine"] == "p"
    assert bench.rows("select reason from group_states") == [("cap_spent",)]
    status = _status(bench)
    assert (status["cap"]["used"], status["cap"]["covers"], status["queued"]) == (CAP, "all", 7)
    assert (status["paid_outside_cap_today"], status["paid_outside_cap"]) == (0, [])
    waiting = explain(bench.installation, jobs[-1])["waiting"]
    assert (waiting["outcome"], waiting["why"]) == ("wait", "cap_spent")
    assert (waiting["earliest"]["by"], waiting["earliest"]["at"][11:]) == ("midnight", "00:00:00.000Z")
    assert waiting["earliest"]["words"] == "when the day's paid cap begins anew, on p"
    assert "paid cap of 5" in views.job(bench.installation, jobs[-1])["reason"]
    because = explain(bench.installation, jobs[4])["runs"][0]["grounds"]["because"]
    assert (
        because == "no local engine is in its pool, and a paid one had a free slot; this took the day's last paid unit"
    )
    _is_sound(bench)


def test_every_retry_takes_a_unit_of_its_own(open_bench: Callable[..., Bench]) -> None:
    """A run that failed at its work keeps its unit, and the next attempt needs another."""
    bench = _paid_only(open_bench, max_attempts=7)
    bench.enqueue(1)
    for attempt in range(1, CAP + 1):
        assert route(bench.installation, "main") == 1
        assert bench.value("select count(*) from ledger where utc_day is not null") == attempt
        settle(bench.installation, _next_started(bench), Failure(FailureClass.WORK, "exit 1"))
        query(bench.url, "update jobs set not_before = null")
    assert route(bench.installation, "main") == 0
    assert bench.rows("select reason from group_states") == [("cap_spent",)]
    _is_sound(bench)


def test_runs_that_did_no_work_give_their_units_back(open_bench: Callable[..., Bench]) -> None:
    """Withdrawn, cancelled before their start, or refused before anything was spent; one that spent keeps its unit."""
    bench = _paid_only(open_bench)
    jobs = bench.enqueue(5)
    assert route(bench.installation, "main") == CAP
    settle(bench.installation, _next_started(bench), Failure(FailureClass.CAPACITY, "busy", CapacityKind.BUSY))
    spent = Failure(FailureClass.CAPACITY, "window", CapacityKind.WINDOW, tokens_in=5)
    settle(bench.installation, _next_started(bench), spent)
    control.cancel(bench.installation, jobs[4])
    returned = "select count(*) from ledger where kind = 'EngineOverflowReleased'"
    assert bench.value(returned) == 2
    bench.let_time_pass(3600)
    reap(bench.installation)
    assert bench.value(returned) == 4
    assert _status(bench)["cap"]["used"] == 1
    _is_sound(bench)


@pytest.mark.parametrize("scope", ["project", "installation"])
def test_overflow_fallback_and_assignment_draw_on_one_cap(open_bench: Callable[..., Bench], scope: str) -> None:
    """Jobs of a mixed pool and of one without local engines, before and after the local engine is gone."""
    bench = open_bench(
        engine={"l": noop(), "p": noop("paid"), "q": noop("paid")},
        pool={"main": {"members": ["l", "p"]}, "bought": {"members": ["q"]}},
        engines=ALL
        | {
            "mode": "hybrid",
            "overflow_after_seconds": 0,
            "paid_daily_cap_scope": scope,
            "paid_fallback": "allow",
            "slots": {"l": 1, "p": 2, "q": 2},
        },
    )
    bench.enqueue(3)
    bench.enqueue(2, pool="bought")
    assert route(bench.installation, "main") == 3
    assert route(bench.installation, "bought") == 2
    control.pause_engine(bench.installation, "l", paused=True)
    for run, token, _ in bench.live():
        started = _start(bench.installation, run, token)
        assert started is not None
        settle(bench.installation, Held.of(started, token), Success())
    bench.enqueue(3)
    route(bench.installation, "main")
    whys = bench.rows("select r.why, count(*) from runs r where counted group by 1 order by 1")
    assert whys == [("assign", 2), ("fallback", 1), ("overflow", 2)]
    assert bench.value("select count(*) from runs r join engines e on e.name = r.engine where e.tier = 'paid'") == CAP
    assert bench.rows("select reason from group_states where pool = 'main'") == [("cap_spent",)]
    assert _status(bench)["paid_outside_cap"] == []
    _is_sound(bench)


def test_a_new_day_has_a_new_cap(open_bench: Callable[..., Bench]) -> None:
    """What was taken before midnight is not in the way after it."""
    bench = _paid_only(open_bench)
    bench.enqueue(12)
    assert route(bench.installation, "main") == CAP
    query(bench.url, "alter table ledger disable trigger ledger_append_only")
    query(bench.url, "update ledger set utc_day = utc_day - 1 where utc_day is not null")
    assert route(bench.installation, "main") == CAP


def test_a_cap_of_exceptions_says_what_runs_outside_it(open_bench: Callable[..., Bench]) -> None:
    """Without local engines all twelve run; status counts them, but for what did no work, and doctor warns."""
    bench = _paid_only(open_bench, paid_daily_cap_covers="exceptions")
    reason = 'no local engine is in pool main, and paid_daily_cap_covers is "exceptions"'
    uncovered = f"the cap does not cover all paid runs of project default: {reason}"
    assert _cap_check(bench).detail == uncovered
    assert outside_cap(_status(bench)) == f"the cap does not cover all paid runs: {reason}"
    jobs = bench.enqueue(13)
    assert route(bench.installation, "main") == 13
    control.cancel(bench.installation, jobs[12])
    settle(bench.installation, _next_started(bench), Failure(FailureClass.CAPACITY, "busy", CapacityKind.BUSY))
    status = _status(bench)
    assert (status["cap"]["used"], status["paid_outside_cap_today"]) == (0, 11)
    assert status["paid_outside_cap"] == [reason]
    assert bench.value("select count(*) from ledger where kind = 'PaidAssignmentSelected'") == 0
    assert _cap_check(bench).detail == f"{uncovered}; 11 paid runs of today took no unit of it"
    assert outside_cap(status) == f"11 paid runs of today took no unit of the cap: {reason}"
    assert mode(bench.installation, "default", {})["paid_outside_cap_today"] == 11
    _is_sound(bench)


def test_a_project_made_before_the_key_keeps_its_rule(open_bench: Callable[..., Bench]) -> None:
    """A stored policy without the newer keys allows fallbacks and covers exceptions, whatever the file says now."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines=ALL | {"slots": SLOTS})
    older = "policy - 'paid_fallback' - 'paid_daily_cap_covers'"
    query(bench.url, f"update projects set policy = {older}")
    control.pause_engine(bench.installation, "l", paused=True)
    bench.enqueue(12)
    assert route(bench.installation, "main") == 12
    assert bench.value("select count(*) from ledger where utc_day is not null") == 0
    status = _status(bench)
    assert status["paid_outside_cap_today"] == 12
    assert status["paid_outside_cap"] == ['paid_fallback is "allow" for jobs that no local engine can serve']
    assert "it was made before that key existed" in _cap_check(bench).detail
    assert bench.value("select count(*) from passes where world @? '$.policies.*.covers'") == 0
    query(bench.url, """update projects set policy = policy || '{"paid_daily_cap_covers": "all"}'""")
    bench.enqueue(12)
    assert route(bench.installation, "main") == CAP
    assert _status(bench)["paid_outside_cap"] == []
    _is_sound(bench)


def test_rules_that_cannot_be_read_buy_nothing(open_bench: Callable[..., Bench]) -> None:
    """In a pool without local engines, too."""
    bench = _paid_only(open_bench, paid_daily_cap_covers="exceptions")
    broken = ProjectPolicy().to_json() | {"paid_daily_cap": "many"}
    with bench.installation.database.autocommit() as connection:
        projects.set_policy(connection, projects.named(connection, "default").id, broken)
    bench.enqueue(1)
    assert route(bench.installation, "main") == 0
    assert bench.rows("select reason from group_states") == [("cap_spent",)]


def test_an_audit_finds_paid_work_without_its_unit(open_bench: Callable[..., Bench]) -> None:
    """The rules its pass recorded say that it takes one."""
    bench = _paid_only(open_bench)
    bench.enqueue(1)
    route(bench.installation, "main")
    query(bench.url, "alter table ledger disable trigger ledger_append_only")
    query(bench.url, "update runs set counted = false; delete from ledger where utc_day is not null")
    found = audit(bench.installation).violations
    assert [each.invariant for each in found if "took no unit of the cap" in each.detail] == ["I4"]


def test_a_singleton_pass_locks_no_project_that_cannot_spend(open_bench: Callable[..., Bench]) -> None:
    """With a local candidate, mode singleton takes no unit whatever the cap covers, so nobody waits for its row."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines=ALL | {"mode": "singleton"})
    bench.enqueue(1)
    with bench.installation.database.begin() as other:
        assert projects.LOCK.all(other, id=projects.named(other, "default").id)
        assert route(bench.installation, "main") == 1


def test_the_readme_keeps_its_word(open_bench: Callable[..., Bench]) -> None:
    """Its own file says five paid jobs a day: with the local program missing, five of twelve run."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    tables = tomllib.loads(text.split("```toml\n")[1].split("```")[0])
    assert tables["engines"] == {"paid_daily_cap": CAP}
    engines = {name: noop(each.get("tier", "paid")) for name, each in tables["engine"].items()}
    bench = open_bench(engine=engines, engines=tables["engines"] | {"slots": {"cloud": 50}})
    query(bench.url, "update engines set installed = false where name = 'local'")
    bench.enqueue(12)
    assert route(bench.installation, "main") == CAP
    assert bench.rows("select engine, why, count(*) from runs group by 1, 2") == [("cloud", "fallback", CAP)]
    assert bench.value("select count(*) from jobs where state = 'queued'") == 7


def test_a_run_that_failed_before_its_program_started_gives_its_unit_back(open_bench: Callable[..., Bench]) -> None:
    """Without a prompt no client is started: one attempt, no unit, and nothing is tried again."""
    engine = {"kind": "openai", "tier": "paid", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    bench = open_bench(engine={"p": engine}, engines={"paid_daily_cap": 1, "paid_daily_cap_covers": "all"})
    (job,) = bench.enqueue(1, anyway=True)
    assert route(bench.installation, "main") == 1
    ((run, token, _),) = bench.live()
    assert carry_out(bench.installation, run, token) == "failed"
    assert views.job(bench.installation, job)["state"] == "failed"
    assert bench.rows("select kind, count(*)::int from ledger where utc_day is not null group by 1 order by 1") == [
        ("EngineOverflowReleased", 1),
        ("PaidAssignmentSelected", 1),
    ]
    assert audit(bench.installation).ok
    bench.enqueue(1, payload={"prompt": "go"})
    assert route(bench.installation, "main") == 1
