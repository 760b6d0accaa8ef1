"""Explanations, through real Postgres: of runs from what was recorded, of waiting jobs from the world as it is."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.errors import UnknownName
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control, pulse, views
from vibey.services.explain import explain
from vibey.services.queue import QueuePage, queue
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import tick
from vibey.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.commandline import CommandLine
    from vibey.domain.outcome import Outcome

HYBRID = {"mode": "hybrid", "overflow_after_seconds": 600, "paid_daily_cap": 2, "retry_backoff_seconds": 60}


def _verdicts(told: dict[str, Any]) -> dict[str, str]:
    return {each["engine"]: each["verdict"] for each in told["engines"]}


def _details(told: dict[str, Any]) -> dict[str, str]:
    return {each["engine"]: each["detail"] for each in told["engines"]}


def _end(bench: Bench, outcome: Outcome) -> None:
    """End the oldest live run."""
    run, token, _ = bench.live()[0]
    started = _start(bench.installation, run, token)
    assert started is not None
    assert settle(bench.installation, Held.of(started, token), outcome) is not None


def _told(bench: Bench, job: int, **how: bool) -> dict[str, Any]:
    """An explanation, which must be plain JSON values."""
    found = explain(bench.installation, job, **how)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_an_assigned_job(open_bench: Callable[..., Bench]) -> None:
    """The draw with shares and credits, who lost it, and why nothing paid was offered."""
    bench = open_bench(engine={"a": noop(weight=3), "b": noop(), "p": noop("paid")}, engines=HYBRID)
    jobs = bench.enqueue(2)
    route(bench.installation, "main")
    found = _told(bench, jobs[1])
    assert (found["state"], found["waiting"], len(found["runs"])) == ("granted", None, 1)
    (run,) = found["runs"]
    assert (run["engine"], run["why"], run["tier"], run["reproduced"], run["problem"]) == (
        "b",
        "assign",
        "local",
        True,
        None,
    )
    assert _verdicts(run) == {"a": "full", "b": "chosen", "p": "not_offered"}
    (first,) = _told(bench, jobs[0])["runs"]
    assert _verdicts(first) == {"a": "chosen", "b": "lost", "p": "not_offered"}
    root, local = first["walk"]
    assert (root["pool"], root["chosen"], root["turn"], local["turn"]) == ("main", "main.local", "only", "drawn")
    assert local["members"] == [
        {"member": "a", "share": 0.75, "credit_before": 0.0, "credit_after": -0.25},
        {"member": "b", "share": 0.25, "credit_before": 0.0, "credit_after": 0.25},
    ]
    by_name = {each["engine"]: each for each in first["engines"]}
    assert (by_name["a"]["weight"], by_name["a"]["factors"]["base"], by_name["b"]["share"]) == (3.0, 3.0, 0.25)
    assert first["grounds"]["cap_left"] is None
    assert "a local engine is free" in by_name["p"]["detail"]


def test_an_overflowed_job(open_bench: Callable[..., Bench]) -> None:
    """How long it was held, the threshold, what the cap had left, and the local slots it found in use."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines=HYBRID)
    jobs = bench.enqueue(2)
    route(bench.installation, "main")
    query(bench.url, "update jobs set held_at = held_at - interval '601 seconds' where held_at is not null")
    route(bench.installation, "main")
    (run,) = _told(bench, jobs[1])["runs"]
    grounds = run["grounds"]
    assert (run["why"], run["engine"], _verdicts(run)) == ("overflow", "p", {"l": "full", "p": "chosen"})
    assert 601 <= grounds["waited_seconds"] < 700
    assert (grounds["threshold_seconds"], grounds["cap_left"], grounds["counted"], grounds["mode"]) == (
        600,
        2,
        True,
        "hybrid",
    )
    assert grounds["local_slots"] == [{"engine": "l", "in_use": 1, "slots": 1}]
    assert [each["class"] for each in run["walk"][0]["skipped"]] == ["main.local"]


def test_a_fallback(open_bench: Callable[..., Bench]) -> None:
    """A paid pick for want of a local engine names that ground, and what kept the local one out."""
    bench = open_bench(
        engine={"l": noop(), "p": noop("paid", capabilities=["web"])}, engines={**HYBRID, "paid_fallback": "count"}
    )
    (job,) = bench.enqueue(1, capabilities=("web",))
    route(bench.installation, "main")
    (run,) = _told(bench, job)["runs"]
    assert (run["why"], run["grounds"]["counted"], run["grounds"]["cap_left"]) == ("fallback", True, 2)
    assert "none could serve it" in run["grounds"]["because"]
    assert (_verdicts(run)["l"], _details(run)["l"]) == ("excluded", "lacks web")


def test_a_held_job(open_bench: Callable[..., Bench]) -> None:
    """It starts at the end of its hold at the latest; the paid engine is not offered until then."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines=HYBRID)
    jobs = bench.enqueue(2)
    route(bench.installation, "main")
    found = _told(bench, jobs[1])
    waiting = found["waiting"]
    assert (found["runs"], waiting["outcome"], waiting["why"], waiting["reason"]) == ([], "hold", "held", "held")
    assert (waiting["decision"]["outcome"], waiting["decision"]["reason"]) == ("hold", "held")
    assert waiting["decision"]["reproduced"] is True
    assert _verdicts(waiting) == {"l": "full", "p": "not_offered"}
    assert _details(waiting)["l"] == "1 of 1 slots in use: one has to be freed"
    assert (waiting["earliest"]["by"], waiting["earliest"]["engine"]) == ("hold_end", "p")
    assert _at(waiting["earliest"]["at"]) == _at(waiting["held_since"]) + timedelta(seconds=600)


def test_waiting_for_the_cap(open_bench: Callable[..., Bench]) -> None:
    """With the cap spent nothing paid comes before midnight, the latest decision about the group says why it waits."""
    bench = open_bench(
        engine={"l": noop(enabled=False), "p": noop("paid")},
        engines={**HYBRID, "paid_fallback": "count", "slots": {"p": 9}},
    )
    jobs = bench.enqueue(3)
    route(bench.installation, "main")
    waiting = _told(bench, jobs[2])["waiting"]
    assert (waiting["outcome"], waiting["why"], waiting["decision"]["reason"]) == ("wait", "cap_spent", "cap_spent")
    assert _verdicts(waiting) == {"l": "excluded", "p": "not_offered"}
    midnight = bench.value("select (date_trunc('day', now() at time zone 'utc') + interval '1 day')")
    assert (waiting["earliest"]["by"], _at(waiting["earliest"]["at"]).replace(tzinfo=None)) == ("midnight", midnight)
    assert _details(waiting)["l"] == "disabled in the configuration"


def test_no_worker(open_bench: Callable[..., Bench]) -> None:
    """An engine nobody serves is full, not gone, and no instant is known at which that ends."""
    bench = open_bench(engine={"l": noop()})
    query(bench.url, "delete from workers")
    (job,) = bench.enqueue()
    route(bench.installation, "main")
    waiting = _told(bench, job)["waiting"]
    assert (waiting["why"], _verdicts(waiting)) == ("no_worker", {"l": "full"})
    assert "no live worker serves it" in _details(waiting)["l"]
    assert waiting["earliest"]["at"] is None


def test_no_worker_is_said_wherever_a_job_waits(open_bench: Callable[..., Bench]) -> None:
    """Whatever a router wrote last: with no live worker of an engine it may use, that is why, and how to start one."""
    bench = open_bench(engine={"l": noop(), "other": noop(), "p": noop("paid")}, engines=HYBRID)
    first, second = bench.enqueue(2, engines=["l"])
    route(bench.installation, "main")
    assert "every engine that may serve it is full" in _told(bench, second)["reason"]
    bench.staff("other")
    told = _told(bench, second)
    why = "no live worker serves an engine it may use (l): run vibey up, or start one (celery -A vibey worker)"
    assert (told["reason"], told["waiting"]["earliest"]["at"]) == (why, None)
    assert "a live worker has to serve an engine it may use" in told["waiting"]["earliest"]["words"]
    listed = {each["job_id"]: each["reason"] for each in views.jobs(bench.installation)["jobs"]}
    assert (listed[second], views.job(bench.installation, second)["reason"]) == (why, why)
    assert [each["first"]["reason"] for each in queue(bench.installation, QueuePage())["groups"]] == [why]
    (fresh,) = bench.enqueue(1)
    assert _told(bench, fresh)["reason"] == "not looked at yet"
    query(bench.url, "delete from workers")
    names = "no live worker serves an engine it may use (l, other, p)"
    assert _told(bench, fresh)["reason"].startswith(names)
    assert "running on" in _told(bench, first)["reason"] or _told(bench, first)["state"] == "granted"


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        ("no engine l in its file", "; correct the file there, or put it in force: vibey apply"),
        ("no process is left for l; restart w1 for 1 more slot: on its machine run vibey down, then vibey up", ""),
    ],
)
def test_a_live_worker_that_leaves_the_engine_unserved_is_the_reason(
    open_bench: Callable[..., Bench], problem: str, remedy: str
) -> None:
    """No worker has to be started where one is alive: what it reports is the reason, wherever a job waits."""
    bench = open_bench(engine={"l": noop(), "other": noop()})
    query(bench.url, "delete from workers")
    pulse.appear(bench.installation, pulse.Worker("w1", ("other",), 64, problems={"l": problem}))
    (job,) = bench.enqueue(1, engines=["l"])
    why = f"no live worker serves an engine it may use (l): worker w1: {problem}{remedy}"
    told = _told(bench, job)
    assert told["reason"] == why
    assert _details(told["waiting"])["l"] == f"worker w1: {problem}"
    assert [each["reason"] for each in views.jobs(bench.installation)["jobs"]] == [why]
    assert [each["first"]["reason"] for each in queue(bench.installation, QueuePage())["groups"]] == [why]
    query(bench.url, "update workers set seen_at = seen_at - interval '1 hour'")
    assert "(l): run vibey up, or start one" in _told(bench, job)["reason"]


def test_a_job_that_nothing_configured_can_serve_says_so(open_bench: Callable[..., Bench]) -> None:
    """Not that something is full, nor that a worker is missing."""
    bench = open_bench(engine={"l": noop()})
    (job,) = bench.enqueue(1, capabilities=("web",), anyway=True)
    assert "no configured engine can serve what it asks" in _told(bench, job)["reason"]
    route(bench.installation, "main")
    told = _told(bench, job)
    assert "no configured engine can serve what it asks" in told["reason"]
    assert "an engine has to become able to take it" in told["waiting"]["earliest"]["words"]


def test_an_engine_without_roots_is_not_said_to_have_some(open_bench: Callable[..., Bench]) -> None:
    """Of one with roots elsewhere and of one with none the sentence is true."""
    roots = {"workspace_roots": ["/src"]}
    bench = open_bench(engine={"l": noop(), "m": noop(**roots), "n": noop(workspace_roots=["/other"])})
    (job,) = bench.enqueue(1, payload={"repo": "/src/site"})
    details = _details(_told(bench, job)["waiting"])
    lacks = "it has no workspace_roots that contain the repository the job names"
    assert (details["l"], details["n"]) == (lacks, lacks)


def test_an_open_circuit(open_bench: Callable[..., Bench]) -> None:
    """The job can start at the circuit's next trial, and the engine's line names that instant."""
    bench = open_bench(engine={"l": noop()})
    (job,) = bench.enqueue()
    route(bench.installation, "main")
    _end(bench, Failure(FailureClass.CAPACITY, "come back later", CapacityKind.CREDITS))
    route(bench.installation, "main")
    found = _told(bench, job)
    waiting = found["waiting"]
    assert (waiting["why"], _verdicts(waiting)) == ("no_eligible_engine", {"l": "excluded"})
    probe = bench.value("select probe_at from accounts where name = 'l'")
    assert waiting["earliest"]["by"] == "probe"
    assert abs(_at(waiting["earliest"]["at"]) - probe) < timedelta(milliseconds=1)
    assert "credits exhausted, next trial" in _details(waiting)["l"]
    assert [run["state"] for run in found["runs"]] == ["failed"]


def test_backoff_and_all_runs(open_bench: Callable[..., Bench]) -> None:
    """A job that backs off can start at its end; `every_run` tells each attempt, the latest first."""
    bench = open_bench(engine={"l": noop()}, engines={"retry_backoff_seconds": 600})
    (job,) = bench.enqueue()
    for _ in range(2):
        route(bench.installation, "main")
        _end(bench, Failure(FailureClass.WORK, "exit 1"))
        query(bench.url, "update jobs set not_before = null")
    query(bench.url, "update jobs set not_before = clock_timestamp() + interval '90 seconds'")
    found = _told(bench, job, every_run=True)
    waiting = found["waiting"]
    assert (waiting["earliest"]["by"], waiting["earliest"]["at"]) == ("backoff", waiting["backoff_until"])
    assert [run["attempt"] for run in found["runs"]] == [2, 1]
    assert all(run["reproduced"] for run in found["runs"])
    assert [run["attempt"] for run in _told(bench, job)["runs"]] == [2]


def test_a_deadline_before_any_start(open_bench: Callable[..., Bench]) -> None:
    """A start that is known, but comes too late, is said to."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines=HYBRID)
    bench.enqueue()
    (job,) = bench.enqueue(deadline_seconds=60)
    route(bench.installation, "main")
    assert "deadline" in _told(bench, job)["waiting"]["earliest"]["words"]


def test_a_sticky_session(open_bench: Callable[..., Bench]) -> None:
    """The second run of a session is its engine's again; the third yields while that is full."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 2, "b": 2}})
    jobs = bench.enqueue(3, session="talk")
    route(bench.installation, "main")
    runs = [_told(bench, job)["runs"][0] for job in jobs]
    assert [run["walk"][-1]["turn"] for run in runs] == ["drawn", "sticky", "yielded"]
    assert [run["engine"] for run in runs] == ["a", "a", "b"]
    assert "session" in _details(runs[1])["a"]
    assert _verdicts(runs[2]) == {"a": "full", "b": "chosen"}


TIERED = {
    "main": {
        "select": "tiered",
        "members": [{"engine": "best", "tier": 2}, {"engine": "next", "tier": 1}, {"engine": "last", "tier": 0}],
    }
}


def test_a_tiered_pool(open_bench: Callable[..., Bench]) -> None:
    """Engines of lower pool tiers are passed over; a full higher one is told as skipped."""
    bench = open_bench(engine={"best": noop(), "next": noop(), "last": noop()}, pool=TIERED)
    jobs = bench.enqueue(2)
    route(bench.installation, "main")
    first, second = (_told(bench, job)["runs"][0] for job in jobs)
    assert _verdicts(first) == {"best": "chosen", "next": "passed_over", "last": "passed_over"}
    assert _verdicts(second) == {"best": "full", "next": "chosen", "last": "passed_over"}
    assert second["walk"][0]["skipped"] == [{"class": "2", "found": "full"}]


def test_a_pool_that_waits(open_bench: Callable[..., Bench]) -> None:
    """With `when_full = "wait"` a free engine of a lower tier is passed over, and the job waits for the better one."""
    pool = {"main": {**TIERED["main"], "when_full": "wait"}}
    bench = open_bench(engine={"best": noop(), "next": noop(), "last": noop()}, pool=pool)
    jobs = bench.enqueue(2)
    route(bench.installation, "main")
    waiting = _told(bench, jobs[1])["waiting"]
    assert (waiting["why"], waiting["decision"]["reason"]) == ("pool_tier_full", "pool_tier_full")
    assert _verdicts(waiting) == {"best": "full", "next": "passed_over", "last": "passed_over"}


def test_a_job_in_turn_starts_now(open_bench: Callable[..., Bench]) -> None:
    """Before the first look at the queue the answer is what the router will say."""
    bench = open_bench(engine={"l": noop()})
    (job,) = bench.enqueue()
    waiting = _told(bench, job)["waiting"]
    assert (waiting["outcome"], waiting["decision"], waiting["earliest"]["by"]) == ("assign", None, "now")
    assert _verdicts(waiting) == {"l": "chosen"}


def test_an_ended_job_without_runs(open_bench: Callable[..., Bench]) -> None:
    """Cancelled in the queue: there is nothing to explain but the reason."""
    bench = open_bench(engine={"l": noop()})
    (job,) = bench.enqueue()
    control.cancel(bench.installation, job)
    found = _told(bench, job)
    assert (found["state"], found["reason"], found["runs"], found["waiting"]) == ("cancelled", "cancelled", [], None)
    assert found["unstarted"] == {"decision": None, "engines": []}


def test_a_job_that_ended_without_a_run_shows_why_no_engine_was_free(open_bench: Callable[..., Bench]) -> None:
    """As decided last before its end, not as the fleet is by now; a job with a run has that instead."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid", enabled=False)}, engines=HYBRID)
    served, late, _ = bench.enqueue(1) + bench.enqueue(1, deadline_seconds=60) + bench.enqueue(1)
    route(bench.installation, "main")
    query(bench.url, "update jobs set deadline_at = clock_timestamp() where deadline_at is not null")
    tick(bench.installation)
    _end(bench, Success())
    query(bench.url, "update engines set enabled = false where name = 'l'")
    route(bench.installation, "main")
    found = _told(bench, late)
    unstarted = found["unstarted"]
    assert (found["state"], found["runs"], unstarted["decision"]["reason"]) == ("failed", [], "slots_full")
    assert _details(unstarted) == {"l": "1 of 1 slots in use", "p": "disabled or paused; run: vibey engine resume p"}
    assert _told(bench, served)["unstarted"] is None


def test_a_tampered_record_is_not_explained(open_bench: Callable[..., Bench]) -> None:
    """Where the router's functions do not come to what was recorded, that is said, and nothing is made up."""
    bench = open_bench(engine={"a": noop(), "b": noop()})
    (job,) = bench.enqueue()
    route(bench.installation, "main")
    query(bench.url, "update passes set world = jsonb_set(world, '{engines,0,in_use}', '1')")
    (run,) = _told(bench, job)["runs"]
    assert (run["reproduced"], run["grounds"], run["walk"], run["engines"]) == (False, None, [], [])
    assert "vibey replay" in run["problem"]
    query(bench.url, "delete from decisions")
    assert _told(bench, job)["runs"][0]["problem"] == "no decision is recorded for it"


def test_explaining_waits_for_nobody(open_bench: Callable[..., Bench]) -> None:
    """While a router holds every row it locks, a waiting job is explained all the same."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines=HYBRID)
    jobs = bench.enqueue(2)
    route(bench.installation, "main")
    rows = "engines", "accounts", "credits", "projects", "jobs", "runs"
    other = Database(bench.url)
    try:
        with other.begin() as connection, ThreadPoolExecutor(1) as threads:
            for table in rows:
                connection.exec_driver_sql(f"select 1 from {table} for update")
            found = threads.submit(_told, bench, jobs[1]).result(60)
            assert found["waiting"]["why"] == "held"
    finally:
        other.dispose()


def test_an_unknown_job(open_bench: Callable[..., Bench]) -> None:
    """The usual error names it."""
    with pytest.raises(UnknownName, match="unknown job 12"):
        explain(open_bench(engine={"l": noop()}).installation, 12)


@pytest.mark.parametrize("width", [80, 120])
def test_the_command_fits_the_terminal(vibey: CommandLine, width: int) -> None:
    """A run and a waiting job, each engine named, no line wider than the screen."""
    jobs = vibey.enqueued(6)
    vibey.route()
    for job in (jobs[0], jobs[-1]):
        said = vibey("explain", job, "--all", COLUMNS=str(width))
        assert (said.code, said.err) == (0, "")
        assert max(len(line.rstrip()) for line in said.out.splitlines()) <= width
        assert all(name in said.out for name in ("near", "far", "bought"))
    assert "1 of 1 slots in use" in vibey("explain", jobs[-1]).out
    assert "chosen" in vibey("explain", jobs[0]).out


def test_the_command_as_json(vibey: CommandLine) -> None:
    """The explanation itself, on one line; an unknown job and a word for one are refused as everywhere."""
    (job,) = vibey.enqueued()
    vibey.route()
    run, _ = vibey.bench.live()[0][:2]
    assert vibey("explain", job, "--json").json["runs"][0]["run_id"] == run
    _end(vibey.bench, Success())
    assert "succeeded" in vibey("explain", job).out
    unknown = vibey("explain", 99)
    assert (unknown.code, "unknown job 99" in unknown.complaint) == (3, True)
    assert vibey("explain", "seven").code == 2
