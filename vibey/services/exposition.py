"""Exposition: a snapshot as text, in the format a scraper asks for; and how often one is taken at all."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from typing_extensions import override

from vibey.services.families import FAMILIES, Kind
from vibey.services.metrics import Snapshot, Stalls, snapshot
from vibey.store.tallies import BOUNDS, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from vibey.services.families import Family
    from vibey.services.installation import Installation

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LONGEST_FRESH_SECONDS = 1.0
# Reading takes at most one part in so many of the time, however deep the queue and however many scrape.
SHARE = 50
BUCKETS = tuple(str(bound / 1_000_000) for bound in BOUNDS)


class Scraper:
    """Takes snapshots of an installation for whoever asks: at most one a second, rarer where they are dear."""

    def __init__(self, installation: Installation) -> None:
        """Nothing is read before it is asked for."""
        self._installation = installation
        self._stalls = Stalls()
        self._guard = threading.Lock()
        self._last: Snapshot | None = None
        self._fresh_until = 0.0

    def snapshot(self) -> Snapshot:
        """The last snapshot while it is fresh, else another. ServiceUnavailable when the database is."""
        with self._guard:
            began = time.monotonic()
            if self._last is None or began >= self._fresh_until:
                self._last = snapshot(self._installation, self._stalls)
                ended = time.monotonic()
                self._fresh_until = ended + max(LONGEST_FRESH_SECONDS, SHARE * (ended - began))
            return self._last

    def text(self, accept: str = OPENMETRICS) -> tuple[bytes, str]:
        """A snapshot in the format an `Accept` header asks for, OpenMetrics or Prometheus's own; and its type."""
        return text(self.snapshot(), accept)


def text(taken: Snapshot, accept: str = OPENMETRICS) -> tuple[bytes, str]:
    """A snapshot as text, and the type of that text."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry()
    registry.register(_Collected(taken))
    return encode(registry), content_type


class _Collected(Collector):
    """A snapshot as the library's collector."""

    def __init__(self, taken: Snapshot) -> None:
        self._taken = taken

    @override
    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            yield _collected(family, self._taken)


def _collected(family: Family, taken: Snapshot) -> Metric:
    samples = taken.of(family)
    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.meaning, labels=family.labels, unit=family.unit)
        for labels, value in samples.items():
            if isinstance(value, Tally):
                counts = [*zip(BUCKETS, value.counts, strict=True), ("+Inf", value.total)]
                histogram.add_metric(labels, counts, value.micros / 1_000_000)
        return histogram
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    plain = make(family.name, family.meaning, labels=family.labels, unit=family.unit)
    for labels, value in samples.items():
        if not isinstance(value, Tally):
            plain.add_metric(labels, value)
    return plain
