"""The dashboard and the alert rules: every expression is whole, and names only what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from vibey.services.families import FAMILIES, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[2] / "config" / "observability"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DOCUMENTED = (Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
LABELS = {
    series: {*each.labels, *(("le",) if each.kind is Kind.HISTOGRAM else ())}
    for each in FAMILIES
    for series in each.series
}
GROWING = {series for each in FAMILIES if each.kind is not Kind.GAUGE for series in each.series}
FUNCTIONS = {"absent", "count", "histogram_quantile", "rate", "sum", "time", "vector"}
AGGREGATIONS = {"count", "sum"}
WORDS = {"and", "or", "by"}
TOKEN = re.compile(
    r"""\s*(?:(?P<name>[a-zA-Z_:][\w:]*)|(?P<number>\d+(?:\.\d+)?)|(?P<text>"[^"]*")|(?P<span>\[[^\]]*\])"""
    r"""|(?P<sign>==|!=|=~|!~|<=|>=|[-+*/<>=(){},]))"""
)
SPAN = re.compile(r"\[(\d+[smhd]|\$__rate_interval)\]")


def _expressions() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


class Query:
    """An expression taken apart by a small grammar of PromQL: enough to refuse what Prometheus would not parse."""

    def __init__(self, text: str) -> None:
        """Parse it; AssertionError says what is wrong with it. `used` are series with the labels asked of them."""
        self._tokens = self._split(text)
        self._at = 0
        self.used: list[tuple[str, set[str], bool]] = []
        self.grouped: set[str] = set()
        self._binary()
        assert self._at == len(self._tokens), f"{self._tokens[self._at :]} is left over"

    def _split(self, text: str) -> list[tuple[str, str]]:
        found, at = [], 0
        while at < len(text.rstrip()):
            match = TOKEN.match(text, at)
            assert match, f"{text[at:]!r} is nothing"
            found.append((match.lastgroup or "", match[match.lastgroup or 0]))
            at = match.end()
        return found

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self, *wanted: str) -> str:
        _, text = self._peek()
        assert not wanted or text in wanted, f"{text!r} instead of {wanted}"
        self._at += 1
        return text

    def _binary(self) -> None:
        self._operand()
        while self._peek()[1] in {"and", "or", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/"}:
            self._take()
            self._operand()

    def _operand(self) -> None:
        kind, text = self._peek()
        if text == "(":
            self._inside()
        elif kind == "number":
            self._take()
        else:
            assert kind == "name", f"{text!r} is no operand"
            assert text not in WORDS
            if text in FUNCTIONS:
                self._call()
            else:
                self._series()

    def _inside(self) -> None:
        self._take("(")
        while self._peek()[1] != ")":
            self._binary()
            if self._peek()[1] != ")":
                self._take(",")
        self._take(")")

    def _call(self) -> None:
        name = self._take()
        if name in AGGREGATIONS and self._peek()[1] == "by":
            self._take("by")
            self.grouped |= self._names()
        self._inside()

    def _names(self) -> set[str]:
        self._take("(")
        found = {self._take()}
        while self._peek()[1] == ",":
            self._take(",")
            found.add(self._take())
        self._take(")")
        return found

    def _series(self) -> None:
        name, labels = self._take(), set[str]()
        if self._peek()[1] == "{":
            self._take("{")
            while self._peek()[1] != "}":
                labels.add(self._take())
                self._take("=", "!=", "=~", "!~")
                assert self._peek()[0] == "text"
                self._take()
                if self._peek()[1] != "}":
                    self._take(",")
            self._take("}")
        ranged = self._peek()[0] == "span"
        if ranged:
            assert SPAN.fullmatch(self._take())
        self.used.append((name, labels, ranged))


@pytest.mark.parametrize(("where", "expression"), list(_expressions()))
def test_an_expression_is_whole_and_names_what_there_is(where: str, expression: str) -> None:
    """It parses, each series and label exists, and only what grows is asked for its rate."""
    query = Query(expression)
    assert query.used, where
    for name, labels, ranged in query.used:
        assert name in LABELS, f"{where}: there is no {name}"
        assert labels <= LABELS[name], f"{where}: {name} has no {labels - LABELS[name]}"
        assert query.grouped <= LABELS[name]
        assert ranged == (name in GROWING), f"{where}: a rate is of what grows, and what grows is shown as one"


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "vibey_jobs{",
        'sum(vibey_jobs{state="x"}',
        "vibey_jobs vibey_jobs",
        "rate(vibey_x[5])",
        "and vibey_jobs",
        "a{b}",
    ],
)
def test_what_is_not_whole_is_refused(expression: str) -> None:
    """The grammar above refuses what is cut short or stands loose."""
    with pytest.raises(AssertionError):
        Query(expression)


def test_every_metric_is_looked_at() -> None:
    """Whatever is served is on the dashboard or in a rule, but for the sums beside the buckets."""
    used = {name for _, expression in _expressions() for name, _, _ in Query(expression).used}
    for family in FAMILIES:
        assert used & set(family.series), family.name


def test_the_dashboard_is_one_grafana_takes() -> None:
    """Panels have ids, places that do not overlap, and ask the data source the person chose; legends name labels."""
    assert DASHBOARD["schemaVersion"] >= 39
    assert DASHBOARD["uid"]
    assert DASHBOARD["title"]
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource"]
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["description"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            query = Query(target["expr"])
            known = query.grouped or set[str].intersection(*(LABELS[name] for name, _, _ in query.used))
            assert named <= known, panel["title"]


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_a_rule_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    """Severity, a summary and the first thing to do; what it names of the alert exists; the how-to tells of it."""
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "action"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    words = " ".join(rule["annotations"].values())
    known = set().union(*(LABELS[name] for name, _, _ in Query(rule["expr"]).used))
    assert set(re.findall(r"\$labels\.(\w+)", words)) <= known
    assert words.count("{{") == words.count("}}")
    assert rule["alert"] in DOCUMENTED


def test_the_promised_alerts_are_there() -> None:
    """I10, stuck holds, a cap nearly spent, silent workers and beat, and a circuit that stays open."""
    names = {rule["alert"] for rule in RULES}
    assert names >= {
        "VibeyJobBesideFreeSlot",
        "VibeyHoldStuck",
        "VibeyCapNearlySpent",
        "VibeyWorkerSilent",
        "VibeyBeatSilent",
        "VibeyCircuitOpenLong",
    }
    assert len(names) == len(RULES)
