"""The client for Python programs: light to import, all services behind few calls, and errors of the one tree."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installation import Bench, noop
from vibey import InvalidInput, Order, Refused, TimedOut, Vibey
from vibey.domain.errors import UnknownName
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """An installation with one local engine that can do `web`."""
    return open_bench(engine={"a": noop(capabilities=["web"])})


@pytest.fixture
def vibey(bench: Bench) -> Iterator[Vibey]:
    """A client of that installation."""
    with Vibey(settings=bench.installation.settings) as opened:
        yield opened


def work(bench: Bench) -> None:
    """Route what is due and carry it out, in this process."""
    route(bench.installation, "main")
    for run, token, _ in bench.live():
        carry_out(bench.installation, run, token)


def test_importing_the_package_brings_nothing_along() -> None:
    """`import vibey` loads neither Celery nor SQLAlchemy nor settings; every promised name can then be had."""
    program = (
        "import sys, vibey; heavy = {'celery', 'sqlalchemy', 'redis', 'pydantic'} & set(sys.modules); "
        "print(sorted(heavy), all(getattr(vibey, name) for name in vibey.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_a_job_from_enqueue_to_result(bench: Bench, vibey: Vibey) -> None:
    """What was asked for is stored, the router is woken once, and the end is told as it is."""
    placed = vibey.enqueue({"n": 1}, priority=3, effort="high", capabilities=["web"], idempotency_key="k")
    assert placed.created
    assert bench.messages() == 1
    assert vibey.job(placed).state == "queued"
    work(bench)
    job = vibey.wait(placed, timeout=300)
    assert (job.state, job.engine, job.attempt, job.ended, job.succeeded) == ("succeeded", "a", 1, True, True)
    assert [(run.engine, run.state) for run in job.runs] == [("a", "succeeded")]
    assert vibey.result(placed) == job.result
    assert bench.rows("select priority, effort, capabilities from jobs") == [(3, 3, ["web"])]
    again = vibey.enqueue({"n": 1}, idempotency_key="k")
    assert (again.job_id, again.created) == (placed.job_id, False)


def test_waiting_ends_when_another_thread_is_done(bench: Bench, vibey: Vibey) -> None:
    """A wait for several jobs returns them in the order asked, once the last has ended."""
    first, second = vibey.enqueue_many([Order(payload={"n": 1}), Order(payload={"n": 2})])
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(vibey.wait_all, [second, first], 300)
        work(bench)
        work(bench)
        assert [job.job_id for job in waiting.result()] == [second.job_id, first.job_id]


def test_a_wait_has_an_end(vibey: Vibey) -> None:
    """The error names the jobs that have not ended; the job itself goes on."""
    placed = vibey.enqueue()
    with pytest.raises(TimedOut, match=rf"not ended within 0.3 s: job {placed.job_id};") as late:
        vibey.wait(placed, timeout=0.3)
    assert late.value.job_ids == (placed.job_id,)
    assert vibey.job(placed).state == "queued"


def test_a_cancelled_job_has_no_result(vibey: Vibey) -> None:
    """A queued job ends at once; asking for its result is refused with the reason, and so is a second cancel."""
    placed = vibey.enqueue()
    assert vibey.cancel(placed).state == "cancelled"
    with pytest.raises(Refused, match="has no result: cancelled"):
        vibey.result(placed, timeout=5)
    with pytest.raises(Refused, match="already been cancelled"):
        vibey.cancel(placed.job_id)
    with pytest.raises(UnknownName, match="unknown job 99"):
        vibey.job(99)


def test_a_delayed_job_is_due_only_then(bench: Bench, vibey: Vibey) -> None:
    """A job with a delay, or an instant in the future, is not granted, and says why; an instant gone by is no delay."""
    vibey.enqueue(delay_seconds=60)
    vibey.enqueue(not_before=datetime.now(UTC) + timedelta(seconds=120))
    vibey.enqueue(not_before=datetime.now(UTC) - timedelta(seconds=5))
    route(bench.installation, "main")
    assert bench.rows("select state from jobs order by id") == [("queued",), ("queued",), ("granted",)]
    first, second = (vibey.job(number) for number in (1, 2))
    assert first.reason.startswith("asked not to start before 20")
    waits = bench.rows(
        "select round(extract(epoch from not_before - created_at) / 60) from jobs where id < 3 order by id"
    )
    assert waits == [(1,), (2,)]
    assert second.attempt == 0
    assert bench.value("select bool_and(abs(extract(epoch from due_at - not_before)) < 1) from jobs where id < 3")


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"colour": "red"}, "job: 'colour' is not usable; expected one of the keys"),
        ({"delay_seconds": -1}, "delay_seconds: -1 is not usable"),
        ({"not_before": datetime(2026, 1, 1)}, "not_before: .* expected an instant with a time zone"),  # noqa: DTZ001
        ({"not_before": datetime(2036, 1, 1, tzinfo=UTC), "delay_seconds": 3}, "no delay_seconds beside it"),
        ({"project": "nope"}, "unknown project 'nope'"),
    ],
)
def test_a_mistake_is_named(bench: Bench, vibey: Vibey, wishes: dict[str, Any], message: str) -> None:
    """Errors are those of the command line, and nothing is enqueued."""
    with pytest.raises((InvalidInput, Refused), match=message):
        vibey.enqueue({}, **wishes)
    assert bench.value("select count(*) from jobs") == 0


@pytest.mark.parametrize(
    "arguments",
    [{"config": "a.toml", "database_url": "x", "redis_url": "y"}, {"database_url": "x"}, {"redis_url": "y"}],
)
def test_one_way_to_say_which_installation(arguments: dict[str, Any]) -> None:
    """Half an address, or two ways at once, is a mistake, told before anything is opened."""
    with pytest.raises(InvalidInput, match="Vibey: "):
        Vibey(**arguments)


def test_two_addresses_are_enough(bench: Bench) -> None:
    """A program needs no configuration file: the database knows the engines and pools."""
    services = bench.installation.settings.services
    with Vibey(database_url=services.database_url, redis_url=services.redis_url) as client:
        placed = client.enqueue(exclude=["a"], anyway=True)
    assert bench.rows("select id, excluded from jobs") == [(placed.job_id, ["a"])]


def test_many_threads_share_one(bench: Bench, vibey: Vibey) -> None:
    """Eight threads that begin at once open one installation and lose nothing."""
    together = threading.Barrier(8)

    def produce(number: int) -> int:
        together.wait()
        return id(vibey.installation) if vibey.enqueue({"n": number}) else 0

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(produce, range(8)))) == 1
    assert bench.value("select count(*) from jobs") == 8


def test_a_client_lives_through_a_fork(bench: Bench) -> None:
    """A child that was forked with connections open makes its own; the parent's go on."""
    program = (
        "import os, sys\n"
        "from vibey import Vibey\n"
        "vibey = Vibey(database_url=sys.argv[1], redis_url=sys.argv[2])\n"
        "vibey.enqueue({'n': 0})\n"
        "child = os.fork()\n"
        "vibey.enqueue({'n': 1})\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
        "vibey.enqueue({'n': 2})\n"
    )
    services = bench.installation.settings.services
    done = subprocess.run(
        [sys.executable, "-c", program, services.database_url, services.redis_url],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert bench.value("select count(*) from jobs") == 5
