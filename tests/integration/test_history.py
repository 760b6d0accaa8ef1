"""The past as a trace: what is exported is what happened, and what if is asked of it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.services import control
from vibey.services.history import history_of
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.commandline import CommandLine

HOUR = 3600


def past(bench: Bench, **change: str) -> None:
    """Move what happened to known instants: each job an hour after the one before, its run a quarter of an hour on."""
    query(bench.url, "alter table ledger disable trigger user")
    query(
        bench.url,
        "update jobs set created_at = date_trunc('hour', now()) - interval '24 hours' + id * interval '1 hour'",
    )
    query(
        bench.url,
        "update runs r set due_at = j.created_at, granted_at = j.created_at + interval '60 seconds',"
        " started_at = j.created_at + interval '60 seconds', ended_at = j.created_at + interval '16 minutes'"
        " from jobs j where j.id = r.job_id",
    )
    for sql in change.values():
        query(bench.url, sql)


def lines(bench: Bench, hours: int = 48) -> list[dict[str, Any]]:
    """The exported trace."""
    return [json.loads(line) for line in history_of(bench.installation, hours * HOUR).lines]


def done(bench: Bench, count: int, **order: object) -> None:
    """Enqueue jobs and carry them out one by one."""
    for _ in range(count):
        bench.enqueue(1, **order)
        route(bench.installation, "main")
        for run, token, _ in bench.live():
            carry_out(bench.installation, run, token)


def test_a_past_is_told_with_its_jobs_and_mishaps(open_bench: Callable[..., Bench]) -> None:
    """Arrivals by their instants with the seconds their runs took; pauses beside them, in order of time."""
    bench = open_bench(engine={"l": noop(), "m": noop(capabilities=["web"])})
    done(bench, 2, priority=3, capabilities=["web"], session="talk", exclude=["l"])
    done(bench, 1)
    control.pause_engine(bench.installation, "l", paused=True)
    control.pause_engine(bench.installation, "l", paused=False)
    past(bench)
    found = lines(bench)
    jobs = [line for line in found if "job" in line]
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    assert jobs[0]["requires"] == ["web"]
    assert (jobs[0]["priority"], jobs[0]["session"], jobs[0]["exclude"]) == (3, "talk", ["l"])
    assert jobs[0]["seconds"]["m"] == jobs[0]["seconds"]["*"] == 900.0
    assert [after["at"] - before["at"] for before, after in pairwise(jobs)] == [3600.0, 3600.0]
    assert [line["event"] for line in found if "event" in line] == ["down", "up"]


def test_pins_and_repositories_become_exclusions(open_bench: Callable[..., Bench]) -> None:
    """Of the engines the trace is told for; a job that none of them may run is left out, and counted."""
    rooted = {"kind": "noop", "tier": "local", "workspace_roots": ["/srv"]}
    bench = open_bench(engine={"l": noop(), "m": noop(), "r": rooted})
    done(bench, 1, engines=["m"])
    done(bench, 1, payload={"repo": "/srv/x"})
    bench.enqueue(1, engines=["gone"], anyway=True)
    past(bench)
    assert [line["exclude"] for line in lines(bench)] == [["l", "r"], ["l", "m"]]
    assert history_of(bench.installation, 48 * HOUR).left_out == 1


def test_a_circuit_s_story_becomes_failure_and_return(open_bench: Callable[..., Bench]) -> None:
    """What opened an account's circuit is a failure of that kind, told once, until it closes again."""
    bench = open_bench(engine={"p": noop("paid")})
    opened = '{"account": "p", "open": "window_exhausted", "probe_at_ms": %d}'
    at_ms = bench.value("select (extract(epoch from now()) * 1000)::bigint")
    for data in (opened % (at_ms + 7_200_000), opened % (at_ms + 7_300_000), '{"account": "p", "open": null}'):
        query(bench.url, f"insert into ledger (kind, engine, data) values ('CircuitChanged', 'p', '{data}')")
    fail, back = lines(bench)
    assert (fail["event"], fail["value"], back["event"]) == ("fail", "window", "up")
    assert 7100 < fail["resets_in"] <= 7200


def test_what_really_happened_is_counted(open_bench: Callable[..., Bench]) -> None:
    """Waits of granted runs, paid runs by their ground, jobs that never ran; cancelled jobs are left out."""
    bench = open_bench(engine={"l": noop(enabled=False), "p": noop("paid")}, engines={"paid_fallback": "allow"})
    done(bench, 3)
    bench.enqueue(2, exclude=["p"])
    cancelled, *_ = bench.enqueue(1)
    control.cancel(bench.installation, cancelled)
    past(bench)
    found = history_of(bench.installation, 48 * HOUR)
    assert found.left_out == 1
    assert found.happened.waits_ms == (60_000,) * 3
    assert (found.happened.fallbacks, found.happened.paid, found.happened.never_run) == (3, 3, 2)


def test_what_if_is_asked_of_the_past(vibey: CommandLine) -> None:
    """What happened, the simulation of it, and of the changes, side by side."""
    for _ in range(4):
        vibey.enqueued(1)
        vibey.route()
        for run, token, _ in vibey.bench.live():
            carry_out(vibey.bench.installation, run, token)
    past(vibey.bench)
    found = vibey("replay", "--since", "2d", "--what-if", "slots.near=1,enabled.far=false,mode=hybrid", "--json").json
    assert found["jobs"] == 4
    assert found["happened"]["granted"] == found["simulated"]["granted"] == found["what_if"]["granted"] == 4
    assert found["happened"]["wait_p50"] == 60.0
    assert found["simulated"]["wait_max"] == 0.0
    told = vibey("replay", "--since", "2d", "--what-if", "cap=0").out
    assert "HAPPENED" in told
    assert "cap=0" in told


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ("mode", "key=value"),
        ("colour=red", "one of mode, cap"),
        ("slots.nobody=2", "unknown engine 'nobody'"),
        ("slots.near=0", "engines.slots.near"),
        ("cap=-1", "paid_daily_cap"),
        ("mode=loud", "engines.mode"),
    ],
)
def test_a_change_that_cannot_be_is_named(vibey: CommandLine, changes: str, complaint: str) -> None:
    """The change or the key, what came, and what would do; exit 2 or 3."""
    said = vibey("replay", "--what-if", changes)
    assert said.code in {2, 3}
    assert complaint in said.err


def test_an_account_s_engines_fail_and_return_together(open_bench: Callable[..., Bench]) -> None:
    """A circuit is its account's: whichever engine's run opened or closed it, all of them are told, once."""
    bench = open_bench(engine={"p": noop("paid", account="x"), "q": noop("paid", account="x"), "r": noop("paid")})
    for engine, state in (("p", "credits_exhausted"), ("q", "credits_exhausted"), ("q", None)):
        data = json.dumps({"account": "x", "open": state})
        query(bench.url, f"insert into ledger (kind, engine, data) values ('CircuitChanged', '{engine}', '{data}')")
    assert [(line["engine"], line["event"]) for line in lines(bench)] == [
        ("p", "fail"), ("q", "fail"), ("p", "up"), ("q", "up"),
    ]  # fmt: skip


def test_a_span_begins_as_things_stood(open_bench: Callable[..., Bench]) -> None:
    """What was paused, or whose circuit was open, before the span is so when it begins."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")})
    opened = '{"account": "p", "open": "login_failed"}'
    for kind, engine, data in (("EngineChanged", "l", '{"paused": true}'), ("CircuitChanged", "p", opened)):
        values = f"now() - interval '3 days', '{kind}', '{engine}', '{data}'"
        query(bench.url, f"insert into ledger (at, kind, engine, data) values ({values})")
    told = lines(bench, hours=1)
    assert [(line["engine"], line["event"]) for line in told] == [("l", "down"), ("p", "fail")]
    assert len({line["at"] for line in told}) == 1
