"""Push: the metrics sent by OpenTelemetry's protocol, from beside the exporter that serves them.

The same snapshots, under the same names. What is sent is made of them as it stands rather than counted again by
instruments, so that histograms, which the database keeps, arrive whole.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from vibey import __version__, otel
from vibey.domain.errors import VibeyError
from vibey.services.families import FAMILIES, Kind
from vibey.store.tallies import BOUNDS, Tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.services.exposition import Scraper
    from vibey.services.families import Family
    from vibey.services.metrics import Labels, Snapshot

log = logging.getLogger("vibey.push")

INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
INTERVAL_MS = 60_000
SHORTEST_MS = 1000
SECONDS = tuple(bound / 1_000_000 for bound in BOUNDS)


def start(scraper: Scraper, environ: Mapping[str, str] = os.environ) -> bool:
    """Push from a thread of this process for as long as it lives, if the environment asks; says whether it does."""
    exporters = otel.exporters(environ, otel.METRICS)
    if exporters:
        interval = _interval_seconds(environ)
        threading.Thread(target=_push, args=(scraper, exporters, interval), name="vibey-push", daemon=True).start()
    return bool(exporters)


def told(taken: Snapshot, environ: Mapping[str, str] = os.environ) -> Any:  # noqa: ANN401  OpenTelemetry's
    """A snapshot as OpenTelemetry's exporters take it."""
    from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    known = [family for family in FAMILIES if taken.of(family)]
    metrics = [Metric(each.name, each.meaning, "s" if each.unit else "1", _data(each, taken)) for each in known]
    scope = ScopeMetrics(InstrumentationScope("vibey", __version__), metrics, "")
    return MetricsData([ResourceMetrics(otel.resource(environ), [scope], "")])


def _push(scraper: Scraper, exporters: Sequence[Any], interval: float) -> None:
    pause = threading.Event()
    while True:
        try:
            taken = told(scraper.snapshot())
            for exporter in exporters:
                exporter.export(taken)
        except VibeyError as error:
            log.warning("could not push metrics: %s", error)
        except Exception:
            log.exception("could not push metrics")
        pause.wait(interval)


def _interval_seconds(environ: Mapping[str, str]) -> float:
    text = environ.get(INTERVAL_VARIABLE, "")
    return max(SHORTEST_MS, int(text) if text.isascii() and text.isdigit() else INTERVAL_MS) / 1000


def _data(family: Family, taken: Snapshot) -> Any:  # noqa: ANN401  OpenTelemetry's
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Sum

    points = [_point(family, taken, labels, value) for labels, value in taken.of(family).items()]
    cumulative = AggregationTemporality.CUMULATIVE
    if family.kind is Kind.HISTOGRAM:
        return Histogram(points, cumulative)
    return Sum(points, cumulative, is_monotonic=True) if family.kind is Kind.COUNTER else Gauge(points)


def _point(family: Family, taken: Snapshot, labels: Labels, value: float | Tally) -> Any:  # noqa: ANN401
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

    began, now = (int(instant.timestamp() * 1e9) for instant in (taken.since, taken.as_of))
    attributes = dict(zip(family.labels, labels, strict=True))
    if not isinstance(value, Tally):
        return NumberDataPoint(attributes, began, now, value)
    reached = (*value.counts, value.total)
    counts = [count - before for before, count in zip((0, *reached), reached, strict=False)]
    unknown: Any = None
    return HistogramDataPoint(
        attributes, began, now, value.total, value.micros / 1e6, counts, SECONDS, min=unknown, max=unknown
    )
