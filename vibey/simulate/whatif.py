"""What if: the same past on other settings, beside what really happened."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import InvalidInput, UnknownName
from vibey.settings import Settings, Source, settings_of
from vibey.settings.source import policy_variable
from vibey.simulate.report import quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.simulate.report import Report

# What people write, and the key of `[engines]` it stands for.
KEYS = {
    "mode": "mode",
    "cap": "paid_daily_cap",
    "cap_scope": "paid_daily_cap_scope",
    "cap_covers": "paid_daily_cap_covers",
    "fallback": "paid_fallback",
    "overflow_after": "overflow_after_seconds",
    "max_attempts": "max_attempts",
    "cost_aware": "cost_aware",
}
FORMS = (*KEYS, "slots.ENGINE", "weight.ENGINE", "enabled.ENGINE")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the jobs of a span fared: waits of granted attempts, paid runs by their ground, and jobs that never ran."""

    waits_ms: Sequence[int]
    paid: int
    overflows: int
    fallbacks: int
    never_run: int

    @classmethod
    def of(cls, report: Report) -> Outcome:
        """What a simulation came to."""
        tiers = {name: tier for name, tier, _ in report.fleet.engines()}
        paid = sum(count for name, count in report.picks.items() if tiers[name] == "paid")
        outcomes = report.outcomes
        left = sum(report.left.values())
        return cls(sorted(report.waits_ms), paid, outcomes["overflow"], outcomes["fallback"], left)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, waits in seconds.

        `starved` never ran, or waited more than an hour and ten times the median.
        """
        waits = self.waits_ms
        return {
            "granted": len(waits),
            "wait_p50": quantile(waits, 50) / 1000,
            "wait_p95": quantile(waits, 95) / 1000,
            "wait_max": (waits[-1] if waits else 0) / 1000,
            "paid": self.paid,
            "overflows": self.overflows,
            "fallbacks": self.fallbacks,
            "starved": sum(wait > max(3_600_000, 10 * quantile(waits, 50)) for wait in waits) + self.never_run,
            "never_run": self.never_run,
        }


def changed(settings: Settings, source: Source, text: str, environ: Mapping[str, str]) -> Settings:
    """The settings with changes such as `mode=hybrid,cap=20,slots.ollama=2`; errors name the change or the key."""
    tables: dict[str, Any] = {name: _copied(table) for name, table in source.tables.items()}
    engines, told = tables.setdefault("engines", {}), set[str]()
    for change in (part.strip() for part in text.split(",")):
        key, equals, value = change.partition("=")
        if not equals or not value:
            raise InvalidInput("--what-if", change, f"key=value; keys: {', '.join(FORMS)}")
        kind, dot, name = key.strip().partition(".")
        if dot and kind in {"slots", "weight", "enabled"}:
            if name not in settings.engine:
                raise UnknownName("engine", name, tuple(settings.engine))
            table = engines.setdefault("slots", {}) if kind == "slots" else tables["engine"][name]
            table[name if kind == "slots" else kind] = _value(value.strip())
        elif key.strip() in KEYS:
            told.add(KEYS[key.strip()])
            engines[KEYS[key.strip()]] = _value(value.strip())
        else:
            raise InvalidInput("--what-if", key.strip(), f"one of {', '.join(FORMS)}")
    # A variable would win over the change that is asked about.
    beaten = {policy_variable(key) for key in told}
    rest = {name: value for name, value in environ.items() if name not in beaten}
    return settings_of(Source(source.path, source.folder, tables), rest)


def _value(text: str) -> object:
    if text in {"true", "false"}:
        return text == "true"
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return Decimal(text) if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", text) else text


def _copied(value: Any) -> Any:  # noqa: ANN401  whatever a file holds
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, dict) else value
