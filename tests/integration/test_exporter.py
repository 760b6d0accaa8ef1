"""The exporter over HTTP: formats, tokens, addresses, a database that is away, and one reading for all who ask."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.cli import Cli
from tests.support.commandline import CommandLine
from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.scrape import OPENMETRICS, Scrape, scrape
from tests.support.wait import until
from vibey.domain.errors import InvalidInput, Refused, ServiceUnavailable
from vibey.services.exporter import Exporter, address_of
from vibey.services.exposition import Scraper
from vibey.services.installation import Installation
from vibey.services.web_guard import is_open
from vibey.settings import Source, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def serve(open_bench: Callable[..., Bench]) -> Iterator[Callable[..., str]]:
    """A function that serves an installation's metrics on a free port and returns where: `serve(token="…")`."""
    serving: list[Exporter] = []

    def server(token: str = "", installation: Installation | None = None, host: str = "127.0.0.1") -> str:
        of = installation or open_bench(engine={"a": noop()}).installation
        serving.append(Exporter(of, f"{host}:0", token))
        serving[-1].start()
        return serving[-1].url

    yield server
    for each in serving:
        each.stop()


def _refused(request: str | Request) -> tuple[int, str]:
    with pytest.raises(HTTPError) as caught, urlopen(request, timeout=10):  # noqa: S310  loopback
        pass
    with caught.value as answer:
        return answer.code, answer.read().decode()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (OPENMETRICS, "application/openmetrics-text"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_one_asked_for(serve: Callable[..., str], accept: str, content_type: str) -> None:
    """OpenMetrics for who names it, else the format that everything reads."""
    with urlopen(Request(serve(), headers={"Accept": accept}), timeout=10) as answer:  # noqa: S310  loopback
        body = answer.read().decode()
        assert answer.headers["Content-Type"].startswith(content_type)
    found = Scrape(body, openmetrics=accept == OPENMETRICS)
    assert found("vibey_slots", engine="a") == 1


def test_there_is_nothing_else(serve: Callable[..., str]) -> None:
    """Any other path is not found, and a question for the headers alone gets them alone."""
    url = serve()
    code, words = _refused(url.replace("/metrics", "/"))
    assert (code, words) == (404, "there is only /metrics\n")
    with urlopen(Request(url, method="HEAD"), timeout=10) as answer:  # noqa: S310  loopback
        assert int(answer.headers["Content-Length"]) > 1000
        assert answer.read() == b""


@pytest.mark.parametrize("shown", ["", "Bearer wrong", "Bearer ", "Basic c2VjcmV0", "Bearer secre", "Bearer sécret"])
def test_a_token_has_to_be_shown(serve: Callable[..., str], shown: str) -> None:
    """Whoever shows another one, or none, learns nothing; not even which paths there are."""
    url = serve(token="secret")
    headers = {"Authorization": shown} if shown else {}
    for path in (url, url.replace("/metrics", "/")):
        code, words = _refused(Request(path, headers=headers))  # noqa: S310  loopback
        assert code == 401
        assert "vibey_" not in words
    assert scrape(url, "secret")("vibey_slots", engine="a") == 1


def test_without_a_token_a_foreign_name_for_this_machine_is_refused(serve: Callable[..., str]) -> None:
    """A site that lets its own name lead to 127.0.0.1 cannot read them through a visitor's browser; a token may."""
    url = serve()
    for path in (url, url.replace("/metrics", "/")):
        code, words = _refused(Request(path, headers={"Host": "evil.example"}))  # noqa: S310  loopback
        assert code == 403
        assert "VIBEY_METRICS_TOKEN" in words
        assert "vibey_" not in words
    for host in ("localhost:9464", "[::1]"):
        with urlopen(Request(url, headers={"Host": host}), timeout=10) as answer:  # noqa: S310  loopback
            assert answer.status == 200
    guarded = Request(serve(token="secret"), headers={"Host": "metrics.example", "Authorization": "Bearer secret"})  # noqa: S310  loopback
    with urlopen(guarded, timeout=10) as answer:  # noqa: S310  loopback
        assert answer.status == 200


@pytest.mark.parametrize("listen", ["0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:9464", "example.org:9464", "::0"])
def test_an_address_that_others_reach_is_refused_without_a_token(open_bench: Callable[..., Bench], listen: str) -> None:
    """The refusal names the address and the variable."""
    bench = open_bench(engine={"a": noop()})
    with pytest.raises(Refused, match="VIBEY_METRICS_TOKEN"):
        Exporter(bench.installation, listen)


@pytest.mark.parametrize("listen", ["127.0.0.1", "", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "localhost:²"])
def test_what_is_no_address_is_said_so(listen: str) -> None:
    """The error shows what one looks like."""
    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1:9464"):
        address_of(listen)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    """Every loopback address is this machine's own."""
    assert not is_open(host)


def test_a_port_in_use_is_said_so(open_bench: Callable[..., Bench]) -> None:
    """As a service that is unreachable, with what to do."""
    bench = open_bench(engine={"a": noop()})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServiceUnavailable, match=r"cannot listen on .*--listen"):
            Exporter(bench.installation, listen)


def test_a_database_that_is_away_is_said_so(serve: Callable[..., str], tmp_path: Path) -> None:
    """Then the scrape fails, which Prometheus notices, instead of old numbers passing for new ones."""
    services = {"database_url": "postgresql://vibey:x@127.0.0.1:1/x", "redis_url": "redis://127.0.0.1:1/0"}
    away = Installation.open(settings_of(Source(None, tmp_path, {"services": services}), {}))
    code, words = _refused(serve(installation=away))
    assert code == 503
    assert "Postgres is unreachable" in words
    away.database.dispose()


def test_all_who_ask_at_once_get_one_reading(open_bench: Callable[..., Bench], serve: Callable[..., str]) -> None:
    """However many scrape, the database is read once a second at most."""
    bench = open_bench(engine={"a": noop()})
    url = serve(installation=bench.installation)
    scrape(url)
    query(bench.url, "update engines set slots = 7")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: scrape(url), range(16)))
    instants = {each("vibey_as_of_timestamp_seconds") for each in found}
    slots = {each("vibey_as_of_timestamp_seconds"): each("vibey_slots", engine="a") for each in found}
    assert len(instants) <= 1 + (max(instants) - min(instants)) // 1
    assert set(slots.values()) <= {1, 7}


def test_a_snapshot_is_fresh_no_longer_than_its_cost_allows(open_bench: Callable[..., Bench]) -> None:
    """It is given again while it is fresh; then another is taken, without anybody asking for that."""
    scraper = Scraper(open_bench(engine={"a": noop()}).installation)
    first = scraper.snapshot()
    assert scraper.snapshot() is first
    later = until(lambda: (now := scraper.snapshot()) is not first and now, what="another snapshot")
    assert (later.as_of - first.as_of).total_seconds() >= 1


def test_the_command_prints_them_once(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """`--once` needs no port; what it prints is what is served."""
    vibey = CommandLine(database_url, redis_url, tmp_path)
    vibey.enqueued(3)
    said = vibey("metrics", "--once")
    assert said.code == 0
    found = Scrape(said.out)
    assert found("vibey_jobs", state="queued") == 3
    vibey.bench.close()


def test_the_command_describes_them_as_the_reference_does() -> None:
    """The page of the documentation is what `--describe` prints."""
    said = Cli()("metrics", "--describe")
    assert (said.code, said.err) == (0, "")
    assert said.out == REFERENCE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--listen", "0.0.0.0:0"), 3, "VIBEY_METRICS_TOKEN"),
        (("--listen", "nowhere"), 2, "127.0.0.1:9464"),
        (("--once", "--describe"), 2, "two different things"),
    ],
)
def test_the_command_refuses_what_cannot_be(
    database_url: str, redis_url: str, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    """An open address without a token is refused, a wrong one is a usage error: one line each."""
    vibey = CommandLine(database_url, redis_url, tmp_path)
    said = vibey("metrics", *arguments)
    assert said.code == code
    assert words in said.complaint
    vibey.bench.close()
