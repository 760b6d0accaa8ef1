"""What there is to note of many groups is noted part by part, beside the passes; none of it is lost or outdated."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import warm
from tests.support.installation import Bench, noop
from vibey.services import notes
from vibey.services.audit import audit
from vibey.services.enqueue import Order, place
from vibey.services.installation import Installation
from vibey.services.replay import replay
from vibey.services.route import route, run_pass
from vibey.settings import Source, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GROUPS = 2 * notes.PART + 20
PROJECTS = """
    insert into projects (name, policy)
    select 'p' || n, policy from generate_series(1, {count}) n, projects where name = 'default'
"""
REASONS = "select reason, count(*) from group_states group by 1"
BY_TRANSACTION = "select count(*) from group_states group by xmin::text order by 1 desc"


def _crowded(open_bench: Callable[..., Bench], **engines: Any) -> Bench:
    """An engine whose one slot is taken, and a job of each of many projects, which are a group each."""
    bench = open_bench(engine={"a": noop(), "p": noop("paid", capabilities=["far"])}, engines=engines)
    bench.enqueue(1)
    assert route(bench.installation, "main") == 1
    bench.rows(PROJECTS.format(count=GROUPS) + " returning id")
    place(bench.installation, [Order(project=f"p{number + 1}") for number in range(GROUPS)])
    return bench


def _sound(bench: Bench) -> None:
    found = replay(bench.installation)
    assert found.differing == ()
    assert found.same == bench.value("select count(*) from decisions")
    assert audit(bench.installation).violations == ()


def _note_all(bench: Bench) -> None:
    """Make passes, and note what they leave, until nothing is left, however long it takes."""
    while (passed := run_pass(bench.installation, "main")) is not None and not passed.noted:
        notes.note_rest(bench.installation, "main")


def _note_and_die(tables: dict[str, Any], folder: Path) -> None:
    """Be killed, as by `kill -9`, once the first part is committed."""
    installation = Installation.open(settings_of(Source(None, folder, tables), {}))
    notes.note_rest(installation, "main", may_go_on=lambda: bool(os.kill(os.getpid(), signal.SIGKILL)))


def test_many_groups_are_noted_in_parts(open_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """No transaction notes more than a part; one killed after the first loses nothing; each reason is recorded once."""
    bench = _crowded(open_bench)
    passed = run_pass(bench.installation, "main")
    assert passed is not None
    assert not passed.noted
    assert bench.rows(REASONS) == []
    process = warm.context.Process(target=_note_and_die, args=(bench.tables, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert bench.rows(REASONS) == [("slots_full", notes.PART)]
    _note_all(bench)
    assert bench.rows(REASONS) == [("slots_full", GROUPS)]
    assert [count for (count,) in bench.rows(BY_TRANSACTION)] == [notes.PART, notes.PART, 20]
    assert bench.value("select count(*) from decisions where requirement_key is not null") == GROUPS
    _sound(bench)


def test_a_pass_that_begins_meanwhile_ends_the_noting(open_bench: Callable[..., Bench]) -> None:
    """What was judged before it is not written after it: here the engine loses its worker between two parts."""
    bench = _crowded(open_bench)
    passes = []

    def look_again() -> bool:
        bench.rows("update workers set engines = '{}' returning name")
        passes.append(run_pass(bench.installation, "main"))
        return True

    assert not notes.note_rest(bench.installation, "main", may_go_on=look_again)
    assert [each.noted for each in passes if each] == [False]
    assert bench.rows(REASONS) == [("slots_full", notes.PART)]
    _note_all(bench)
    assert bench.rows(REASONS) == [("no_worker", GROUPS)]
    _sound(bench)


def test_a_group_that_is_served_meanwhile_has_no_reason(open_bench: Callable[..., Bench]) -> None:
    """A job granted between two parts leaves its group without one, though it was judged to wait before."""
    bench = _crowded(open_bench)

    def serve() -> bool:
        bench.rows("update engines set slots = 2 where name = 'a' returning name")
        passed = run_pass(bench.installation, "main")
        assert passed is not None
        assert len(passed.granted) == 1
        return True

    assert not notes.note_rest(bench.installation, "main", may_go_on=serve)
    _note_all(bench)
    left = "select count(*) from group_states g join jobs j using (pool, requirement_key) where j.state <> 'queued'"
    assert bench.value(left) == 0
    assert bench.rows(REASONS) == [("slots_full", GROUPS - 1)]
    _sound(bench)


def test_jobs_are_held_in_parts(open_bench: Callable[..., Bench]) -> None:
    """Each of many groups and each of many jobs of one group is held once, at most so many in a transaction."""
    bench = _crowded(open_bench, mode="hybrid", overflow_after_seconds=600, paid_daily_cap=5)
    many = 2 * notes.HELD + 5
    bench.enqueue(many)
    _note_all(bench)
    assert bench.rows(REASONS) == [("held", GROUPS + 1)]
    holds = "from ledger where kind = 'EngineSlotWaitStarted'"
    assert bench.rows(f"select count(*), count(distinct job_id) {holds}") == [(GROUPS + many,) * 2]
    assert bench.value("select count(*) from jobs where state = 'queued' and held_at is null") == 0
    assert bench.rows(f"select 1 {holds} group by xmin::text having count(*) > {notes.HELD}") == []
    assert bench.value(f"select count(distinct xmin::text) {holds}") > 2
    _sound(bench)


@pytest.mark.parametrize("woken", [True, False])
def test_a_router_notes_no_further_part_while_it_is_awaited(open_bench: Callable[..., Bench], *, woken: bool) -> None:
    """A wake-up that comes while a router is at work is seen by it, and left for it to answer."""
    bench = open_bench(engine={"a": noop()})
    wakeups = bench.installation.wakeups
    assert wakeups.begin("main", "me")
    if woken:
        bench.installation.wake("main")
    assert wakeups.is_awaited("main") is woken
    assert wakeups.finish("main", "me") is woken
    assert not wakeups.is_awaited("main")


def test_an_event_of_a_first_hold_names_the_first_local_engines(open_bench: Callable[..., Bench]) -> None:
    """Of a large fleet it gives the number of those that it leaves out, as every job has such an event."""
    fleet = {f"e{number:03}": noop() for number in range(60)}
    bench = open_bench(
        engine=fleet | {"p": noop("paid")},
        engines={"mode": "hybrid", "overflow_after_seconds": 600, "slots": dict.fromkeys(fleet, 1)},
    )
    bench.enqueue(61)
    assert route(bench.installation, "main") == 60
    [(data,)] = bench.rows("select data from ledger where kind = 'EngineSlotWaitStarted'")
    assert [each["engine"] for each in data["local_slots"]] == [f"e{number:03}" for number in range(50)]
    assert data["local_slots_omitted"] == 10
