"""Routed tasks behave as a Celery user expects: a sample project with its own workers beside a fleet of ours.

One fleet serves the whole module; each test looks only at its own calls.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError, TimeLimitExceeded, WorkerLostError
from kombu.exceptions import OperationalError
from sqlalchemy import create_engine

from tests.support import bookshop, databases
from tests.support.bookshop import Bookshop
from tests.support.checker import violations
from tests.support.fleet import Fleet
from tests.support.wait import HANGING, until
from vibey import InvalidInput, Refused, embedded
from vibey.services.audit import audit
from vibey.services.control import cancel

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = HANGING

# Celery's result backend, which some tests have write in this process, calls redis-py by an old name.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


@pytest.fixture(scope="module")
def shop(
    services: embedded.Services,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    worker_number: int,
) -> Iterator[Bookshop]:
    """The sample project and its worker, beside a fleet with two engines for it and one for anything."""
    name = f"vibey_shop_{uuid.uuid4().hex}"
    url = databases.create(services.database_url, name, template=template_database)
    redis_url = f"{services.redis_url.rsplit('/', 1)[0]}/{1 + worker_number % 15}"
    tables = {
        "engine": {
            "press": bookshop.engine(),
            "cloud": bookshop.engine("paid"),
            # each for the tests of one kind of trouble: circuits are for all
            **{name: bookshop.engine(weight=0.001) for name in ("lender", "rack", "desk")},
            "hand": {},
        },
        "engines": {"slots": {"press": 2}, "lease_seconds": 6, "paid_fallback": "count"},
    }
    fleet = Fleet(tmp_path_factory.mktemp("shop"), embedded.Services(url, redis_url), f"shop{name}:", tables)
    opened = Bookshop(fleet)
    try:
        fleet.muster()
        opened.worker()
        yield opened
        fleet.until_nothing_runs()
        # A result is told before its run is settled.
        fleet.until("select count(*) = 0 from runs where ended_at is null")
        assert violations(fleet.url, fleet.labour_log) == []
        assert audit(fleet.installation).violations == ()
    finally:
        opened.close()
        fleet.close()
        databases.drop(services.database_url, name)


def test_a_call_and_its_result(shop: Bookshop) -> None:
    """`delay` takes a slot of an engine the task names, and `get` has the value, as from any worker."""
    result = shop.tasks.print_book.delay("Emma")
    assert result.get(timeout=SECONDS) == f"Emma printed by press for {result.id}"
    assert (result.state, result.successful(), result.name) == ("SUCCESS", True, None)
    columns = "state, engine, idempotency_key, result ->> 'celery'"
    until(lambda: shop.jobs(result.id) == ["succeeded"], what="the job's end")
    assert shop.jobs(result.id, columns) == [("succeeded", "press", f"celery {result.id} 0.0", "SUCCESS")]
    assert shop.app.AsyncResult(result.id).get() == result.get()


@pytest.mark.slow
def test_what_the_body_sees(shop: Bookshop) -> None:
    """Its own request, with headers, and its run: engine, effort and session as this call asked."""
    wishes = {"effort": "high", "session": "austen", "engines": ["cloud"]}
    stamp: dict[str, Any] = {"stamped_headers": ["edition"], "edition": "first"}
    result = shop.tasks.tell.apply_async(vibey=wishes, headers={"shelf": 3}, **stamp)
    seen = result.get(timeout=SECONDS)
    assert (seen["id"], seen["root_id"], seen["parent_id"]) == (result.id, result.id, None)
    assert (seen["engine"], seen["hostname"], seen["effort"], seen["session"]) == ("cloud", "cloud", "high", "austen")
    assert seen["headers"]["shelf"] == 3
    assert (seen["project"], seen["stamps"]) == ("default", {"edition": "first"})


def test_a_chain_over_both_kinds(shop: Bookshop) -> None:
    """Steps are routed if their task is: the shop's worker and the engines take turns, and parents are known."""
    tasks = shop.tasks
    result = chain(tasks.add.s(1, 2), tasks.double.s(), tasks.add.s(10), tasks.double.s()).apply_async()
    assert result.get(timeout=SECONDS) == 32
    assert result.parent.parent.get(timeout=SECONDS) == 6
    assert shop.jobs(result.id, "payload -> 'celery_task' -> 'headers' ->> 'root_id'") == [
        result.parent.parent.parent.id
    ]
    assert len(shop.jobs(result.parent.parent.id)) == 1
    assert shop.jobs(result.parent.id) == []


@pytest.mark.slow
def test_a_group(shop: Bookshop) -> None:
    """All of it, in order, whichever side each ran on."""
    result = group(shop.tasks.double.s(1), shop.tasks.add.s(1, 1), shop.tasks.double.s(3)).apply_async()
    assert result.get(timeout=SECONDS) == [2, 2, 6]


def test_chords_over_both_kinds(shop: Bookshop) -> None:
    """The body runs once, after the whole header: a routed header with a plain body, the other way, and mixed."""
    tasks = shop.tasks
    plain_body = chord([tasks.double.s(n) for n in range(3)])(tasks.total.s())
    routed_body = chord([tasks.add.s(n, n) for n in range(3)])(tasks.gather.s())
    mixed = chord([tasks.double.s(1), tasks.add.s(1, 1)])(tasks.gather.s())
    assert [each.get(timeout=SECONDS) for each in (plain_body, routed_body, mixed)] == [6, 6, 4]
    assert (len(shop.jobs(routed_body.id)), len(shop.jobs(plain_body.id))) == (1, 0)


def test_a_failure(shop: Bookshop) -> None:
    """The exception comes back as itself, is not retried by anybody, and the errback is called."""
    links = [shop.tasks.complain.s(), shop.tasks.grumble.s()]
    result = shop.tasks.spoil.apply_async(("Emma",), link_error=links)
    with pytest.raises(shop.tasks.BookError, match="Emma is spoiled"):
        result.get(timeout=SECONDS)
    assert (result.state, "BookError" in result.traceback) == ("FAILURE", True)
    until(lambda: shop.jobs(result.id) == ["failed"], what="the job's end")
    columns = "reason, attempt, tell_after is null"
    assert shop.jobs(result.id, columns) == [("work: BookError: Emma is spoiled", 1, True)]
    until(lambda: [line for line in shop.diary("complaint") if line.what == result.id], what="the errback")
    assert [line.what for line in shop.diary("grumble")] == [f"{result.id} BookError"]
    assert len([line for line in shop.diary("complaint") if line.what == result.id]) == 1


@pytest.mark.slow
def test_a_failure_in_a_chord_and_in_a_chain(shop: Bookshop) -> None:
    """The chord's body and the chain's later steps fail with it, and are not run."""
    tasks = shop.tasks
    body = chord([tasks.double.s(1), tasks.spoil.s("a")])(tasks.gather.s())
    last = chain(tasks.spoil.s("b"), tasks.gather.s()).apply_async()
    for result in (body, last):
        with pytest.raises(Exception, match="is spoiled"):
            result.get(timeout=SECONDS)
        assert shop.jobs(result.id) == []


@pytest.mark.slow
def test_links_are_called_with_the_result(shop: Bookshop) -> None:
    """A routed callback of a routed task, and a plain one."""
    tasks = shop.tasks
    result = tasks.double.apply_async((4,), link=[tasks.double.s(), tasks.add.s(1)])
    assert result.get(timeout=SECONDS) == 8
    assert [child.get(timeout=SECONDS) for child in result.children] == [[16, 9]]


def test_a_retry_is_a_job_of_its_own(shop: Bookshop) -> None:
    """The id stays, each try is routed anew with what the call asked for, and the last one's value is the result."""
    result = shop.tasks.persist.apply_async((2,), vibey={"effort": "standard"})
    assert result.get(timeout=SECONDS) == {"retries": 2, "effort": "standard"}
    until(lambda: shop.jobs(result.id) == ["succeeded"] * 3, what="the jobs' end")
    assert shop.jobs(result.id, "result ->> 'celery'") == ["RETRY", "RETRY", "SUCCESS"]


def test_a_retry_waits_in_no_broker(shop: Bookshop) -> None:
    """While its countdown runs the state is RETRY, and the job is queued with the instant it is due."""
    result = shop.tasks.persist.delay(1, countdown=3600)
    until(lambda: result.state == "RETRY", seconds=SECONDS, what="the retry")
    until(lambda: shop.jobs(result.id) == ["succeeded", "queued"], what="the first job's end")
    (due,) = shop.jobs(result.id, "not_before - created_at")[1:]
    assert timedelta(seconds=3500) < due <= timedelta(seconds=3600)
    result.revoke()
    assert result.state == "REVOKED"
    assert shop.jobs(result.id) == ["succeeded", "cancelled"]


@pytest.mark.slow
def test_retries_end(shop: Bookshop) -> None:
    """When `max_retries` are used up the exception is the result, by hand or by `autoretry_for`."""
    result = shop.tasks.insist.delay()
    with pytest.raises(shop.tasks.BookError, match="never"):
        result.get(timeout=SECONDS)
    until(lambda: shop.jobs(result.id) == ["succeeded", "failed"], what="the jobs' end")


def test_a_refusal_is_the_routers_affair(shop: Bookshop) -> None:
    """What a body says about its engine is no state of the task: the circuit opens, and the job goes on elsewhere."""
    result = shop.tasks.borrow.delay()
    assert result.get(timeout=SECONDS) == "cloud"
    until(lambda: shop.jobs(result.id, "state, attempt") == [("succeeded", 1)], what="the job's end")
    runs = f"select r.engine, r.failure_class from runs r join jobs j on j.id = r.job_id where task_id = '{result.id}'"
    assert shop.fleet.rows(f"{runs} order by r.id") == [("lender", "capacity"), ("cloud", None)]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["countdown", "eta"])
def test_a_later_call_is_a_job_that_is_not_due(shop: Bookshop, how: str) -> None:
    """Nothing lies in a broker: the row says when."""
    at: Any = 1800 if how == "countdown" else datetime.now(UTC) + timedelta(seconds=1800)
    result = shop.tasks.double.apply_async((1,), **{how: at})
    assert result.state == "PENDING"
    (due,) = shop.jobs(result.id, "not_before - created_at")
    assert abs(due - timedelta(seconds=1800)) < timedelta(seconds=30)
    result.revoke()


@pytest.mark.slow
def test_a_short_countdown_runs(shop: Bookshop) -> None:
    """When the time has come the call runs by itself."""
    assert shop.tasks.double.apply_async((21,), countdown=0.5).get(timeout=SECONDS) == 42


def test_an_expired_call_is_revoked(shop: Bookshop) -> None:
    """What could not start in time is REVOKED, as Celery has it, and never runs."""
    result = shop.tasks.double.apply_async((77,), countdown=3600, expires=0.2)
    with pytest.raises(TaskRevokedError, match="expired"):
        result.get(timeout=SECONDS)
    assert shop.jobs(result.id) == ["failed"]
    assert not [line for line in shop.diary("double") if line.what == "77"]


@pytest.mark.slow
def test_an_expired_body_is_ended(shop: Bookshop) -> None:
    """Unlike with Celery, what has not ended in time is revoked as well: its process is killed."""
    gate = shop.fleet.gate("expired")
    result = shop.tasks.print_book.apply_async(("Sanditon",), {"gate": str(gate)}, expires=4)
    with pytest.raises(TaskRevokedError, match="expired"):
        result.get(timeout=SECONDS)
    assert shop.jobs(result.id) == ["failed"]
    assert not [line for line in shop.diary("end") if line.what == "Sanditon"]


@pytest.mark.slow
def test_priority_and_the_same_id_twice(shop: Bookshop) -> None:
    """The priority is the job's; a call sent again under its id is the first one, whatever it carries."""
    task_id = uuid.uuid4().hex
    later = {"countdown": 3600, "priority": 9, "task_id": task_id}
    first, again = (shop.tasks.double.apply_async((number,), **later) for number in (1, 2))
    assert first.id == again.id
    assert shop.jobs(task_id, "priority") == [9]
    first.revoke()


def test_revoking_a_running_call(shop: Bookshop) -> None:
    """Without `terminate` it is let be, as with Celery; with it the process is killed and the state is REVOKED."""
    gate = shop.fleet.gate("revoke")
    result = shop.tasks.print_book.delay("Persuasion", gate=str(gate))
    until(lambda: [line for line in shop.diary("alive") if line.what == "Persuasion"], seconds=SECONDS, what="the body")
    assert result.state == "STARTED"
    result.revoke()
    assert shop.jobs(result.id) == ["running"]
    result.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=SECONDS)
    assert shop.jobs(result.id) == ["cancelled"]
    assert not [line for line in shop.diary("end") if line.what == "Persuasion"]


def test_cancelling_the_job_revokes_the_call(shop: Bookshop) -> None:
    """`vibey cancel` knows nothing of Celery; a worker with the app tells the result backend."""
    result = shop.tasks.double.apply_async((1,), countdown=3600)
    (job,) = shop.jobs(result.id, "id")
    cancel(shop.fleet.installation, job)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=SECONDS)
    until(lambda: shop.jobs(result.id, "tell_after") == [None], what="the note that it was told")


def test_a_body_that_dies_is_run_again(shop: Bookshop) -> None:
    """Killed at its first attempt, it has its value from the second: one SUCCESS, two runs."""
    result = shop.tasks.crash.apply_async((False,), vibey={"engines": ["desk"]})
    assert result.get(timeout=SECONDS) == "attempt 2"
    assert [line.what for line in shop.diary("crash") if line.engine == "desk"] == ["1", "2"]


def test_a_body_that_always_dies_fails(shop: Bookshop) -> None:
    """When its attempts are used up the result backend hears of it, and so do errback and chord."""
    tasks = shop.tasks
    dying = tasks.crash.s().set(vibey={"engines": ["rack"]}, link_error=tasks.complain.s())
    body = chord([dying, tasks.double.s(1)])(tasks.total.s())
    with pytest.raises(Exception, match="killed by SIGKILL"):
        body.get(timeout=SECONDS)
    result = body.parent.results[0]
    with pytest.raises(WorkerLostError, match=r"failed in attempt 2: engine: killed by SIGKILL"):
        result.get(timeout=SECONDS)
    assert shop.jobs(result.id, "state, attempt") == [("failed", 2)]
    until(lambda: [line for line in shop.diary("complaint") if line.what == result.id], what="the errback")


@pytest.mark.slow
def test_limits_of_time(shop: Bookshop) -> None:
    """The soft one is an exception in the body, the hard one an end with FAILURE."""
    soft, hard = shop.tasks.hurry.delay(), shop.tasks.dawdle.delay()
    assert soft.get(timeout=SECONDS) == "in time"
    with pytest.raises(TimeLimitExceeded):
        hard.get(timeout=SECONDS)
    until(lambda: shop.jobs(hard.id, "state, attempt") == [("failed", 1)], what="the job's end")


@pytest.mark.slow
def test_results_nobody_wants(shop: Bookshop) -> None:
    """`ignore_result` and Ignore store nothing; the work is done."""
    word = uuid.uuid4().hex
    whisper, shrug = shop.tasks.whisper.delay(word), shop.tasks.shrug.delay()
    until(lambda: [*shop.jobs(whisper.id), *shop.jobs(shrug.id)] == ["succeeded"] * 2, seconds=SECONDS, what="the ends")
    assert [line.what for line in shop.diary("whisper")].count(word) == 1
    assert shop.app.AsyncResult(whisper.id).state == "PENDING"
    assert shop.app.AsyncResult(shrug.id).state == "STARTED"


@pytest.mark.slow
def test_a_task_that_is_replaced(shop: Bookshop) -> None:
    """The other task answers under the first one's id."""
    result = shop.tasks.delegate.delay(8)
    assert result.get(timeout=SECONDS) == 16
    until(lambda: shop.jobs(result.id) == ["succeeded"] * 2, what="the jobs' end")


def test_a_call_by_name_through_the_broker(shop: Bookshop) -> None:
    """Whoever knows the name alone sends to the shop's worker, and that hands the call on: no slot is passed by."""
    result = shop.app.send_task("bookshop.tasks.print_book", args=["Lady Susan"])
    assert result.get(timeout=SECONDS) == f"Lady Susan printed by press for {result.id}"
    assert shop.jobs(result.id, "engine") == ["press"]


@pytest.mark.slow
def test_running_it_here(shop: Bookshop) -> None:
    """`apply`, a plain call and `task_always_eager` run the body in this process, without the router."""
    before = shop.fleet.value("select count(*) from jobs")
    assert shop.tasks.double.apply((4,)).get() == 8
    assert shop.tasks.double(5) == 10
    shop.app.conf.task_always_eager = True
    try:
        assert shop.tasks.double.delay(6).get() == 12
    finally:
        shop.app.conf.task_always_eager = False
    assert shop.fleet.value("select count(*) from jobs") == before


def test_a_call_within_a_transaction(shop: Bookshop) -> None:
    """It exists once the caller has committed, and not at all if the caller has not."""
    engine = create_engine(shop.fleet.url)
    with engine.connect() as connection:
        dropped = shop.tasks.double.apply_async((1,), connection=connection)
        connection.rollback()
        kept = shop.tasks.double.apply_async((2,), connection=connection)
        assert shop.jobs(kept.id) == []
        connection.commit()
    engine.dispose()
    assert kept.get(timeout=SECONDS) == 4
    assert shop.jobs(dropped.id) == []


def test_an_outage_is_told_as_celery_tells_it(shop: Bookshop) -> None:
    """A call that cannot be taken is the error callers of Celery know, and no call."""
    unreachable = {"vibey_database_url": "postgresql://127.0.0.1:1/x", "vibey_redis_url": "redis://127.0.0.1:1/0"}
    usual = {**dict.fromkeys(unreachable), "vibey_config": shop.app.conf.vibey_config}
    shop.app.conf.update(unreachable, vibey_config=None)
    try:
        with pytest.raises(OperationalError, match="Postgres is unreachable"):
            shop.tasks.double.delay(1)
    finally:
        shop.app.conf.update(usual)


def test_map_starmap_and_chunks(shop: Bookshop) -> None:
    """One job, in one slot, applies the task to each item; the values are as from any worker."""
    tasks = shop.tasks
    mapped = tasks.double.map([1, 2, 3]).apply_async(vibey={"effort": "high"})
    assert mapped.get(timeout=SECONDS) == [2, 4, 6]
    assert shop.jobs(mapped.id, "effort, engine in ('press', 'cloud')") == [(3, True)]
    starred = tasks.compose.starmap([("a", "b"), ("c", "d")]).delay()
    assert starred.get(timeout=SECONDS) == ["a b", "c d"]
    assert len(shop.jobs(starred.id)) == 1
    in_chunks = tasks.compose.chunks([("e", "f"), ("g", "h"), ("i", "j")], 2).apply_async()
    assert in_chunks.get(timeout=SECONDS) == [["e f", "g h"], ["i j"]]
    assert [len(shop.jobs(part.id)) for part in in_chunks.children] == [1, 1]
    assert {line.engine for line in shop.diary("compose")} <= {"press", "cloud"}


@pytest.mark.slow
def test_maps_by_other_ways(shop: Bookshop) -> None:
    """A map that comes by the broker, in a chain, or of a task that is not routed, runs where it belongs."""
    tasks = shop.tasks
    chained = chain(tasks.add.s(1, 2), tasks.compose.starmap([("k", "l")]), tasks.gather_words.s()).apply_async()
    assert chained.get(timeout=SECONDS) == "k l"
    by_name = shop.app.send_task("celery.starmap", kwargs={"task": tasks.compose.s(), "it": [["m", "n"]]})
    assert by_name.get(timeout=SECONDS) == ["m n"]
    assert len(shop.jobs(by_name.id)) == 1
    plain = tasks.add.starmap([(1, 2), (3, 4)]).apply_async()
    assert plain.get(timeout=SECONDS) == [3, 7]
    assert shop.jobs(plain.id) == []
    plain.revoke()
    assert {line.engine for line in shop.diary("compose")} <= {"press", "cloud"}


def test_a_priority_is_a_whole_number(shop: Bookshop) -> None:
    """No other number is made one behind the caller's back."""
    for priority in (3.5, "3", True):
        with pytest.raises(InvalidInput, match=r"priority: .* expected a whole number"):
            shop.tasks.double.apply_async((1,), priority=priority)


def test_the_callers_settings_reach_the_run(shop: Bookshop) -> None:
    """A result is written by the serializer that the caller reads it with, though no engine names a variable for it."""
    conf = shop.app.conf
    conf.update(result_serializer="yaml", result_expires=120)
    try:
        result = shop.tasks.double.delay(21)
        # this app cannot read what will be published for it, and would fail while it waits for another result
        shop.app.backend.result_consumer.cancel_for(result.id)
    finally:
        conf.update(result_serializer="json", result_expires=86400)
    until(lambda: shop.jobs(result.id, "ended_at is not null") == [True], seconds=SECONDS, what="the job's end")
    assert shop.jobs(result.id, "state, reason") == [("succeeded", "succeeded")]
    backend = shop.app.backend
    key = backend.get_key_for_task(result.id)
    stored = backend.get(key)
    assert b"status: SUCCESS" in stored
    assert 0 < backend.client.ttl(key) <= 120


def test_mistakes_are_told_to_the_caller(shop: Bookshop) -> None:
    """Wrong arguments, wishes and engines are refused at the call, not in a worker."""
    double = shop.tasks.double
    with pytest.raises(TypeError):
        double.delay()
    with pytest.raises(InvalidInput, match="vibey: 'colour' is not usable"):
        double.apply_async((1,), vibey={"colour": "red"})
    with pytest.raises(Refused, match="unknown engine 'nope'"):
        double.apply_async((1,), vibey={"engines": ["nope"]})
    with pytest.raises(Refused, match=r"no engine asked for runs Celery tasks, such as bookshop.tasks.double"):
        double.apply_async((1,), vibey={"engines": ["hand"]})
    with pytest.raises(InvalidInput, match="at most 262144 bytes"):
        double.delay("x" * 300_000)


def test_other_jobs_pass_by(shop: Bookshop) -> None:
    """A job that is no call of a task is granted to no engine that runs only those."""
    jobs = shop.fleet.enqueue(4, payload={"seconds": 0})
    ids = ", ".join(str(job) for job in jobs)
    shop.fleet.until(f"select bool_and(state = 'succeeded') from jobs where id in ({ids})", seconds=SECONDS)
    assert shop.fleet.rows(f"select distinct engine from runs where job_id in ({ids})") == [("hand",)]
