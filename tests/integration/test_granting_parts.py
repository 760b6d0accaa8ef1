"""A pass of many grants is written part by part, beside the deciding, and is one transaction all the same."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg2
import pytest
from sqlalchemy.exc import DBAPIError

from tests.support.databases import plain, query
from tests.support.installation import Bench, noop
from tests.support.wait import until
from vibey.services import control
from vibey.services.audit import audit
from vibey.services.granting import PART
from vibey.services.replay import replay
from vibey.services.route import run_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MANY = 2 * PART + 50
FEW = PART // 5
# The transaction that makes so many runs meets an error of this code; a sequence, as no rollback takes a number back.
OBSTACLE = """
    create sequence met;
    create function stumble() returns trigger language plpgsql as $$ begin
      if nextval('met') = {at} then raise exception 'stumbled' using errcode = '{code}'; end if;
      return new; end $$;
    create trigger stumble before insert on runs for each row execute function stumble();
"""

# The first run of all is not written before the gate's lock is given back.
GATE = """
    create sequence met;
    create function dawdle() returns trigger language plpgsql as $$ begin
      if nextval('met') = 1 then perform pg_advisory_xact_lock(1); end if;
      return new; end $$;
    create trigger dawdle before insert on runs for each row execute function dawdle();
"""
BEFORE_THE_GATE = """
    select count(*) from pg_locks join pg_database d on d.oid = database
    where locktype = 'advisory' and not granted and datname = current_database()
"""


@pytest.fixture(autouse=True)
def usual_turns() -> Iterator[None]:
    """However a pass ends, threads take turns as long as before."""
    before = sys.getswitchinterval()
    yield
    assert sys.getswitchinterval() == before


class Interrupted(BaseException):
    """What a signal raises in the routing thread."""


@pytest.fixture
def interrupting() -> Iterator[Callable[[], None]]:
    """A function that interrupts this thread, whatever it is at, as Ctrl-C or a time limit would."""

    def interrupt(_: int, __: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    routing = threading.get_ident()
    yield lambda: signal.pthread_kill(routing, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def _fleet(open_bench: Callable[..., Bench], **engines: object) -> Bench:
    slots = {"a": MANY, "b": MANY // 2, "p": MANY}
    bench = open_bench(
        engine={"a": noop(weight=3), "b": noop(), "p": noop("paid", capabilities=["far"])},
        engines={"mode": "hybrid", "overflow_after_seconds": 0, "paid_fallback": "count", "slots": slots} | engines,
    )
    control.new_project(bench.installation, "other")
    return bench


@pytest.mark.parametrize("fair", [False, True])
def test_each_part_is_kept_with_the_world_it_was_decided_on(open_bench: Callable[..., Bench], *, fair: bool) -> None:
    """Locals by weight, units of a cap, sessions: each decision replays, every invariant holds."""
    bench = _fleet(open_bench, paid_daily_cap=PART + 20, fair_share=fair)
    bench.enqueue(PART // 2, session="talk")
    bench.enqueue(PART, project="other")
    bench.enqueue(PART, capabilities=("far",))
    bench.enqueue(MANY, project="other", session="talk")
    passed = run_pass(bench.installation, "main")
    assert passed is not None
    assert len(passed.granted) == bench.value("select count(*) from runs") > PART
    sizes = bench.rows("select count(run_id) from decisions group by pass_id order by pass_id")
    assert sizes[0] == (PART,)
    assert len(sizes) > 1
    found = replay(bench.installation)
    assert found.differing == ()
    assert found.same == bench.value("select count(*) from decisions")
    assert audit(bench.installation).violations == ()
    assert bench.value("select count(*) from runs where counted") > 0


def test_a_pass_with_few_free_slots_is_one_part(open_bench: Callable[..., Bench]) -> None:
    """However many jobs had to be looked at to find whose turn it is."""
    bench = _fleet(open_bench, fair_share=True, slots={"a": FEW, "b": FEW, "p": 1})
    bench.enqueue(PART)
    bench.enqueue(PART, project="other")
    passed = run_pass(bench.installation, "main")
    assert passed is not None
    assert len(passed.granted) > FEW
    assert bench.value("select count(*) from passes") == 1


def test_a_part_that_cannot_be_written_undoes_those_before_it(open_bench: Callable[..., Bench]) -> None:
    """Nothing is granted, noted or charged; when the obstacle is gone, the next pass grants all."""
    bench = _fleet(open_bench)
    bench.enqueue(MANY)
    query(bench.url, OBSTACLE.format(at=PART + 1, code="P0001"))
    with pytest.raises(DBAPIError, match="stumbled"):
        run_pass(bench.installation, "main")
    tables = ("runs", "decisions", "passes", "credits", "sessions")
    assert [bench.value(f"select count(*) from {table}") for table in tables] == [0] * len(tables)
    assert bench.value("select count(*) from jobs where state = 'queued'") == MANY
    assert bench.value("select count(*) from ledger where kind = 'RunGranted'") == 0
    # The parts after it were not even tried: on a transaction that has failed, each would be an error of its own.
    assert bench.value("select last_value from met") == PART + 1
    passed = run_pass(bench.installation, "main")
    assert passed is not None
    assert len(passed.granted) == MANY
    assert audit(bench.installation).violations == ()


def test_a_pass_that_the_database_undid_is_made_again_as_a_whole(open_bench: Callable[..., Bench]) -> None:
    """A deadlock found while a later part is written costs the pass another try, and no job its place."""
    bench = _fleet(open_bench)
    jobs = bench.enqueue(MANY)
    query(bench.url, OBSTACLE.format(at=2 * PART + 7, code="40P01"))
    passed = run_pass(bench.installation, "main")
    assert passed is not None
    assert sorted(run.job_id for run in passed.granted) == jobs
    assert bench.value("select count(*) from runs") == MANY
    found = replay(bench.installation)
    assert found.same == MANY


def test_an_interrupted_pass_writes_nothing_more(
    open_bench: Callable[..., Bench], interrupting: Callable[[], None]
) -> None:
    """While the first part is written, parts wait behind it; none of them may follow the undoing of the transaction."""
    bench = _fleet(open_bench)
    jobs = bench.enqueue(MANY)
    query(bench.url, GATE)
    with closing(psycopg2.connect(plain(bench.url))) as gate:
        gate.cursor().execute("select pg_advisory_lock(1)")

        def strike() -> None:
            until(lambda: query(bench.url, BEFORE_THE_GATE) == [(1,)], what="the first part on its way")
            interrupting()
            gate.close()

        striker = threading.Thread(target=strike)
        striker.start()
        with pytest.raises(Interrupted):
            run_pass(bench.installation, "main")
        striker.join()
    for writer in threading.enumerate():
        if writer.name.startswith("ThreadPoolExecutor"):
            writer.join()
    assert bench.value("select count(*) from runs") == 0
    assert bench.value("select count(*) from passes") == 0
    passed = run_pass(bench.installation, "main")
    assert passed is not None
    assert sorted(run.job_id for run in passed.granted) == jobs
