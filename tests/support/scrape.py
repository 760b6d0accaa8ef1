"""Scrapes: text as a scraper gets it, parsed by Prometheus's own library into plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as prometheus_families

if TYPE_CHECKING:
    from prometheus_client import Metric

Series = tuple[str, tuple[tuple[str, str], ...]]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """One answer: its families, and each sample's value by name and labels."""

    def __init__(self, text: str, *, openmetrics: bool = True) -> None:
        """Parse it; ValueError when it is not valid."""
        parse = openmetrics_families if openmetrics else prometheus_families
        self.families: dict[str, Metric] = {each.name: each for each in parse(text)}
        self.values: dict[Series, float] = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one series."""
        return self.values[name, tuple(sorted(labels.items()))]

    def by(self, name: str, label: str) -> dict[str, float]:
        """The values of a name by one of its labels."""
        return {dict(labels)[label]: value for (found, labels), value in self.values.items() if found == name}

    @property
    def counters(self) -> dict[Series, float]:
        """Every series that may only grow."""
        grow = {
            sample.name
            for family in self.families.values()
            if family.type in {"counter", "histogram"}
            for sample in family.samples
        }
        return {series: value for series, value in self.values.items() if series[0] in grow}


def scrape(url: str, token: str = "") -> Scrape:
    """Ask an exporter as Prometheus does; HTTPError for any answer that is no scrape."""
    headers = {"Accept": OPENMETRICS, **({"Authorization": f"Bearer {token}"} if token else {})}
    with urlopen(Request(url, headers=headers), timeout=20) as answer:  # noqa: S310  loopback
        return Scrape(answer.read().decode())
