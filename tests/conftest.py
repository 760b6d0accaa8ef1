"""Fixtures for every suite: real services, a database of its own for each test, Hypothesis profiles.

Services are started once per test process, on the first test that wants them, and destroyed when it ends.
VIBEY_TEST_POSTGRES_URL and VIBEY_TEST_REDIS_URL name servers to use instead; the role needs CREATEDB, and the
Redis server's numbered databases are flushed.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings

from tests.support import databases
from tests.support.installation import Bench
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

settings.register_profile("dev", max_examples=50, deadline=None)
# The same examples on every machine: what fails there fails here. Developers' runs draw others each time.
settings.register_profile(
    "ci", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# A change that only a rare example shows is not noticed, but the suite is run a thousand times over.
settings.register_profile(
    "mutation",
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Where a process that is started in the checkout, with no other settings, keeps its embedded servers.
CHECKOUT_DATA = Path(__file__).parents[1] / ".vibey"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(autouse=True)
def _checkout_untouched() -> Iterator[None]:
    """No test may start servers in the checkout: a data directory that appears there fails the test it appears in."""
    before = CHECKOUT_DATA.exists()
    yield
    assert before or not CHECKOUT_DATA.exists(), f"{CHECKOUT_DATA} was made by this test, or by one that ran beside it"


def pytest_configure() -> None:
    """Let processes that tests start be interrupted although the suite runs in the background of a shell.

    A shell has what it starts in the background ignore Ctrl-C, and a program inherits that.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Services]:
    """Both servers: the ones the environment names, else embedded ones for this test process."""
    postgres = os.environ.get("VIBEY_TEST_POSTGRES_URL", "")
    redis_url = os.environ.get("VIBEY_TEST_REDIS_URL", "")
    if postgres and redis_url:
        yield embedded.Services(database_url=postgres, redis_url=redis_url)
        return
    folder = tmp_path_factory.mktemp("services")
    with databases.memory() as memory:
        try:
            own = databases.forgetful(folder, memory)
            yield embedded.Services(database_url=postgres or own.database_url, redis_url=redis_url or own.redis_url)
        finally:
            embedded.destroy(folder)


@pytest.fixture(scope="session")
def template_database(services: embedded.Services) -> Iterator[str]:
    """The name of a migrated, empty database that tests get copies of."""
    from vibey.store import migrate

    name = f"vibey_template_{uuid.uuid4().hex}"
    url = databases.create(services.database_url, name)
    try:
        migrate.upgrade(url)
        yield name
    finally:
        databases.drop(services.database_url, name)


@pytest.fixture
def database_url(services: embedded.Services, template_database: str) -> Iterator[str]:
    """The URL of a migrated database that only this test sees."""
    name = f"vibey_test_{uuid.uuid4().hex}"
    url = databases.create(services.database_url, name, template=template_database)
    yield url
    databases.drop(services.database_url, name)


@pytest.fixture
def empty_database_url(services: embedded.Services) -> Iterator[str]:
    """The URL of a database without any table, for tests of migrations."""
    name = f"vibey_empty_{uuid.uuid4().hex}"
    yield databases.create(services.database_url, name)
    databases.drop(services.database_url, name)


@pytest.fixture(scope="session")
def own_redis_url(services: embedded.Services, worker_number: int) -> str:
    """The URL of this test process's logical database, whatever it holds; each process has its own number, 1 to 15."""
    return f"{services.redis_url.rsplit('/', 1)[0]}/{1 + worker_number % 15}"


@pytest.fixture
def redis_url(own_redis_url: str) -> str:
    """The URL of an empty logical database."""
    url = own_redis_url
    client = redis.Redis.from_url(url)
    client.flushdb()
    client.close()
    return url


@pytest.fixture(scope="session")
def worker_number() -> int:
    """The number of this test process; 0 when there is only one."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory of this test's own; servers a test starts under it are destroyed afterwards."""
    folder = tmp_path / "data"
    yield folder
    embedded.destroy(folder)


@pytest.fixture
def open_bench(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """A function that opens an installation on this test's services: `open_bench(engine={...}, engines={...})`."""
    opened: list[Bench] = []

    def opener(**tables: Any) -> Bench:
        opened.append(Bench(database_url, redis_url, tmp_path, tables))
        return opened[-1]

    yield opener
    for bench in opened:
        bench.close()


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """A function giving names no other test uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:12]}"
