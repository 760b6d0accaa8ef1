"""Pruning on a real database: what is old leaves, and everything told of the rest, and of the past, stays true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.ageing import INSTANTS, forgetting, grow_old, sound, work
from tests.support.cli import Cli, write_config
from tests.support.databases import query
from tests.support.history import crowded
from tests.support.installation import Bench, noop
from vibey.domain.errors import Removed, UnknownName
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.domain.rotation import UNIT
from vibey.services import control, explain, logs, measure, metrics, prune, replay, views
from vibey.services.audit import audit
from vibey.services.cost import cost
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.store import horizon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.outcome import Outcome

COUNTS = "select (select count(*) from jobs), (select count(*) from runs), (select count(*) from passes)"
LEDGER = "select md5(string_agg(l::text, ',' order by id)) from ledger l"


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """A fleet whose jobs are kept ten days."""
    return forgetting(open_bench)


def spent_on(bench: Bench) -> list[dict[str, Any]]:
    """The costs of all days that have any."""
    return [day for day in cost(bench.installation, days=400)["days"] if day["rows"]]


def counted(bench: Bench) -> dict[object, object]:
    """The metrics that only grow."""
    found = metrics.snapshot(bench.installation)
    return {(each.family.name, each.labels): each.value for each in found.samples if "selected" in each.family.name}


def test_old_jobs_leave_and_nothing_told_of_them_changes(bench: Bench) -> None:
    """Jobs, runs, decisions and passes go; ledger, costs, units, picks, credits, audit and replay stay as they were."""
    bench.enqueue(60)
    work(bench, 1)
    grow_old(bench)
    old = bench.value("select max(id) from jobs")
    before = spent_on(bench), counted(bench), bench.value(LEDGER), bench.rows("select * from credits order by 1, 2")
    events = views.ledger(bench.installation, views.LedgerPage(job=old))["events"]
    units = sound(bench)["units"]
    assert units > 0
    runs = bench.value("select count(*) from runs")
    found = prune.prune(bench.installation)
    assert (found.jobs, found.runs, found.done) == (60, runs, True)
    assert bench.rows(COUNTS) == [(0, 0, 0)]
    after = spent_on(bench), counted(bench), bench.value(LEDGER), bench.rows("select * from credits order by 1, 2")
    assert after == before
    assert before[0][0]["cost_usd"] > 0
    assert views.ledger(bench.installation, views.LedgerPage(job=old))["events"] == events
    assert sound(bench) | {"units": units, "removed_jobs": 60, "removed_runs": runs} == sound(bench)
    bench.enqueue(30)
    work(bench, 2)
    assert sound(bench)["units"] > units
    assert not prune.prune(bench.installation).jobs


def test_what_is_young_or_not_ended_stays_whole(bench: Bench) -> None:
    """A job keeps the passes that decided about it, with all their decisions, however old, until it leaves itself."""
    first = bench.enqueue(3)
    route(bench.installation, "main")
    for run, token, _ in bench.live()[:2]:
        started = _start(bench.installation, run, token)
        assert started is not None
        settle(bench.installation, Held.of(started, token), Success())
    grow_old(bench)
    bench.enqueue(20)
    work(bench, 3, leave=3)
    left = {job for (job,) in bench.rows("select id from jobs where ended_at is null")}
    found = prune.prune(bench.installation)
    gone = set(first) - {job for (job,) in bench.rows("select id from jobs")}
    assert found.jobs == len(gone) == 2
    assert left <= {job for (job,) in bench.rows("select id from jobs")}
    assert (
        bench.value("select count(*) from runs r where not exists (select 1 from decisions where run_id = r.id)") == 0
    )
    sound(bench)
    survivor = next(job for job in first if job not in gone)
    told = explain.explain(bench.installation, survivor, every_run=True)
    assert [run["reproduced"] for run in told["runs"]] == [True] * len(told["runs"])
    assert told["runs"]
    work(bench, 4)
    grow_old(bench)
    prune.prune(bench.installation)
    assert bench.rows(COUNTS) == [(0, 0, 0)]
    sound(bench)


def test_why_a_group_waits_is_kept(bench: Bench) -> None:
    """The latest decision about a group that still waits stays; an older one about it goes."""
    bench.enqueue(12)
    route(bench.installation, "main")
    (waiting, *_) = bench.rows("select id from jobs where state = 'queued'")
    grow_old(bench)
    prune.prune(bench.installation)
    told = explain.explain(bench.installation, waiting[0])["waiting"]
    assert told["decision"]["reproduced"]
    assert told["decision"]["reason"] == told["reason"]
    sound(bench)


def test_an_old_job_is_told_to_be_gone(bench: Bench) -> None:
    """Whoever asks for a removed job hears so, with the way to its events; one that never was is unknown."""
    (job,) = bench.enqueue()
    work(bench, 5)
    grow_old(bench)
    prune.prune(bench.installation)
    asks: tuple[Callable[[int], object], ...] = (
        lambda number: views.job(bench.installation, number),
        lambda number: explain.explain(bench.installation, number),
        lambda number: logs.find(bench.installation, number),
        lambda number: control.retry(bench.installation, number),
        lambda number: control.cancel(bench.installation, number),
        lambda number: replay.replay(bench.installation, job=number),
    )
    for ask in asks:
        with pytest.raises(Removed, match=rf"job {job} is older than the record.*vibey ledger --job {job}"):
            ask(job)
        with pytest.raises(UnknownName, match="unknown job 999"):
            ask(999)
    assert replay.replay(bench.installation).to_json()["record_begins"] is not None
    kept = views.status(bench.installation)["database"]
    assert (kept["removed_jobs"], kept["keep_days"]) == (1, 10)
    assert kept["bytes"] == pytest.approx(bench.value("select pg_database_size(current_database())"), rel=0.5)


def test_the_command_prunes_and_the_others_say_what_is_gone(bench: Bench, tmp_path: Path) -> None:
    """`vibey prune` tells what it removed; status, audit, replay, job and cost tell of a shorter record."""
    bench.enqueue(4)
    work(bench, 18)
    runs = bench.value("select count(*) from runs")
    grow_old(bench)
    services = {"database_url": bench.url, "redis_url": bench.redis_url}
    vibey = Cli(write_config(tmp_path / "vibey.toml", services, "keep_days = 10"))
    spent = vibey("cost", "--days", 200, "--json").json["days"]
    assert vibey("prune").out.startswith(f"removed 4 jobs, {runs} runs, ")
    assert vibey("prune", "--json").json == {"jobs": 0, "runs": 0, "passes": 0, "done": True}
    assert vibey("cost", "--days", 200, "--json").json["days"] == spent
    assert "ended jobs are kept 10 days; 4 jobs removed, the record begins" in vibey("status").out
    assert f"besides 4 removed jobs with {runs} runs" in " ".join(vibey("audit").out.split())
    assert "those about jobs that ended before" in vibey("replay").out
    gone = vibey("job", 1)
    assert (gone.code, "older than the record" in gone.complaint) == (3, True)
    past = vibey("replay", "--since", "200d", "--what-if", "cap=1", "--json").json
    assert (past["jobs"], past["record_begins"] is not None) == (0, True)


def test_an_account_is_probed_again_after_its_last_probe_has_grown_old(bench: Bench) -> None:
    """The run that an account points to as its last probe stays; a circuit that opens later gets its trial."""

    def run_one(outcome: Outcome) -> None:
        bench.enqueue(engines=["l"])
        route(bench.installation, "main")
        ((run, token, engine),) = bench.live()
        assert engine == "l"
        started = _start(bench.installation, run, token)
        assert started is not None
        assert settle(bench.installation, Held.of(started, token), outcome) is not None
        for job in bench.rows("select id from jobs where state = 'queued'"):
            control.cancel(bench.installation, int(job[0]))

    spent = Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW, resets_in_ms=60_000)
    for _ in range(2):
        run_one(spent)
        bench.let_time_pass(24 * 3600)
        run_one(Success())
        grow_old(bench)
        prune.prune(bench.installation)
    probe = bench.value("select probe_run_id from accounts where name = 'l'")
    assert bench.rows("select id from runs") == [(probe,)]
    assert audit(bench.installation).violations == ()


def test_for_ever_removes_nothing(open_bench: Callable[..., Bench]) -> None:
    """With keep_days 0 nothing ever leaves."""
    bench = open_bench(engine={"l": noop()}, engines={"retry_backoff_seconds": 0}, services={"keep_days": 0})
    bench.enqueue(3)
    work(bench, 6)
    grow_old(bench, 3000)
    assert prune.prune(bench.installation).to_json() == {"jobs": 0, "runs": 0, "passes": 0, "done": True}
    assert bench.value("select count(*) from jobs") == 3


def test_a_measurement_finds_all_of_its_window(open_bench: Callable[..., Bench]) -> None:
    """Jobs a project's measurement looks back on are kept, however few days jobs are kept otherwise."""
    bench = open_bench(
        engine={"near": noop(), "bought": noop("paid")}, engines={"mode": "auto"}, services={"keep_days": 1}
    )
    bench.set_default(auto_window_hours=400)
    crowded(bench)
    for table in ("jobs", "runs"):
        aged = ", ".join(f"{each} = {each} - interval '150 hours'" for each in INSTANTS[table])
        query(bench.url, f"update {table} set {aged}")
    first = measure.measure(bench.installation, "default", force=True)["evidence"]
    assert first["demand"] > 0
    prune.prune(bench.installation)
    again = measure.measure(bench.installation, "default", force=True)["evidence"]
    assert (again["demand"], again["contended"]) == (first["demand"], first["contended"])


def test_a_death_between_any_two_steps_costs_nothing(bench: Bench) -> None:
    """After every single transaction of a pruning the record is whole, and the next one goes on."""
    bench.enqueue(12)
    work(bench, 10)
    grow_old(bench)
    cutoff = bench.value("select now() - interval '10 days'")
    steps = 0
    run = bench.installation.database.run
    while run(lambda connection: horizon.fold(connection, cutoff, UNIT, 2)):
        sound(bench)
        steps += 1
    while (row := run(lambda connection: horizon.remove(connection, cutoff, 0, 3))).jobs:
        assert row.reached is not None
        sound(bench)
        steps += 1
    while run(lambda connection: horizon.sweep(connection, 0, 2)).passes:
        sound(bench)
        steps += 1
    assert steps > 8
    assert bench.rows(COUNTS) == [(0, 0, 0)]


def test_a_job_is_not_removed_before_its_passes_are_folded(bench: Bench) -> None:
    """Where folding has not come so far, the job waits for it."""
    bench.enqueue(2)
    work(bench, 11)
    grow_old(bench)
    cutoff = bench.value("select now() - interval '10 days'")
    row = bench.installation.database.run(lambda connection: horizon.remove(connection, cutoff, 0, 100))
    assert (row.jobs, row.aged) == (0, True)


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("delete from jobs where id = (select min(id) from jobs)", "of the jobs the ledger tells of 4 are not there"),
        ("delete from runs where id = (select max(id) from runs)", "of the runs the ledger tells of"),
        ("update openings set credit = credit + 1 where member = 'm'", "shares less picks are"),
        ("update horizon set jobs = jobs - 1", "and 2 were removed"),
    ],
)
def test_what_is_lost_rather_than_removed_is_found(bench: Bench, deed: str, words: str) -> None:
    """An audit knows what was removed by number and by balance; a row that is gone beside that is a breach."""
    bench.enqueue(3)
    work(bench, 16)
    grow_old(bench)
    prune.prune(bench.installation)
    bench.enqueue(3)
    work(bench, 17)
    sound(bench)
    query(bench.url, deed)
    assert any(words in each.detail for each in audit(bench.installation).violations)
