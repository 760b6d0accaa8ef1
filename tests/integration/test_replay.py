"""Replay, through real Postgres: every recorded decision comes out again, and whatever was changed is found."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.errors import UnknownName
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control
from vibey.services import replay as replaying
from vibey.services.audit import audit
from vibey.services.replay import replay
from vibey.services.route import route, run_pass
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.store import decisions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.commandline import CommandLine

OUTCOMES = (
    Success(),
    Success(),
    Success(),
    Failure(FailureClass.WORK, "exit 1"),
    Failure(FailureClass.ENGINE, "crashed"),
    Failure(FailureClass.HANDOFF, "exit 75"),
    Failure(FailureClass.CAPACITY, "busy", CapacityKind.BUSY),
    Failure(FailureClass.CAPACITY, "window", CapacityKind.WINDOW),
)
ENGINES = {
    "l": noop(),
    "m": noop(weight=2, capabilities=["web"]),
    "n": noop(weight=0.5),
    "p": noop("paid", price_in=3.0, price_out=15.0),
    "q": noop("paid", weight=2, capabilities=["web"]),
}
POOLS = {
    "default": {},
    "tiered": {
        "main": {"select": "ordered", "members": [{"pool": "near"}, {"pool": "bought"}]},
        "near": {
            "select": "tiered",
            "members": [{"engine": "l", "tier": 2}, {"engine": "m", "tier": 1}, {"engine": "n", "tier": 1}],
        },
        "bought": {"select": "tiered", "tier_by": "weight", "when_full": "wait", "members": ["p", "q"]},
    },
}


def _worked(bench: Bench, chance: random.Random, rounds: int) -> None:
    """Jobs of several kinds come, are routed and end in all ways, while holds grow old and circuits come due."""
    for _ in range(rounds):
        project = chance.choice(["default", "other"])
        session = chance.choice([None, None, "talk", "walk"])
        requires = chance.choice([(), (), ("web",)])
        exclude = chance.choice([(), (), ("l",), ("p", "q")])
        effort = chance.choice(["low", "high", "max"])
        bench.enqueue(
            chance.randrange(4),
            project=project,
            session=session,
            capabilities=requires,
            exclude=exclude,
            effort=effort,
        )
        run_pass(bench.installation, "main")
        live = bench.live()
        for run, token, _ in chance.sample(live, min(len(live), chance.randrange(4))):
            started = _start(bench.installation, run, token)
            if started is not None:
                settle(bench.installation, Held.of(started, token), chance.choice(OUTCOMES))
        if chance.random() < 0.3:
            query(bench.url, "update jobs set held_at = held_at - interval '20 seconds', not_before = null")
            query(bench.url, "update engines set busy_until = null")
            query(bench.url, "update accounts set probe_at = now() where probe_at is not null")
    route(bench.installation, "main")


@pytest.mark.parametrize("scope", ["project", "installation"])
@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("seed", [1, 2])
def test_after_random_work_everything_replays(
    open_bench: Callable[..., Bench], scope: str, pools: str, seed: int
) -> None:
    """Assignments, overflows, fallbacks, holds, waits, sessions, retries, two projects, either scope of the cap."""
    bench = open_bench(
        engine=ENGINES,
        pool=POOLS[pools],
        engines={
            "mode": "hybrid",
            "overflow_after_seconds": 10,
            "paid_daily_cap": 6,
            "paid_daily_cap_scope": scope,
            "paid_fallback": "count",
            "retry_backoff_seconds": 0,
            "slots": {"m": 2, "p": 2},
        },
    )
    control.new_project(bench.installation, "other")
    control.set_project(bench.installation, "other", {"mode": "singleton", "paid_daily_cap": "2"})
    _worked(bench, random.Random(f"{scope} {pools} {seed}"), 60)
    found = replay(bench.installation)
    assert found.differing == ()
    assert found.replayed == found.same == bench.value("select count(*) from decisions")
    outcomes = {outcome for (outcome,) in bench.rows("select distinct outcome from decisions")}
    assert outcomes >= {"assign", "wait", "hold"}
    assert bench.value("select count(*) from decisions where outcome in ('overflow', 'fallback')") > 0
    assert bench.value("select count(*) from decisions where trace ? 'session'") > 0
    sound = audit(bench.installation)
    assert sound.violations == ()
    assert sound.checked["replayed"] == found.replayed


def test_why_a_group_waits_is_recorded_once(open_bench: Callable[..., Bench]) -> None:
    """One decision for each change of a group's reason, however many jobs and passes; none while nothing changes."""
    bench = open_bench(engine={"l": noop()})
    bench.enqueue(50)
    for _ in range(3):
        run_pass(bench.installation, "main")
    of_groups = "select outcome, trace, asked, engine from decisions where job_id is null"
    assert bench.rows(of_groups) == [("wait", {"reason": "slots_full"}, 0, None)]
    assert bench.value("select count(*) from passes") == 2
    query(bench.url, "delete from workers")
    run_pass(bench.installation, "main")
    assert [trace["reason"] for _, trace, *_ in bench.rows(f"{of_groups} order by id")] == ["slots_full", "no_worker"]
    assert replay(bench.installation).same == 3


def test_a_pass_with_grants_and_notes_is_kept_once(open_bench: Callable[..., Bench]) -> None:
    """Notes are judged on the world before the grants, in the same row of passes, and replay so."""
    bench = open_bench(engine={"l": noop(), "m": noop(enabled=False, capabilities=["web"])})
    bench.enqueue(1)
    bench.enqueue(1, capabilities=("web",))
    run_pass(bench.installation, "main")
    rows = bench.rows("select pass_id, ordinal, outcome, asked from decisions order by ordinal")
    assert rows == [(1, 0, "wait", 0), (1, 1, "assign", 1)]
    assert bench.value("select asked -> 0 -> 'capabilities' from passes") == ["web"]
    assert replay(bench.installation).same == 2


@pytest.fixture
def recorded(open_bench: Callable[..., Bench]) -> Bench:
    """Three passes: four grants, and two reasons why the group waits."""
    bench = open_bench(engine={"a": noop(), "b": noop(weight=2)}, engines={"slots": {"b": 2}})
    bench.enqueue(5)
    route(bench.installation, "main")
    run, token, _ = bench.live()[0]
    started = _start(bench.installation, run, token)
    assert started is not None
    settle(bench.installation, Held.of(started, token), Success())
    query(bench.url, "delete from workers")
    run_pass(bench.installation, "main")
    return bench


TAMPERED = [
    "update decisions set trace = jsonb_set(trace, '{steps,0,1,0}', '7') where run_id = 1",
    "update decisions set engine = 'x' where run_id = 1",
    "update decisions set outcome = 'overflow' where run_id = 1",
    "update decisions set tier = 'paid' where run_id = 1",
    "update decisions set trace = trace || '{\"waived\": true}' where run_id = 1",
    "update decisions set trace = '{}' where run_id = 1",
    "update decisions set asked = 9 where run_id = 1",
    "update decisions set requirement_key = requirement_key + 1 where job_id is null",
    "update decisions set outcome = 'hold' where job_id is null",
    'update decisions set trace = \'{"reason": "cap_spent"}\' where job_id is null',
    "update passes set world = jsonb_set(world, '{engines,0,weight}', '5') where id = 1",
    "update passes set world = world - 'credits' where id = 1",
    "update passes set classes = jsonb_set(classes, '{0,4,0}', '1') where id = 1",
    "update passes set classes = '[]' where id = 1",
    "update passes set asked = jsonb_set(asked, '{0,project}', '\"else\"')",
]


@pytest.mark.parametrize("deed", TAMPERED)
def test_what_was_changed_is_found(recorded: Bench, deed: str) -> None:
    """Each part of a record is replayed: none changes unnoticed, and a change that cannot be read is no crash."""
    whole = replay(recorded.installation)
    assert (whole.replayed - whole.same, whole.replayed) == (0, recorded.value("select count(*) from decisions"))
    query(recorded.url, deed)
    found = replay(recorded.installation)
    assert found.same < found.replayed == whole.replayed
    assert len(found.differing) == found.replayed - found.same
    told = found.to_json()["differing"][0]
    assert set(told) == {"decision", "pass", "job", "recorded", "replayed"}
    assert told["recorded"] != told["replayed"]
    assert any(each.invariant == "I9" for each in audit(recorded.installation).violations)


def test_pages_since_and_job(recorded: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page comes the same as at once; a part of the time or one job is a part of the decisions."""
    whole = replay(recorded.installation)
    monkeypatch.setattr(replaying, "PAGE", 1)
    steps: list[tuple[int, int]] = []
    paged = replay(recorded.installation, watch=lambda done, of: steps.append((done, of)))
    assert paged == whole
    passes = recorded.value("select count(*) from passes")
    assert steps == [(done, passes) for done in range(1, passes + 1)]
    query(recorded.url, "update passes set at = at - interval '3 hours' where id = 1")
    in_first = recorded.value("select count(*) from decisions where pass_id = 1")
    later = whole.replayed - in_first
    assert replay(recorded.installation, since=timedelta(hours=2)).replayed == later
    assert replay(recorded.installation, since=timedelta(hours=4)).replayed == whole.replayed
    assert replay(recorded.installation, since=datetime.now(UTC) - timedelta(hours=2)).replayed == later
    assert replay(recorded.installation, since=datetime.now(UTC) + timedelta(hours=2)).replayed == 0
    assert replay(recorded.installation, job=1).replayed == 1
    assert replay(recorded.installation, job=1, since=timedelta(hours=2)).replayed == 0
    with pytest.raises(UnknownName, match="unknown job 99"):
        replay(recorded.installation, job=99)


def test_only_so_many_differences_are_told(recorded: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted."""
    query(recorded.url, "update passes set world = '[]'")
    monkeypatch.setattr(replaying, "TOLD", 2)
    found = replay(recorded.installation)
    assert (found.same, len(found.differing)) == (0, 2)


def test_an_installation_without_decisions(open_bench: Callable[..., Bench]) -> None:
    """Nothing recorded is nothing that differs."""
    found = replay(open_bench(engine={"l": noop()}).installation)
    assert found.to_json() == {"replayed": 0, "same": 0, "differing": [], "record_begins": None}


def _plan(url: str, statement: str) -> str:
    (plan,) = query(url, f"explain (format json) {statement}")[0]
    return str(plan)


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (decisions.BOUNDS, {"since": "null", "seconds": "60"}, "passes_at"),
        (decisions.BOUNDS, {"since": "'2026-03-01'", "seconds": "null"}, "passes_at"),
        (decisions.NEXT, {"first": "7", "last": "900", "limit": "20"}, "passes_pkey"),
        (decisions.NEXT_OF_JOB, {"job": "7", "first": "1", "last": "900", "limit": "20"}, "decisions_job"),
        (decisions.OF_RUNS, {"job": "7", "runs": "'{7}'::bigint[]"}, "decisions_job"),
        (decisions.DECISIONS, {"ids": "'{7,8}'::bigint[]"}, "decisions_pass"),
        (decisions.PASSES, {"ids": "'{7,8}'::bigint[]"}, "passes_pkey"),
        (decisions.LATEST_OF_GROUP, {"key": "7", "until": "null"}, "decisions_group"),
    ],
)
def test_questions_by_job_and_by_time_use_their_index(
    database_url: str, statement: Any, values: dict[str, str], index: str
) -> None:
    """On twenty thousand decisions, with statistics and the usual freedom to read a table whole, none does."""
    query(
        database_url,
        "insert into passes (pool, at, world, asked, classes) "
        "select 'main', timestamptz '2026-01-01' + n * interval '1 minute', '{}', '[]', '[]' "
        "from generate_series(1, 1000) n",
    )
    query(
        database_url,
        "insert into decisions (pass_id, ordinal, job_id, requirement_key, run_id, attempt, asked, outcome, trace) "
        "select 1 + n / 20, n % 20, case when n % 10 > 0 then n end, case when n % 10 = 0 then n end, n, 1, 0, "
        "'assign', '{}' from generate_series(1, 20000 - 20) n",
    )
    query(database_url, "vacuum analyze passes, decisions")
    sql = statement.sql
    for name, value in values.items():
        sql = sql.replace(f"%({name})s", value)
    plan = _plan(database_url, sql)
    assert index in plan
    assert "Seq Scan" not in plan


def test_the_command(vibey: CommandLine) -> None:
    """Exit 0 and a line when all is the same; exit 1 and each difference when not; usage errors name the value."""
    jobs = vibey.enqueued(6)
    vibey.route()
    said = vibey("replay", "--since", "2h")
    count = vibey.bench.value("select count(*) from decisions")
    assert (said.code, said.out, said.err) == (0, f"replayed {count} decisions: all the same\n", "")
    assert vibey("replay", "--job", jobs[0], "--json").json == {
        "replayed": 1,
        "same": 1,
        "differing": [],
        "record_begins": None,
    }
    query(vibey.bench.url, f"update decisions set engine = 'else' where job_id = {jobs[0]}")
    said = vibey("replay", COLUMNS="80")
    assert (said.code, "else recorded" in said.out, "1 difference" in said.out) == (1, True, True)
    assert max(map(len, said.out.splitlines())) <= 80
    told = vibey("replay", "--since", "2020-01-01T00:00:00Z", "--json")
    assert (told.code, told.json["differing"][0]["job"]) == (1, jobs[0])
    query(vibey.bench.url, "update passes set world = '[]'")
    assert "cannot be read" in vibey("replay").out
    for wrong in ("yesterday", "2026-13-01", "-3h"):
        refused = vibey("replay", "--since", wrong)
        assert (refused.code, wrong in refused.complaint) == (2, True)
    assert vibey("replay", "--job", 99).code == 3
