"""Real workers follow what is applied: new engines without a restart, and none that their file would run otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.cli import Cli
from tests.support.wait import until
from vibey.services.apply import apply
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fleet import Fleet

SERVES = "select coalesce(bool_or('{engine}' = any(engines)), false) from workers where name like '{worker}@%'"

CONCURRENCY = "select concurrency from workers where name like 'build@%'"


def _rewrite(fleet: Fleet, **words: str) -> None:
    """Edit the fleet's file, and apply it."""
    text = fleet.config.read_text(encoding="utf-8")
    for old, new in words.items():
        assert old in text
        text = text.replace(old, new)
    _put_in_force(fleet, text)


def _put_in_force(fleet: Fleet, text: str) -> None:
    """Apply another file."""
    fleet.config.write_text(text, encoding="utf-8")
    fleet.settings = load(fleet.config, {})
    fleet.installation = fleet.installation.reread(fleet.settings)
    apply(fleet.installation)


def _write(fleet: Fleet, text: str) -> None:
    """Replace the fleet's file as editors do, at once."""
    draft = fleet.folder / "draft.toml"
    draft.write_text(text, encoding="utf-8")
    draft.replace(fleet.config)


def test_a_corrected_file_is_read_again_without_another_generation(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """After an undo the worker leaves the engine unserved until its file is right, through an edit with a mistake."""
    fleet = open_fleet(engine={"near": {}})
    fleet.muster()
    right = fleet.config.read_text(encoding="utf-8")
    _rewrite(fleet, **{'"near"]': '"near", "more"]'})
    fleet.until("select bool_and(generation = 2) from workers", what="the workers to follow")
    apply(fleet.installation, undo=True)
    problem = "select problems->>'near' from workers where name like 'build@%'"
    fleet.until(f"select ({problem}) = 'another argv for near'", what="the worker to say what differs")
    assert not fleet.value(SERVES.format(engine="near", worker="build"))
    [job] = fleet.enqueue(payload={})
    _write(fleet, "not TOML")
    fleet.until(f"select ({problem}) like '%its file cannot be read%'", what="the worker to say so")
    _write(fleet, right)
    fleet.until(SERVES.format(engine="near", worker="build"), what="the worker to read its file again")
    assert fleet.value("select max(number) from generations") == 3
    fleet.until(f"select state = 'succeeded' from jobs where id = {job}", what="the job to run")
    sound(fleet)


def test_a_worker_follows_a_new_engine_without_a_restart(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """A job for the new engine runs on the worker that was there before, while a run of a removed one goes on."""
    fleet = open_fleet(engine={"near": {}})
    [worker] = fleet.muster()
    gate = fleet.gate("old")
    fleet.enqueue(payload={"gate": str(gate)})
    fleet.until_working(1)
    _rewrite(fleet, near="fresh")
    fleet.until(SERVES.format(engine="fresh", worker="build"), what="the worker to serve the new engine")
    assert not fleet.value(SERVES.format(engine="near", worker="build"))
    [job] = fleet.enqueue(payload={})
    fleet.until(f"select state = 'succeeded' and engine = 'fresh' from jobs where id = {job}")
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 2}
    assert worker.running
    sound(fleet)


def test_workers_with_different_files_each_run_what_they_agree_on(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """One that starts with an older file takes no engine away, and says which it does not serve, and why.

    Nor does it reckon the queue by the ageing of its file, as applying that file would.
    """
    fleet = open_fleet(engine={"near": {}, "far": {}}, engines={"priority_age_seconds": 60})
    older = fleet.folder / "older.toml"
    text = fleet.config.read_text(encoding="utf-8")
    other = text.replace('"far"', '"elsewhere"').replace("priority_age_seconds = 60", "priority_age_seconds = 7")
    older.write_text(other, encoding="utf-8")
    fleet.muster()
    (delayed,) = fleet.enqueue(payload={}, delay_seconds=3600)
    queued = f"select xmin::text, standing, (select age_ms from installation) from jobs where id = {delayed}"
    stands = fleet.rows(queued)
    fleet.build("second", environment={"VIBEY_CONFIG": str(older)})
    fleet.until_workers(3)
    problems = "select problems from workers where name like 'second@%'"
    until(lambda: fleet.value(problems), what="the second worker to say what it does not serve")
    assert fleet.value(problems) == {"far": "another argv for far"}
    assert fleet.value(SERVES.format(engine="near", worker="second"))
    assert not fleet.value(SERVES.format(engine="far", worker="second"))
    assert fleet.value(SERVES.format(engine="far", worker="build"))
    assert fleet.rows(queued) == stands
    fleet.rows(f"update jobs set not_before = clock_timestamp() where id = {delayed} returning id")
    fleet.enqueue(3, payload={})
    assert fleet.until_ended() == {"succeeded": 4}
    sound(fleet)


def test_workers_and_beat_follow_another_lease(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """A shorter lease is put in force while nothing runs; ticks come as often as it needs, and a lost run is found."""
    fleet = open_fleet(engine={"near": {}}, engines={"lease_seconds": 60})
    [worker] = fleet.muster()
    _rewrite(fleet, **{"lease_seconds = 60": "lease_seconds = 3"})
    fleet.until("select bool_and(generation = 2) from workers", what="the workers to follow")
    fleet.enqueue(payload={"seconds": 30})
    fleet.until_working(1)
    worker.kill()
    fleet.until("select count(*) = 1 from runs where state = 'lost'", what="the lost run to be found")
    fleet.build("again")
    fleet.rows("update jobs set cancel_requested_at = now() where ended_at is null returning id")
    fleet.until("select bool_and(ended_at is not null) from jobs")
    sound(fleet)


def test_a_worker_starts_processes_for_an_engine_that_is_new(
    open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]
) -> None:
    """Its pool grows by the new engine's slots, and all of them are at work at once beside those it had."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 1}})
    [worker] = fleet.muster()
    before = fleet.value(CONCURRENCY)
    text = fleet.config.read_text(encoding="utf-8")
    engine = text[text.index("[engine.near]") :].replace("near", "fresh")
    _put_in_force(fleet, text.replace("near = 1", "near = 1\nfresh = 2") + engine)
    fleet.until(SERVES.format(engine="fresh", worker="build"), what="the worker to serve the new engine")
    assert fleet.value(CONCURRENCY) == before + 2
    until(lambda: len(worker.pool()) == before + 2, what="the new processes")
    gate = fleet.gate("all")
    fleet.enqueue(3, payload={"gate": str(gate)})
    fleet.until_working(3)
    assert fleet.rows("select engine, count(*)::int from runs group by 1 order by 1") == [("fresh", 2), ("near", 1)]
    gate.touch()
    assert fleet.until_ended() == {"succeeded": 3}
    sound(fleet)


def test_slots_that_are_raised_wait_for_a_restart_which_doctor_names(open_fleet: Callable[..., Fleet]) -> None:
    """A worker has processes for the slots it began with: until it is restarted the others are full."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 1}})
    [worker] = fleet.muster()
    name = fleet.value("select name from workers where name like 'build@%'")
    _rewrite(fleet, **{"near = 1": "near = 3"})
    fleet.until("select bool_and(generation = 2) from workers", what="the workers to follow")
    checks = {each["detail"]: each for each in Cli(fleet.config)("doctor", "--json").json["checks"]}
    lacking = checks["near has 3 slots, and its workers can have 1 at work"]
    assert (lacking["state"], lacking["fix"]) == (
        "warn",
        f"restart {name} for 2 more slots: on its machine run vibey down, then vibey up",
    )
    assert worker.end() == 0
    fleet.build("build")
    restarted = f"select count(*) = 1 from workers where name = '{name}' and slots = '{{3}}'"
    fleet.until(restarted, what="the worker to be there with processes for all slots")
    assert "can have" not in Cli(fleet.config)("doctor").out
