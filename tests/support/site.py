"""Flower with the router's pages, as a real process on a test's own installation, and a plain client to look at it."""

from __future__ import annotations

import json
import os
import re
import signal
import tomllib
from contextlib import closing
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from typing_extensions import override

from tests.support.cli import Cli, write_config
from tests.support.commandline import ENGINES
from tests.support.installation import Bench
from tests.support.wait import until
from tests.support.warm import Started
from vibey.services.route import run_pass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
FLEET = f"""
[engines]
mode = "hybrid"
overflow_after_seconds = 60
paid_daily_cap = 3
{ENGINES}
account = "vendor"
"""
VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})


class Reader(HTMLParser):
    """Reads a page: its figures by engine and name, its links, its words, and whatever could run."""

    def __init__(self, html: str) -> None:
        """Read it all."""
        super().__init__()
        self.figures: dict[tuple[str | None, str], str] = {}
        self.links: list[str] = []
        self.forms: list[dict[str, str | None]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._engine: str | None = None
        self._open: list[tuple[str, str | None, str | None]] = []
        self.feed(html)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag not in VOID:
            self._open.append((tag, given.get("data-figure"), given.get("data-engine")))
        figure = given.get("data-figure")
        if figure is not None:
            self.figures[self._of(), figure] = ""

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag not in {"span", "strong", "small", "time", "a"}:
            self.words += " "
        while self._open and self._open.pop()[0] != tag:
            pass

    @override
    def handle_data(self, data: str) -> None:
        self.words += data
        figure = next((name for _, name, _ in reversed(self._open) if name is not None), None)
        if figure is not None:
            self.figures[self._of(), figure] += data.strip()

    def _of(self) -> str | None:
        return next((engine for _, _, engine in reversed(self._open) if engine is not None), None)

    def figure(self, name: str, engine: str | None = None) -> str:
        """A number as shown."""
        return self.figures[engine, name].replace(",", "")

    @property
    def text(self) -> str:
        """The words, with runs of white space as one space."""
        return " ".join(self.words.split())

    @property
    def as_of(self) -> str:
        """As of when the page is; all nines for one that does not say."""
        found = (given["datetime"] for tag, given in self.tags if tag == "time" and given.get("id") == "as-of")
        return next(found, None) or "9999"

    def next_page(self) -> str | None:
        """Where the next page is."""
        found = (given["href"] for tag, given in self.tags if tag == "a" and given.get("rel") == "next")
        return next(found, None)

    def jobs(self) -> list[int]:
        """The jobs in the list, in its order."""
        keys = [given.get("data-key") for tag, given in self.tags if tag == "tr"]
        return [int(key) for key in keys if key is not None and key.isdigit()]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def page(self) -> Reader:
        """The page, read."""
        return Reader(self.text)


@dataclass
class Site:
    """Flower on an installation in a folder; `bench` looks and meddles behind its back, `vibey` is the command line."""

    database_url: str
    redis_url: str
    folder: Path
    fleet: str = FLEET
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    # Whoever runs the tests may share the machine with other accounts or not: no test depends on that.
    login: str = "never"
    open_pages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Write the configuration and the fleet; nothing is started yet."""
        self.folder.mkdir(exist_ok=True)
        services = {
            "database_url": self.database_url,
            "redis_url": self.redis_url,
            "data_dir": str(self.folder / "data"),
            "flower_login": self.login,
            "flower_open": list(self.open_pages),
        }
        self.config = write_config(self.folder / "vibey.toml", services, self.fleet)
        self.bench = Bench(self.database_url, self.redis_url, self.folder, tomllib.loads(self.fleet))
        self.vibey = Cli(self.config)
        self.log = self.folder / "flower.log"
        self.prefix = ""
        self._process: Started | None = None
        self._port = 0

    def start(self) -> Site:
        """Start Flower on a free port and wait until it answers."""
        self.log.unlink(missing_ok=True)
        command = ["celery", "-A", "vibey", "flower", "--port=0", *self.arguments]
        self._process = Started(command, folder=self.folder, environment=self.variables, log=self.log)
        self._port = int(until(self._announced, what="Flower to listen"))
        until(lambda: self.get("/healthcheck").status in {200, 302, 401}, what="Flower to answer")
        return self

    @property
    def variables(self) -> dict[str, str]:
        """The environment Flower is started with."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("FLOWER_")}
        path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
        return {**plain, "PYTHONPATH": path, "VIBEY_CONFIG": str(self.config), **self.environment}

    def _announced(self) -> str | None:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        assert self._process is not None
        assert self._process.poll() is None, text
        found = re.search(r"Visit me at https?://[^:\s]+:(\d+)", text)
        return found[1] if found else None

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    @property
    def origin(self) -> str:
        """Where it is, for a browser."""
        return f"http://127.0.0.1:{self._port}"

    def look(self, path: str, **headers: str) -> Reader:
        """A page as of now or later: what was read for others a moment ago does not do."""
        sql = "select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.MS')"
        now = f"{str(self.bench.value(sql)).replace(' ', 'T')}Z"

        def fresh() -> Reader | None:
            page = self.get(path, **headers).page
            return page if page.as_of >= now else None

        return until(fresh, what=f"{path} as of {now}")

    def get(self, path: str, **headers: str) -> Answer:
        """Look at a page."""
        return self.request("GET", path, headers)

    def post(self, path: str, form: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Send a form."""
        sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return self.request("POST", path, sent, urlencode(form or {}))

    def request(self, method: str, path: str, headers: Mapping[str, str], body: str | None = None) -> Answer:
        """One request by itself; an underscore in a header's name stands for a dash."""
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, f"{self.prefix}{path}", body, named)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            return Answer(answer.status, dict(answer.getheaders()), text)

    def stream(self, path: str, **headers: str) -> Stream:
        """Open a stream of events."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", path, headers=headers)
        return Stream(connection, connection.getresponse())

    def route(self) -> None:
        """Routing passes over the main pool until nothing more can be granted."""
        while (passed := run_pass(self.bench.installation, "main")) is not None and passed.granted:
            pass

    def stop(self) -> None:
        """End Flower."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()

    def close(self) -> None:
        """End Flower and close connections."""
        self.stop()
        self.bench.close()


class Stream:
    """A stream of server-sent events."""

    def __init__(self, connection: HTTPConnection, answer: HTTPResponse) -> None:
        """Read from its beginning."""
        self._connection = connection
        self._answer = answer
        self.status = answer.status
        self._events = self._read()

    def next(self, *names: str) -> tuple[str, Any]:
        """The next event of one of these names, others passed over."""
        return next(event for event in self._events if event[0] in names)

    def _read(self) -> Iterator[tuple[str, Any]]:
        name = ""
        while line := self._answer.readline():
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                yield name, json.loads(text.removeprefix("data: "))

    def close(self) -> None:
        """Go away."""
        self._answer.close()
        self._connection.close()
