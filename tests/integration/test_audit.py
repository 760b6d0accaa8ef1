"""The audit: it finds nothing in an installation at work, and each breach made by hand, by name."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import databases
from tests.support.ageing import HYBRID, work
from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control
from vibey.services.audit import INVARIANTS, audit
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import reap, tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vibey import embedded
    from vibey.domain.outcome import Outcome

UNGUARD = "alter table ledger disable trigger ledger_append_only"
UNIT = "kind = 'EngineOverflowSelected'"
BUSY: dict[str, Any] = {
    "engine": {"l": noop(), "m": noop(weight=2), "p": noop("paid"), "q": noop("paid")},
    "engines": {
        "mode": "hybrid",
        "overflow_after_seconds": 0,
        "paid_daily_cap": 4,
        "retry_backoff_seconds": 0,
        "slots": {"l": 1, "m": 2, "p": 2, "q": 2},
    },
}
# Each breach: the invariant, what to do to the tables, and words of the sentence it must be told in.
BREACHES = [
    ("I1", ("update runs set ended_at = null, state = 'running' where engine = 'l'",), "granted as number"),
    ("I1", ("update passes set world = jsonb_set(world, '{engines,0,slots}', '0')",), "which had 0 slots"),
    (
        "I2",
        ("update runs set state = 'running', ended_at = null where id = 1",),
        "was granted while its run",
    ),
    (
        "I3",
        ("update jobs set run_id = 999 where id = (select min(id) from jobs where state = 'granted')",),
        "names run",
    ),
    (
        "I3",
        (
            "delete from group_states",
            "update jobs set due_at = now() - interval '1 hour', reason = '' where state = 'queued'",
            "update runs set granted_at = granted_at - interval '1 hour', ended_at = ended_at - interval '1 hour'",
            "update installation set last_tick_at = now(), steady_since = now() - interval '1 hour'",
        ),
        "wait without a reason",
    ),
    (
        "I3",
        (
            "alter table accounts drop constraint accounts_probe_run_id_fkey",
            "update accounts set probe_run_id = 999999 where name = 'p'",
        ),
        "account p points to the probe run 999999, which is not there",
    ),
    (
        "I3",
        ("update accounts set probe_run_id = (select min(id) from runs where account = 'l') where name = 'p'",),
        "p",
    ),
    ("I3", ("insert into job_labels (key, value, job_id) values ('k', 'v', 77)",), "label k=v points to job 77,"),
    ("I3", ("update runs set engine = 'gone' where id = (select max(id) from runs)",), "points to engine gone with"),
    ("I3", ("delete from jobs where id = (select min(id) from jobs where ended_at is not null)",), "points to job"),
    (
        "I3",
        ("update decisions set pass_id = 99999 where id = (select max(id) from decisions)",),
        "points to pass 99999",
    ),
    (
        "I3",
        (
            (
                "insert into sessions (session, pool, class, member, expires_at) "
                "values ('default/s', 'main', 'x', 'gone', now() + interval '1 hour')"
            ),
        ),
        "session default/s points to gone in pool main,",
    ),
    (
        "I3",
        (
            (
                "insert into group_states (pool, requirement_key, reason, since) "
                "values ('left', 42, 'held', now() - interval '1 day')"
            ),
            "update generations set at = at - interval '1 hour'",
            "update installation set last_clean_at = now()",
        ),
        "group 42 of pool left has a reason to wait (held) and no due job",
    ),
    ("I4", (UNGUARD, f"update ledger set data = data || '{{\"paid_daily_cap\": 1}}' where {UNIT}"), "whose cap was 1"),
    ("I4", (UNGUARD, f"update ledger set data = data || '{{\"paid_today\": 7}}' where {UNIT}"), "says 7 taken before"),
    (
        "I4",
        (
            "drop index ledger_unit",
            (
                "insert into ledger (kind, project_id, job_id, run_id, utc_day, data) "
                f"select kind, project_id, job_id, run_id, utc_day, data from ledger where {UNIT} limit 1"
            ),
        ),
        "has 2 units",
    ),
    (
        "I4",
        (
            (
                "insert into ledger (kind, project_id, job_id, run_id, utc_day) select 'EngineOverflowReleased', 1, "
                "job_id, id, current_date from runs where why = 'assign' limit 1"
            ),
        ),
        "has 0 units and 1 returns",
    ),
    ("I4", ("update runs set tokens_in = 5 where state = 'withdrawn' and counted",), "gave its unit back but"),
    ("I5", (UNGUARD, f"delete from ledger where {UNIT}"), "has 0 events"),
    (
        "I5",
        ("update passes set world = jsonb_set(world, '{engines,0,slots}', '50')",),
        "was granted while l had a free slot",
    ),
    (
        "I5",
        (UNGUARD, f"update ledger set data = jsonb_set(data, '{{local_slots,0,in_use}}', '0') where {UNIT}"),
        "the replay of its pass of",
    ),
    (
        "I5",
        (
            (
                "update passes set world = jsonb_set(jsonb_set(world, '{engines,0,enabled}', 'false'), "
                "'{engines,1,enabled}', 'false')"
            ),
        ),
        "that is a fallback",
    ),
    (
        "I6",
        (
            (
                "insert into ledger (kind, project_id, job_id, run_id, data) "
                "select kind, project_id, job_id, run_id, data "
                "from ledger where kind = 'JobSucceeded' limit 1"
            ),
        ),
        "2 ends",
    ),
    ("I6", ("update runs set token = 1",), "not newer than"),
    (
        "I6",
        ("update runs set renewed_at = ended_at + interval '1 second' where ended_at is not null",),
        "after its end",
    ),
    ("I6", ("update runs set state = 'failed' where state = 'succeeded'",), "with 0 successful runs"),
    ("I7", ("update credits set credit = credit + 1 where member = 'l'",), "sum to 1"),
    (
        "I7",
        ("update credits set credit = credit + case member when 'l' then 5 else -5 end where member in ('l', 'm')",),
        "shares less picks are",
    ),
    (
        "I7",
        ("update decisions set trace = replace(trace::text, '[0, 0]', '[1, -1]')::jsonb",),
        "were left",
    ),
    ("I7", ("update engines set selected_count = selected_count + 1 where name = 'p'",), "picks and was granted"),
    ("I7", ("update engines set overflow_count = overflow_count + 1 where name = 'p'",), "runs of kind overflow"),
    ("I7", ("update engines set fallback_count = fallback_count + 1 where name = 'p'",), "runs of kind fallback"),
    ("I8", (UNGUARD,), "nothing keeps the ledger"),
    ("I8", ("drop trigger ledger_append_only on ledger",), "nothing keeps the ledger"),
    ("I8", (UNGUARD, "delete from ledger where kind = 'JobEnqueued'"), "from nothing"),
    (
        "I8",
        ("update jobs set state = 'failed' where id = (select min(id) from jobs where state = 'succeeded')",),
        "its events lead to succeeded",
    ),
    ("I9", ("delete from decisions where run_id = (select min(id) from runs)",), "has 0 decisions"),
    ("I9", ("update runs set attempt = attempt + 1 where id = (select min(id) from runs)",), "has 1 decisions"),
    (
        "I9",
        ("update decisions set engine = 'q' where id = (select min(id) from decisions where engine = 'p')",),
        '"engine":"q"',
    ),
    (
        "I9",
        ("update passes set world = jsonb_set(world, '{credits}', '[[\"main.local\", \"m\", 10]]')",),
        "and replays as",
    ),
    ("I9", ("update passes set asked = '[]'",), '{"unreadable":"IndexError'),
    ("I9", ("update passes set world = '[]'",), '{"unreadable":"TypeError'),
    (
        "I9",
        ("update decisions set trace = '{\"reason\": \"held\"}', outcome = 'hold' where requirement_key is not null",),
        "about group",
    ),
    ("I12", (UNGUARD, f"update ledger set utc_day = utc_day - 1 where {UNIT}"), "is counted for"),
    (
        "I12",
        (UNGUARD, "update ledger set utc_day = utc_day + 1 where kind = 'EngineOverflowReleased'"),
        "is counted for",
    ),
]


@pytest.fixture(scope="module")
def worked(
    services: embedded.Services, template_database: str, own_redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of a database with jobs in every state, runs ended in every way, units taken and given back."""
    name = f"vibey_worked_{uuid.uuid4().hex}"
    url = databases.create(services.database_url, name, template=template_database)
    bench = Bench(url, own_redis_url, tmp_path_factory.mktemp("worked"), deepcopy(BUSY))
    _work(bench)
    bench.close()
    databases.leave(url)
    yield name
    databases.drop(services.database_url, name)


@pytest.fixture
def busy(services: embedded.Services, worked: str, redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    """An installation at work, this test's own copy of it."""
    name = f"vibey_busy_{uuid.uuid4().hex}"
    url = databases.create(services.database_url, name, template=worked)
    bench = Bench(url, redis_url, tmp_path, deepcopy(BUSY))
    yield bench
    bench.close()
    databases.drop(services.database_url, name)


def _work(bench: Bench) -> None:
    jobs = bench.enqueue(14)
    route(bench.installation, "main")
    for engine, outcome in (
        ("l", Success()),
        ("m", Failure(FailureClass.WORK, "exit 1")),
        ("m", Success()),
        ("p", Failure(FailureClass.CAPACITY, "busy", CapacityKind.BUSY)),
        ("l", Success()),
        ("q", Success()),
    ):
        _end_on(bench, engine, outcome)
        route(bench.installation, "main")
    control.cancel(bench.installation, jobs[-1])
    control.retry(bench.installation, jobs[-1])
    late = "update runs set lease_clock_ms = -1000000 where why = 'overflow' and state = 'granted'"
    query(bench.url, late)
    reap(bench.installation)
    tick(bench.installation)


def _end_on(bench: Bench, engine: str, outcome: Outcome) -> None:
    run, token, _ = next(each for each in bench.live() if each[2] == engine)
    started = _start(bench.installation, run, token)
    assert started is not None
    assert settle(bench.installation, Held.of(started, token), outcome) is not None


def test_a_busy_installation_is_sound(busy: Bench) -> None:
    """In the midst of work every invariant holds, and the audit says how much it looked at."""
    found = audit(busy.installation)
    assert found.violations == ()
    assert found.ok
    said = json.loads(json.dumps(found.to_json()))
    assert (said["ok"], said["violations"], said["checked"]["jobs"]) == (True, [], 14)
    assert said["checked"]["units"] > 4
    assert said["checked"]["invariants"] == list(INVARIANTS)
    states = {state for (state,) in busy.rows("select distinct state from runs")}
    assert states >= {"succeeded", "failed", "withdrawn", "granted"}


def test_audits_beside_work_find_nothing(open_bench: Callable[..., Bench]) -> None:
    """While four threads route and settle without a pause, every audit sees a sound instant."""
    bench = open_bench(engine={"l": noop(), "m": noop(weight=2), "p": noop("paid")}, engines=HYBRID)
    bench.enqueue(80)
    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work, bench, seed) for seed in range(4)]
        audits = [audit(bench.installation)]
        while not all(each.done() for each in working):
            audits.append(audit(bench.installation))
        for each in working:
            each.result()
    assert [found.violations for found in audits if not found.ok] == []
    assert bench.value("select count(*) from jobs where ended_at is null") == 0
    assert audit(bench.installation).checked["units"] > 0


def test_an_empty_installation_is_sound(open_bench: Callable[..., Bench]) -> None:
    """Where nothing has happened yet, nothing is wrong."""
    assert audit(open_bench(engine={"l": noop()}).installation).violations == ()


@pytest.mark.parametrize(("invariant", "deeds", "words"), BREACHES)
def test_a_breach_is_named(busy: Bench, invariant: str, deeds: tuple[str, ...], words: str) -> None:
    """What was done to the tables by hand is told under its invariant."""
    for constraint in ("runs_ended", "jobs_run", "jobs_ended"):
        query(busy.url, f"alter table {constraint.split('_')[0]} drop constraint {constraint}")
    query(busy.url, "drop index runs_one_live")
    for deed in deeds:
        query(busy.url, deed)
    found = audit(busy.installation)
    assert not found.ok
    told = [each.detail for each in found.violations if each.invariant == invariant]
    assert any(words in detail for detail in told), found.violations


def test_a_few_slots_less_are_no_breach(busy: Bench) -> None:
    """History is judged by the slots there were: lowering them under live runs breaks nothing."""
    query(busy.url, "update engines set slots = 1")
    assert audit(busy.installation).violations == ()


def test_a_shared_cap_is_audited_as_one(open_bench: Callable[..., Bench]) -> None:
    """With scope installation the units of all projects count together, against the installation's cap."""
    bench = open_bench(
        engine={"l": noop(), "p": noop("paid")},
        engines={
            "mode": "hybrid",
            "overflow_after_seconds": 0,
            "paid_daily_cap": 3,
            "paid_daily_cap_scope": "installation",
            "slots": {"p": 9},
        },
    )
    control.new_project(bench.installation, "other")
    control.set_project(bench.installation, "other", {"paid_daily_cap": "1"})
    bench.enqueue(2)
    bench.enqueue(4, project="other")
    route(bench.installation, "main")
    assert audit(bench.installation).violations == ()
    query(bench.url, UNGUARD)
    query(bench.url, f"update ledger set data = data || '{{\"paid_daily_cap\": 2}}' where {UNIT}")
    details = [each.detail for each in audit(bench.installation).violations]
    assert any("is unit 3 of the installation" in detail for detail in details)


def test_a_unit_of_the_last_minute_before_midnight(busy: Bench) -> None:
    """An event written within a minute after midnight may be counted for the day before; a later one may not."""
    query(busy.url, UNGUARD)
    midnight = "(utc_day + interval '1 day {seconds} seconds') at time zone 'utc'"
    move = f"update ledger set at = {midnight} where utc_day is not null"
    query(busy.url, move.format(seconds=59))
    assert [each for each in audit(busy.installation).violations if each.invariant == "I12"] == []
    query(busy.url, move.format(seconds=61))
    assert [each for each in audit(busy.installation).violations if each.invariant == "I12"] != []
