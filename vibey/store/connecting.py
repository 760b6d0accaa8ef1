"""How every connection to Postgres is opened: the operator's address as libpq reads it, with ours added to it.

libpq reads the address itself. So everything it knows works, in Alembic's connections as in ours: several hosts,
`sslmode`, `service`, `options`. What the address sets is never replaced; where it is silent, ours counts. `options` is
the one parameter both set: the server reads it from left to right and the last setting of a name wins, so the
operator's come after ours.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg2
from psycopg2.extensions import parse_dsn
from sqlalchemy import Engine, create_engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from psycopg2.extensions import connection as DriverConnection  # noqa: N812  the driver's own name is a small one

DRIVER_SCHEME = "postgresql+psycopg2"
# Plans of prepared statements are kept while a queue grows from nothing to a million: none may read a table whole
# because it was small when planned (`exists` can be one that does), and none is made anew for each call. Before
# release 18 a scan that is disabled but has no alternative counts as enormously expensive, so the planner would start
# parallel workers and the JIT compiler for a table of one row: about 20 ms for each statement.
SESSION_OPTIONS = (
    "-c timezone=UTC -c lock_timeout=10s -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s "
    "-c enable_seqscan=off -c plan_cache_mode=force_generic_plan -c max_parallel_workers_per_gather=0 -c jit=off"
)
# A migration may rewrite a large table, and may wait for transactions that hold it.
MIGRATION_OPTIONS = "-c timezone=UTC"

# An address that names all of these leaves libpq nothing to ask of its surroundings.
COMPLETE = frozenset(
    {"host", "hostaddr", "port", "user", "password", "dbname", "sslmode", "gssencmode", "channel_binding"}
)
# What libpq reads from its environment besides: a service, which must exist; certificates that only TLS can use; and
# what not every version of it takes as a parameter.
SURROUNDING_VARIABLES = (
    "PGSERVICE",
    "PGSSLROOTCERT",
    "PGREQUIREAUTH",
    "PGSSLNEGOTIATION",
    "PGTARGETSESSIONATTRS",
    "PGLOADBALANCEHOSTS",
    "PGMINPROTOCOLVERSION",
    "PGMAXPROTOCOLVERSION",
)
# One of each process: a child that is forked while a thread of its parent connects does not inherit a held lock.
_locks: dict[int, threading.Lock] = {}


def make_engine(url: str, options: str = SESSION_OPTIONS, **pool: Any) -> Engine:  # noqa: ANN401  SQLAlchemy's own
    """An SQLAlchemy engine for this address, whose sessions begin with `options`; connects when first used."""

    def connect() -> DriverConnection:
        with _surroundings_hidden(url):
            opened: DriverConnection = psycopg2.connect(libpq_url(url), **added_parameters(url, options))
        return opened

    return create_engine(f"{DRIVER_SCHEME}://", creator=connect, **pool)


def libpq_url(url: str) -> str:
    """The address as libpq takes it: without the name of SQLAlchemy's driver."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def added_parameters(url: str, options: str) -> dict[str, Any]:
    """Parameters for libpq beside those of the address. psycopg2.ProgrammingError when it cannot read the address."""
    given = parse_dsn(libpq_url(url))
    ours: dict[str, Any] = {
        "connect_timeout": "5",
        "keepalives_idle": "15",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "30000",
        "application_name": f"vibey-{os.getpid()}",
        # Whatever PGCLIENTENCODING of the caller's shell says.
        "client_encoding": "UTF8",
    }
    if "," in given.get("host", "") or "," in given.get("hostaddr", ""):
        # One of several may be a standby, on which nothing can be written.
        ours["target_session_attrs"] = "read-write"
    added: dict[str, Any] = {name: value for name, value in ours.items() if name not in given}
    added["options"] = f"{options} {given.get('options', '')}".strip()
    return added


@contextmanager
def _surroundings_hidden(url: str) -> Iterator[None]:
    """While a complete address is connected to, hide from libpq the variables that would still steer it.

    They stay in `os.environ`, from which programs are started: only what the C library sees changes, and only where one
    of them is set.
    """
    given: Mapping[str, str] = parse_dsn(libpq_url(url))
    hidden = {name: os.environ[name] for name in SURROUNDING_VARIABLES if name in os.environ}
    if not hidden or not given.keys() >= COMPLETE:
        yield
        return
    with _locks.setdefault(os.getpid(), threading.Lock()):
        for name in hidden:
            os.unsetenv(name)
        try:
            yield
        finally:
            for name, value in hidden.items():
                os.putenv(name, value)
