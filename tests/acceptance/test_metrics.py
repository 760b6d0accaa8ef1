"""Metrics of a fleet at work: scraped from a real exporter that is killed, beside a Redis that is wiped."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import redis

from tests.support.otlp import Collector
from tests.support.scrape import Scrape, scrape
from tests.support.wait import until
from vibey.services.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.fleet import Fleet
    from tests.support.scrape import Series

pytestmark = pytest.mark.slow


class Exporters:
    """`vibey metrics` beside a fleet, one process after the other."""

    def __init__(self, fleet: Fleet, environment: Mapping[str, str]) -> None:
        """Start the first, on a port the system chooses."""
        self._fleet = fleet
        self._environment = {**os.environ, "VIBEY_CONFIG": str(fleet.config), **environment}
        self._process = self._started()

    @property
    def pid(self) -> int:
        """The process at work."""
        return self._process.pid

    def kill(self) -> None:
        """Kill -9, and start another."""
        self._process.kill()
        self._process.communicate()
        self._process = self._started()

    def end(self, signum: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        self._process.send_signal(signum)
        self._process.communicate(timeout=300)
        return self._process.returncode

    def clear(self) -> None:
        """Leave none behind."""
        if self._process.poll() is None:
            self.end(signal.SIGKILL)

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "vibey.cli.main", "metrics", "--listen", "127.0.0.1:0"],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        self.url = process.stdout.readline().removeprefix("metrics: ").split(",")[0].strip()
        return process


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    """Let what is started here heed Ctrl-C, even where these tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def export() -> Iterator[Callable[..., Exporters]]:
    """A function that starts the exporter of a fleet."""
    started: list[Exporters] = []

    def exporter(fleet: Fleet, **environment: str) -> Exporters:
        started.append(Exporters(fleet, environment))
        return started[-1]

    yield exporter
    for each in started:
        each.clear()


def _grown(before: dict[Series, float], now: Scrape) -> dict[Series, float]:
    """The counters now; none of them is smaller than before, or gone."""
    counters = now.counters
    assert {series: value for series, value in before.items() if counters.get(series, -1) < value} == {}
    return counters


def _status(fleet: Fleet) -> dict[str, Any]:
    said = subprocess.run(
        [sys.executable, "-m", "vibey.cli.main", "status", "--json"],
        env={**os.environ, "VIBEY_CONFIG": str(fleet.config)},
        capture_output=True,
        check=True,
        text=True,
    )
    status: dict[str, Any] = json.loads(said.stdout)
    return status


def test_scrapes_of_a_fleet_at_work(
    open_fleet: Callable[..., Fleet],
    export: Callable[..., Exporters],
    sound: Callable[[Fleet], None],
    redis_url: str,
) -> None:
    """Every scrape keeps to the slots; counters only grow, through kills and a wiped Redis; in the end all is equal."""
    fleet = open_fleet(engine={"near": {}, "side": {}}, engines={"slots": {"near": 2, "side": 1}})
    fleet.muster()
    exporters = export(fleet)
    counters: dict[Series, float] = {}
    fleet.enqueue(40, payload={"seconds": 0.05})
    client = redis.Redis.from_url(redis_url)
    for trouble in (lambda: None, client.flushdb, exporters.kill):
        trouble()
        done = fleet.value("select count(*) from jobs where state = 'succeeded'")
        fleet.until(f"select count(*) >= least(40, {done} + 5) from jobs where state = 'succeeded'")
        seen = scrape(exporters.url)
        counters = _grown(counters, seen)
        slots = seen.by("vibey_slots", "engine")
        assert slots == {"near": 2, "side": 1}
        assert all(used <= slots[name] for name, used in seen.by("vibey_slots_in_use", "engine").items())
        assert seen("vibey_invariant_violations", invariant="I10") == 0
        assert set(seen.by("vibey_worker_silent_seconds", "worker")) == {
            name for (name,) in fleet.rows("select name from workers")
        }
    client.close()
    assert fleet.until_ended() == {"succeeded": 40}
    status = _status(fleet)
    last = until(
        lambda: (now := scrape(exporters.url)).values.get(("vibey_jobs", (("state", "running"),))) == 0 and now,
        what="a scrape of the end",
    )
    _grown(counters, last)
    for engine in status["engines"]:
        name = engine["name"]
        picks = last("vibey_engine_selected_total", engine=name, tier="local", why="assign")
        assert picks == engine["selected_count"]
        assert last("vibey_slots_in_use", engine=name) == engine["in_use"] == 0
    assert last("vibey_cap_remaining", project="default") == status["cap"]["remaining"]
    handovers = until(
        lambda: (now := scrape(exporters.url))("vibey_handover_seconds_count") > 0 and now, what="hand-overs folded in"
    )
    assert handovers("vibey_decision_seconds_count") > 0
    sound(fleet)


def test_the_same_numbers_are_pushed_by_opentelemetry(
    open_fleet: Callable[..., Fleet], export: Callable[..., Exporters]
) -> None:
    """A collector gets what a scrape of the same instant shows: gauges, sums that grow, and whole histograms."""
    fleet = open_fleet(engine={"near": {}}, engines={"slots": {"near": 1}})
    fleet.muster()
    with Collector() as collector:
        exporters = export(fleet, OTEL_METRIC_EXPORT_INTERVAL="1000", **collector.environment)
        assert scrape(exporters.url)("vibey_handover_seconds_count") == 0
        fleet.enqueue(8)
        assert fleet.until_ended() == {"succeeded": 8}
        pushed = until(lambda: _handed_over(collector) >= 7 and dict(collector.metrics), what="a push of the end")
        seen = scrape(exporters.url)
    picks = ("vibey_engine_selected_total", (("engine", "near"), ("tier", "local"), ("why", "assign")))
    assert pushed[picks].as_int == seen.values[picks] == 8
    assert pushed["vibey_slots", (("engine", "near"),)].as_int == 1
    histogram = pushed["vibey_handover_seconds", ()]
    assert histogram.count == sum(histogram.bucket_counts) == seen("vibey_handover_seconds_count")
    assert histogram.sum == pytest.approx(seen("vibey_handover_seconds_sum"))
    bounds = [*map(str, histogram.explicit_bounds), "+Inf"]
    reached = seen.by("vibey_handover_seconds_bucket", "le")
    assert list(itertools.accumulate(histogram.bucket_counts)) == [reached[bound] for bound in bounds]
    assert 0 < histogram.start_time_unix_nano < histogram.time_unix_nano
    assert {name for name, _ in pushed} == {
        family.name for family in FAMILIES if family.name != "vibey_audit_timestamp_seconds"
    }


def _handed_over(collector: Collector) -> int:
    point = collector.metrics.get(("vibey_handover_seconds", ()))
    return 0 if point is None else int(point.count)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_the_exporter_ends_when_told(
    open_fleet: Callable[..., Fleet], export: Callable[..., Exporters], signum: int, code: int
) -> None:
    """It listens on loopback only, and Ctrl-C and TERM end it."""
    fleet = open_fleet(engine={"near": {}})
    exporters = export(fleet)
    assert scrape(exporters.url)("vibey_jobs", state="queued") == 0
    listening = {
        each.laddr.ip
        for each in psutil.Process(exporters.pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    assert exporters.end(signum) == code
