"""Ageing and turns of projects, through a real router."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.wait import until
from vibey.domain.outcome import Success
from vibey.domain.turn import standing
from vibey.services import control, modes
from vibey.services.apply import apply
from vibey.services.audit import audit
from vibey.services.explain import explain
from vibey.services.replay import replay
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.settings import Source, settings_of
from vibey.store import ageing, jobs
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

FAIR = {"fair_share": True}


def _projects(bench: Bench, *names: str) -> None:
    for name in names:
        control.new_project(bench.installation, name)


def _end_all(bench: Bench) -> list[int]:
    """End every live run well and route again; the jobs they were of, as granted."""
    ended = []
    for run, token, _ in bench.live():
        started = _start(bench.installation, run, token)
        assert started is not None
        assert settle(bench.installation, Held.of(started, token), Success()) is not None
        ended.append(started.job_id)
    route(bench.installation, "main")
    return ended


def _granted(bench: Bench, count: int) -> list[str]:
    """The projects of the first so many grants, as slots are freed one after the other."""
    route(bench.installation, "main")
    while bench.value("select count(*) from runs") < count and _end_all(bench):
        pass
    rows = bench.rows(
        "select p.name from runs r join jobs j on j.id = r.job_id join projects p on p.id = j.project_id order by r.id"
    )
    return [name for (name,) in rows][:count]


def test_many_jobs_of_one_project_do_not_keep_another_waiting(open_bench: Callable[..., Bench]) -> None:
    """The one job of a project comes second, however many another had queued before."""
    bench = open_bench(engine={"a": noop()}, engines=FAIR)
    _projects(bench, "many", "one")
    bench.enqueue(200, project="many")
    bench.enqueue(1, project="one")
    assert _granted(bench, 4) == ["many", "one", "many", "many"]
    assert audit(bench.installation).violations == ()


def test_without_fair_share_the_queue_is_served_in_order(open_bench: Callable[..., Bench]) -> None:
    """It is off by default."""
    bench = open_bench(engine={"a": noop()})
    _projects(bench, "many", "one")
    bench.enqueue(3, project="many")
    bench.enqueue(1, project="one")
    assert _granted(bench, 4) == ["many", "many", "many", "one"]


def test_slots_are_shared_by_weight(open_bench: Callable[..., Bench]) -> None:
    """Three to one, evenly spread, whoever came first; each grant tells its turn and is made again."""
    bench = open_bench(engine={"a": noop()}, engines=FAIR | {"fair_weights": {"web": 3}})
    _projects(bench, "lab", "web")
    for project in ("lab", "web"):
        bench.enqueue(30, project=project)
    got = _granted(bench, 24)
    assert all(Counter(got[at : at + 4]) == {"web": 3, "lab": 1} for at in range(0, 24, 4)), got
    found = audit(bench.installation)
    assert found.violations == ()
    report = replay(bench.installation)
    assert report.same == report.replayed > 0
    job = bench.value("select job_id from runs order by id limit 1")
    [turn] = explain(bench.installation, job)["runs"][0]["turn"]
    assert {each["member"]: each["share"] for each in turn["members"]} == {"lab": 0.25, "web": 0.75}
    assert turn["chosen"] == got[0]


def test_a_forged_turn_is_found(open_bench: Callable[..., Bench]) -> None:
    """Who took part is on record, and whose turn it was follows from it."""
    bench = open_bench(engine={"a": noop()}, engines=FAIR)
    _projects(bench, "lab", "web")
    bench.enqueue(1, project="lab")
    bench.enqueue(1, project="web")
    assert _granted(bench, 1) == ["lab"]
    query(bench.url, """update passes set classes = replace(classes::text, '"lab", "web"', '"web", "lab"')::jsonb""")
    report = replay(bench.installation)
    assert report.replayed - report.same == 1


def test_turns_are_taken_only_by_those_who_could_use_one(open_bench: Callable[..., Bench]) -> None:
    """A project whose jobs nothing can take neither gains nor pays."""
    bench = open_bench(engine={"a": noop(), "b": noop(capabilities=["web"], enabled=False)}, engines=FAIR)
    _projects(bench, "lab", "shop", "web")
    bench.enqueue(1, project="web", capabilities=["web"])
    for project in ("lab", "shop"):
        bench.enqueue(5, project=project)
    assert _granted(bench, 4) == ["lab", "shop", "lab", "shop"]
    assert bench.rows("select member from credits where pool = '(main projects)' order by 1") == [("lab",), ("shop",)]


def test_priority_goes_before_turns(open_bench: Callable[..., Bench]) -> None:
    """Projects share at equal priority; a more urgent job is nobody's turn."""
    bench = open_bench(engine={"a": noop()}, engines=FAIR)
    _projects(bench, "lab", "web")
    bench.enqueue(2, project="lab", priority=1)
    bench.enqueue(2, project="web")
    assert _granted(bench, 4) == ["lab", "lab", "web", "web"]


def test_a_full_engines_jobs_do_not_keep_an_idle_one_waiting(open_bench: Callable[..., Bench]) -> None:
    """1,000 urgent jobs for a full engine, 100 others for an idle one: a single pass fills that one."""
    engines: dict[str, Any] = {"slots": {"full": 4, "idle": 40}}
    able = {name: noop(capabilities=[f"for-{name}"]) for name in ("full", "idle")}
    bench = open_bench(engine=able, engines=engines)
    bench.enqueue(1000, priority=9, capabilities=["for-full"])
    route(bench.installation, "main")
    bench.enqueue(100, capabilities=["for-idle"])
    assert route(bench.installation, "main") == 40
    assert Counter(engine for _, _, engine in bench.live()) == {"full": 4, "idle": 40}


def test_waiting_is_worth_priority(open_bench: Callable[..., Bench]) -> None:
    """A job that has waited for two steps goes before a new one that is a step more urgent, not before one of three."""
    bench = open_bench(engine={"a": noop()}, engines={"priority_age_seconds": 100})
    [old] = bench.enqueue()
    query(bench.url, "update jobs set standing = standing - 200000, created_at = created_at - interval '200 seconds'")
    [urgent], [more] = bench.enqueue(priority=3), bench.enqueue(priority=1)
    ended = []
    route(bench.installation, "main")
    while (done := _end_all(bench)) and len(ended) < 3:
        ended += done
    assert ended == [urgent, old, more]


def test_the_database_reckons_where_a_job_stands_as_the_domain_does(open_bench: Callable[..., Bench]) -> None:
    """For every priority, with ageing and without."""
    for age in (0, 60):
        bench = open_bench(engine={"a": noop()}, engines={"priority_age_seconds": age})
        for priority in (-1_000_000, -1, 0, 7, 1_000_000):
            bench.enqueue(priority=priority)
        rows = bench.rows("select priority, (extract(epoch from created_at) * 1000)::bigint, standing from jobs")
        for priority, created_ms, stands in rows:
            # The instant of the insert and the column's default are read apart.
            assert abs(standing(priority, created_ms, age * 1000) - stands) <= (60_000 if age else 0)


def test_another_ageing_moves_the_queue(open_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Jobs queued before are reckoned by the new value as soon as it is put in force, and by the old one again."""
    bench = open_bench(engine={"a": noop()})
    [old] = bench.enqueue()
    query(bench.url, "update jobs set created_at = created_at - interval '1 day'")
    [urgent] = bench.enqueue(priority=1)
    order = "select id from jobs order by standing, id"
    assert bench.rows(order) == [(urgent,), (old,)]
    for age, expected in ((60, [(old,), (urgent,)]), (0, [(urgent,), (old,)])):
        tables = {**bench.tables, "engines": {**bench.tables["engines"], "priority_age_seconds": age}}
        changed = bench.installation.__class__.open(settings_of(Source(None, tmp_path, tables), {}))
        apply(changed)
        changed.database.dispose()
        assert bench.rows(order) == expected


def test_all_of_more_projects_than_a_pass_fetches_are_served(
    open_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With jobs enough of those that come first to keep the slots busy, the others have their turns all the same."""
    monkeypatch.setattr("vibey.services.route.LISTED", 4)
    bench = open_bench(engine={"a": noop()}, engines=FAIR)
    names = [f"p{number}" for number in range(20)]
    _projects(bench, *names)
    for name in names:
        bench.enqueue(30, project=name)
    assert set(_granted(bench, 100)) == set(names)
    assert audit(bench.installation).violations == ()


def test_enqueueing_waits_while_the_queue_is_reckoned_anew(open_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Nobody's job is left standing by the old ageing: an enqueue beside the change is reckoned by the new one."""
    bench = open_bench(engine={"a": noop()})
    bench.enqueue(5)
    tables = {**bench.tables, "engines": {**bench.tables["engines"], "priority_age_seconds": 60}}
    changed = bench.installation.__class__.open(settings_of(Source(None, tmp_path, tables), {}))
    made: list[int] = []
    enqueues = threading.Thread(target=lambda: made.extend(bench.enqueue(1)))

    def hold(connection: Any) -> None:
        assert ageing.change(connection, 60_000)
        enqueues.start()
        blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%job-insert%'"
        until(lambda: bench.value(blocked) == 1, what="the enqueue to wait for the change")

    changed.database.run(hold)
    changed.database.dispose()
    enqueues.join()
    assert len(made) == 1
    assert bench.value("select min(standing) from jobs") > 10**12


def test_a_change_of_ageing_waits_for_whoever_is_about_to_move_a_job(
    open_bench: Callable[..., Bench],
) -> None:
    """A pass or a settlement holds rows before it writes them: neither it nor the change is undone for the other."""
    bench = open_bench(engine={"a": noop()})
    [job] = bench.enqueue()
    errors: list[Exception] = []

    def change() -> None:
        try:
            with bench.installation.database.begin() as connection:
                assert ageing.change(connection, 60_000)
        except Exception as error:  # noqa: BLE001  told by the assertion
            errors.append(error)

    changes = threading.Thread(target=change)
    blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%vibey:age-%'"
    with bench.installation.database.begin() as connection:
        assert jobs.LOCK.first(connection, id=job) is not None
        changes.start()
        until(lambda: bench.value(blocked) == 1, what="the change to wait for the job")
        assert jobs.CANCEL_QUEUED.run(connection, ids=[job]) == 1
    changes.join()
    assert errors == []
    assert bench.value("select age_ms from installation") == 60_000


def test_a_change_of_ageing_may_take_longer_than_other_statements(open_bench: Callable[..., Bench]) -> None:
    """Breaking it off would leave the queue as it was, after having stopped it, for as often as a worker starts."""
    bench = open_bench(engine={"a": noop()})
    timeout = Statement("test-timeout", "this transaction's limit", "show statement_timeout")

    def changed(connection: Any) -> str:
        assert ageing.change(connection, 60_000)
        return str(timeout.scalar(connection))

    assert bench.installation.database.run(changed) == "15min"
    assert bench.installation.database.run(timeout.scalar) == "1min"


def test_a_job_retried_by_hand_stands_by_the_ageing_in_force(open_bench: Callable[..., Bench]) -> None:
    """It ended under another ageing; left standing by that one it would come before, or after, everybody for ever."""
    bench = open_bench(engine={"a": noop()})
    for age in (60_000, 0):
        [early] = bench.enqueue()
        control.cancel(bench.installation, early)
        bench.installation.database.run(lambda connection, age=age: ageing.change(connection, age))
        [urgent] = bench.enqueue(priority=1)
        control.retry(bench.installation, early)
        stands = dict(bench.rows(f"select id, standing from jobs where id in ({early}, {urgent})"))
        assert 0 < stands[early] - stands[urgent] <= (age or 1)


def test_a_pass_keeps_only_what_its_decisions_depend_on(open_bench: Callable[..., Bench]) -> None:
    """However many projects wait, a grant's record tells of those that took part in it, and can be replayed."""
    paid = {"cloud": noop("paid")}
    bench = open_bench(engine={"a": noop()} | paid, engines=FAIR | {"mode": "hybrid", "paid_fallback": "count"})
    names = [f"p{number}" for number in range(12)]
    _projects(bench, *names)
    for name in names[:8]:
        bench.enqueue(3, project=name)
    for name in names[8:]:
        bench.enqueue(3, project=name, priority=-1)
    _granted(bench, 6)
    passes = bench.rows("select world, asked from passes order by id")
    for kept, asked in passes:
        concerned = {each["project"] for each in asked}
        assert set(kept["policies"]) == set(kept["caps"]) == concerned
    assert min(len(asked) for _, asked in passes) == 1
    kept = passes[-1][0]
    rivals = {member for pool, member, _ in kept["credits"] if pool == "(main projects)"}
    assert rivals <= set(names[:8])
    report = replay(bench.installation)
    assert report.same == report.replayed > 3
    assert audit(bench.installation).violations == ()


def test_the_rules_of_thousands_of_projects_are_read_once(open_bench: Callable[..., Bench]) -> None:
    """Every pass asks for those of every project that has a job."""
    bench = open_bench(engine={"a": noop()})
    names = [f"p{number}" for number in range(3000)]
    insert = "insert into projects (name, policy) select 'p' || n, policy from projects, generate_series(0, 2999) n"
    query(bench.url, insert)
    resolve, policy = modes.resolve, modes._policy  # noqa: SLF001  (what is remembered shows nowhere else)
    first = bench.installation.database.run(lambda connection: resolve(connection, bench.installation, names))
    missed = policy.cache_info().misses
    again = bench.installation.database.run(lambda connection: resolve(connection, bench.installation, names))
    assert again == first
    assert len(again) == 3000
    assert policy.cache_info().misses == missed
