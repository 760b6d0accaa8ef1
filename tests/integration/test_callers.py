"""Enqueueing within a caller's own transaction: with it or not at all, and a wake-up only after its commit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg2
import pytest
from psycopg.rows import dict_row
from psycopg2.extras import NamedTupleCursor, RealDictCursor
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.support.databases import plain, query
from tests.support.installation import Bench, noop
from vibey import InvalidInput, Order, Refused, Vibey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """An installation whose database holds a table of the caller's too."""
    bench = open_bench(engine={"a": noop()})
    query(bench.url, "create table orders (id int primary key)")
    return bench


@pytest.fixture
def vibey(bench: Bench) -> Iterator[Vibey]:
    """A client of that installation."""
    with Vibey(settings=bench.installation.settings) as opened:
        yield opened


@pytest.fixture(params=["psycopg2", "psycopg"])
def engine(bench: Bench, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The caller's own engine, on either driver."""
    made = create_engine(bench.url.replace("psycopg2", request.param))
    yield made
    made.dispose()


ORDER = text("insert into orders values (1)")


def counts(bench: Bench) -> tuple[int, int, int]:
    """How many of the caller's rows, jobs, and messages to the router there are."""
    orders, jobs = (bench.value(f"select count(*) from {table}") for table in ("orders", "jobs"))
    return orders, jobs, bench.messages()


def test_a_connection_that_commits(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """Nothing is to be seen before the commit; after it the row, the job with its event, and one wake-up."""
    with engine.begin() as connection:
        connection.execute(ORDER)
        placed = vibey.enqueue({"n": 1}, connection=connection)
        assert counts(bench) == (0, 0, 0)
    assert counts(bench) == (1, 1, 1)
    assert bench.rows("select id, payload from jobs") == [(placed.job_id, {"n": 1})]
    assert bench.value("select count(*) from ledger where kind = 'JobEnqueued'") == 1


def test_a_connection_that_rolls_back(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """Neither row nor job nor wake-up, and the same connection serves the next transaction well."""
    with engine.connect() as connection:
        connection.execute(ORDER)
        vibey.enqueue(connection=connection)
        connection.rollback()
        assert counts(bench) == (0, 0, 0)
        connection.execute(ORDER)
        connection.commit()
    assert counts(bench) == (1, 0, 0)


def test_a_caller_that_fails(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """An error in the caller's own work takes the job with it."""
    with pytest.raises(IntegrityError), engine.begin() as connection:  # noqa: PT012  the second order is the error
        vibey.enqueue(connection=connection)
        connection.execute(ORDER)
        connection.execute(ORDER)
    assert counts(bench) == (0, 0, 0)


def test_commit_as_you_go(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """A connection that is kept wakes the router when it begins its next transaction."""
    with engine.connect() as connection:
        vibey.enqueue(connection=connection)
        connection.commit()
        assert counts(bench) == (0, 1, 0)
        connection.execute(ORDER)
        assert counts(bench) == (0, 1, 1)
        connection.rollback()
    assert counts(bench) == (0, 1, 1)


@pytest.mark.parametrize("scoped", [False, True])
def test_a_session_that_commits(bench: Bench, vibey: Vibey, engine: Engine, *, scoped: bool) -> None:
    """An ORM session, plain or scoped, is as good as a connection."""
    session = scoped_session(sessionmaker(engine)) if scoped else Session(engine)
    session.execute(ORDER)
    vibey.enqueue_many([Order(payload={"n": n}) for n in range(1500)], connection=session)
    assert counts(bench) == (0, 0, 0)
    session.commit()
    assert counts(bench) == (1, 1500, 1)
    session.close()


def test_a_session_that_rolls_back(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """Closing a session without a commit leaves nothing either."""
    with Session(engine) as session:
        session.execute(ORDER)
        vibey.enqueue(connection=session)
    assert counts(bench) == (0, 0, 0)


def test_savepoints(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """A job lives with the savepoint it was enqueued in; the outermost commit wakes the router, no inner one does."""
    with Session(engine) as session, session.begin():
        with session.begin_nested():
            kept = vibey.enqueue({"n": 1}, connection=session)
        dropped = session.begin_nested()
        vibey.enqueue({"n": 2}, connection=session)
        dropped.rollback()
        session.execute(ORDER)
        assert counts(bench) == (0, 0, 0)
    assert counts(bench) == (1, 1, 1)
    assert bench.value("select id from jobs") == kept.job_id


def test_an_outer_transaction_decides(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """A session within somebody's connection commits nothing: when that rolls back, the job is gone."""
    with engine.connect() as connection:
        connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            vibey.enqueue(connection=session)
            session.commit()
        assert counts(bench) == (0, 0, 0)
        connection.rollback()
    assert counts(bench) == (0, 0, 0)


def test_a_repeated_key_within_a_transaction(vibey: Vibey, engine: Engine) -> None:
    """The key's first job is returned, whether it was made before or in this very transaction."""
    first = vibey.enqueue(idempotency_key="a")
    with engine.begin() as connection:
        again = vibey.enqueue(idempotency_key="a", connection=connection)
        other = vibey.enqueue(idempotency_key="b", connection=connection)
        twice = vibey.enqueue(idempotency_key="b", connection=connection)
    assert (again.job_id, again.created) == (first.job_id, False)
    assert (twice.job_id, twice.created, other.created) == (other.job_id, False, True)


def test_another_database_is_refused(bench: Bench, vibey: Vibey, empty_database_url: str, engine: Engine) -> None:
    """A job cannot be part of a transaction elsewhere, nor of one whose search path leads to other tables."""
    foreign = create_engine(empty_database_url)
    with foreign.begin() as connection, pytest.raises(Refused, match="not to the installation's tables"):
        vibey.enqueue(connection=connection)
    foreign.dispose()
    query(bench.url, "create schema app; create table app.jobs (id int)")
    with engine.begin() as connection:
        connection.execute(text("set local search_path to app, public"))
        with pytest.raises(Refused, match="search path"):
            vibey.enqueue(connection=connection)
    assert counts(bench)[1] == 0


def test_what_is_no_connection_is_refused(vibey: Vibey, engine: Engine) -> None:
    """An engine, and a connection to another kind of database, are told apart from a usable one."""
    expected = r"connection: .* expected an open connection on psycopg2 or psycopg: SQLAlchemy's"
    with pytest.raises(InvalidInput, match=expected):
        vibey.enqueue(connection=engine)
    other = create_engine("sqlite://")
    with other.connect() as connection, pytest.raises(InvalidInput, match=expected):
        vibey.enqueue(connection=connection)
    other.dispose()


@pytest.fixture(params=["psycopg2", "psycopg"])
def connect(bench: Bench, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A function that opens a connection of the driver's own; all are closed after the test."""
    opened: list[Any] = []

    def connected(**options: Any) -> Any:
        driver: Any = {"psycopg2": psycopg2, "psycopg": psycopg}[request.param]
        opened.append(driver.connect(plain(bench.url), **options))
        return opened[-1]

    yield connected
    for connection in opened:
        connection.close()


def test_a_drivers_connection(bench: Bench, vibey: Vibey, connect: Callable[..., Any]) -> None:
    """The job lives with the caller's transaction, which stays open; the caller wakes the router after its commit."""
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("insert into orders values (1)")
    placed = vibey.enqueue({"n": 1}, connection=connection)
    assert counts(bench) == (0, 0, 0)
    connection.commit()
    assert counts(bench) == (1, 1, 0)
    vibey.wake()
    assert counts(bench) == (1, 1, 1)
    assert bench.rows("select id, payload from jobs") == [(placed.job_id, {"n": 1})]
    vibey.enqueue(connection=connection)
    connection.rollback()
    assert counts(bench)[1] == 1


def test_a_drivers_connection_in_autocommit_mode(bench: Bench, vibey: Vibey, connect: Callable[..., Any]) -> None:
    """Outside a transaction a batch is a transaction of its own, with its wake-up; inside one it is part of that."""
    connection = connect()
    connection.autocommit = True
    vibey.enqueue_many([Order(payload={"n": n}) for n in range(1500)], connection=connection)
    assert counts(bench) == (0, 1500, 1)
    with pytest.raises(Refused, match="unknown project 'nope'"):
        vibey.enqueue_many([Order(), Order(project="nope")], connection=connection)
    cursor = connection.cursor()
    cursor.execute("begin")
    vibey.enqueue(connection=connection)
    assert counts(bench)[1] == 1500
    cursor.execute("rollback")
    assert counts(bench)[1] == 1500


def test_an_engine_in_autocommit_mode(bench: Bench, vibey: Vibey, engine: Engine) -> None:
    """SQLAlchemy's connection, too: a batch is a transaction of its own there, with its wake-up."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        vibey.enqueue_many([Order(idempotency_key=f"k{n}") for n in range(3)], connection=connection)
        assert counts(bench) == (0, 3, 1)
        with pytest.raises(Refused, match="unknown project 'nope'"):
            vibey.enqueue_many([Order(), Order(project="nope")], connection=connection)
    assert counts(bench)[1] == 3


@pytest.mark.parametrize("kind", ["rows as mappings", "cursors that number parameters"])
def test_a_callers_own_cursors_do_not_matter(vibey: Vibey, connect: Callable[..., Any], kind: str) -> None:
    """Whatever the caller made its connection return, jobs are enqueued, and the caller's choice is kept."""
    connection = connect()
    if isinstance(connection, psycopg2.extensions.connection):
        connection.cursor_factory = RealDictCursor if kind.startswith("rows") else NamedTupleCursor
        chosen: Any = connection.cursor_factory
    elif kind.startswith("rows"):
        chosen = connection.row_factory = dict_row
    else:
        chosen = connection.cursor_factory = psycopg.RawCursor
    first = vibey.enqueue(idempotency_key="a", connection=connection)
    again = vibey.enqueue(idempotency_key="a", connection=connection)
    connection.commit()
    assert (again.job_id, again.created) == (first.job_id, False)
    assert chosen in {getattr(connection, "cursor_factory", None), getattr(connection, "row_factory", None)}


def test_a_drivers_connection_to_other_tables_is_refused(vibey: Vibey, connect: Callable[..., Any]) -> None:
    """One whose search path leads elsewhere is refused by its name, before anything is written."""
    connection = connect()
    connection.cursor().execute("set search_path to pg_temp")
    with pytest.raises(Refused, match=r"leads to 'vibey_test_\w+' on .*, not to the installation's tables"):
        vibey.enqueue(connection=connection)


def test_a_connection_that_does_not_block_is_refused(bench: Bench, vibey: Vibey) -> None:
    """The client for programs without an event loop cannot use a connection that needs one."""

    async def enqueue() -> None:
        async with await psycopg.AsyncConnection.connect(plain(bench.url)) as connection:
            vibey.enqueue(connection=connection)

    with pytest.raises(InvalidInput, match="AsyncConnection"):
        asyncio.run(enqueue())


DJANGO_PROGRAM = """
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings

from vibey import Vibey

address = urlsplit(sys.argv[1])
login = dict(USER=address.username, PASSWORD=address.password)
database = dict(login, NAME=address.path[1:], HOST=address.hostname, PORT=address.port)
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}}, USE_TZ=True)
django.setup()
from django.db import connection, transaction

vibey = Vibey(database_url=sys.argv[1], redis_url=sys.argv[2])

def insert(number):
    with connection.cursor() as cursor:
        cursor.execute("insert into orders values (%s)", [number])

with transaction.atomic():
    insert(1)
    vibey.enqueue({"n": 1}, connection=connection)
    print("inside")
    input()
print("committed")
input()
try:
    with transaction.atomic():
        insert(2)
        vibey.enqueue({"n": 2}, connection=connection)
        raise ValueError
except ValueError:
    print("rolled back")
input()
vibey.enqueue({"n": 3}, connection=connection)
print("alone")
"""


def test_djangos_connection(bench: Bench, vibey: Vibey) -> None:
    """The job commits or vanishes with `transaction.atomic`, and its commit wakes the router."""
    del vibey
    services = bench.installation.settings.services
    program = subprocess.Popen(
        [sys.executable, "-c", DJANGO_PROGRAM, services.database_url, services.redis_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    with program:
        assert program.stdin is not None
        assert program.stdout is not None
        seen = []
        for expected in ("inside", "committed", "rolled back", "alone"):
            assert program.stdout.readline().strip() == expected
            seen.append(counts(bench))
            if expected != "alone":
                program.stdin.write("\n")
    assert program.returncode == 0
    assert seen == [(0, 0, 0), (1, 1, 1), (1, 1, 1), (1, 2, 1)]
    assert bench.rows("select payload from jobs order by id") == [({"n": 1},), ({"n": 3},)]
