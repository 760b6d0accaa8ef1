"""The difference between two generations, as a person reads it.

Each change is about one thing: an engine, a pool, a schedule, a check, a key of `[engines]`. Values are written as the
file writes them. What runs an engine is known by digests only, so of that a change says which keys are others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from vibey.settings.applied import policy_in
from vibey.settings.values import MILLIONTHS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
SIGNS = {ADDED: "+", REMOVED: "-", CHANGED: "~"}
_MICRO = 1_000_000
_IDENTITY = ("kind", "account")
_SHOWN = (
    "tier",
    "kind",
    "account",
    "slots",
    "weight",
    "price",
    "capabilities",
    "efforts",
    "enabled",
    "workspace_roots",
)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: its part of the file, its name, what happens to it (added, removed, changed), and how."""

    part: str
    name: str
    what: str
    details: tuple[str, ...] = ()

    @override
    def __str__(self) -> str:
        """The change in one line."""
        subject = f"{self.part} {self.name}".strip()
        details = "; ".join(self.details)
        return f"{SIGNS[self.what]} {subject}{f': {details}' if details else ''}"

    def as_json(self) -> dict[str, Any]:
        """The change as a JSON object."""
        return {"part": self.part, "name": self.name, "change": self.what, "details": list(self.details)}


def differences(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[Change]:
    """What a generation changes, compared with the one before or, for None, with nothing at all."""
    old = before or {}
    return [
        *_engines(old.get("engine", {}), after["engine"]),
        *_named("pool", old.get("pool", {}), after["pool"], _pool_details),
        *_named("schedule", _by_name(old.get("schedule", ())), _by_name(after.get("schedule", ())), _key_details),
        *_checks(old.get("verify", ()), after.get("verify", ())),
        *_keys(old.get("engines"), after["engines"], policy_in(after)),
    ]


def replaced_engines(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """Engines that are removed, or are others under the same name: grants that have not started are withdrawn."""
    old, new = (before or {}).get("engine", {}), after["engine"]
    return tuple(
        name for name in sorted(old) if name not in new or any(old[name][key] != new[name][key] for key in _IDENTITY)
    )


def rerun_engines(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """Engines that are run in another way from now on: a worker must read its file before it serves them again."""
    old, new = (before or {}).get("engine", {}), after["engine"]
    changed = {
        name for name in old.keys() & new if old[name].get("runs") and old[name]["runs"] != new[name].get("runs")
    }
    return tuple(sorted({*replaced_engines(before, after), *changed}))


def removed_pools(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """Pools that are configured no more."""
    return tuple(sorted((before or {}).get("pool", {}).keys() - after["pool"]))


def _engines(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted(old.keys() - new):
        yield Change("engine", name, REMOVED)
    for name in sorted(new, key=lambda name: new[name]["ordinal"]):
        engine = new[name]
        if name not in old:
            slots = _count(engine["slots"], "slot")
            account = "" if engine["account"] == name else f", account {engine['account']}"
            yield Change("engine", name, ADDED, (f"{engine['tier']}, {engine['kind']}, {slots}{account}",))
            continue
        details = [
            f"{key} {_engine_value(key, old[name].get(key))} → {_engine_value(key, engine.get(key))}"
            for key in _SHOWN
            if key in old[name] and old[name][key] != engine.get(key)
        ]
        known, runs = old[name].get("runs"), engine.get("runs", {})
        if known is not None:
            details += [f"another {key}" for key in sorted({*known, *runs}) if known.get(key) != runs.get(key)]
        if details:
            yield Change("engine", name, CHANGED, tuple(details))
    shared = [name for name in sorted(new, key=lambda name: new[name]["ordinal"]) if name in old]
    if shared != sorted(shared, key=lambda name: old[name]["ordinal"]):
        yield Change("engines", "in order", CHANGED, (", ".join(shared),))


def _named(part: str, old: Mapping[str, Any], new: Mapping[str, Any], details: Any) -> Iterator[Change]:  # noqa: ANN401
    for name in sorted(old.keys() - new):
        yield Change(part, name, REMOVED)
    for name in sorted(new):
        if name not in old:
            yield Change(part, name, ADDED, tuple(details({}, new[name])))
        elif old[name] != new[name]:
            yield Change(part, name, CHANGED, tuple(details(old[name], new[name])))


def _pool_details(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    def words(pool: Mapping[str, Any]) -> dict[str, str]:
        if not pool:
            return {}
        return {
            "select": pool["select"],
            "tier_by": "weight" if pool.get("by_weight") else "tier",
            "when_full": "wait" if pool.get("waits") else "next",
            "members": ", ".join(map(_member, pool["members"])),
        }

    was, now = words(old), words(new)
    if not was:
        yield f"{now['select']}: {now['members']}"
        return
    for key, value in now.items():
        if was[key] != value:
            yield f"{key} {was[key]} → {value}"


def _member(member: Mapping[str, Any]) -> str:
    name = member.get("engine") or f"pool {member.get('pool')}"
    more = []
    if member.get("tier") is not None:
        more.append(f"tier {member['tier']}")
    if member.get("weight") is not None:
        more.append(f"weight {_decimal(member['weight'], MILLIONTHS)}")
    return f"{name} ({', '.join(more)})" if more else name


def _key_details(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key, value in new.items():
        if key != "name" and (not old or old.get(key) != value):
            shown = _schedule_value(key, value)
            yield (
                f"{_schedule_key(key)} {_schedule_value(key, old[key])} → {shown}"
                if old
                else (f"{_schedule_key(key)} {shown}")
            )


def _schedule_key(key: str) -> str:
    return {"factor_millionths": "factor", "from_minute": "from", "to_minute": "to"}.get(key, key)


def _schedule_value(key: str, value: Any) -> str:  # noqa: ANN401  a JSON value
    if key == "factor_millionths":
        return _decimal(value, MILLIONTHS)
    if key in {"from_minute", "to_minute"}:
        return f"{value // 60:02}:{value % 60:02}"
    return _written(value)


def _checks(old: Iterable[str], new: Iterable[str]) -> Iterator[Change]:
    was, now = set(old), set(new)
    for name in sorted(was - now):
        yield Change("check", name, REMOVED)
    for name in sorted(now - was):
        yield Change("check", name, ADDED)


def _keys(old: Mapping[str, Any] | None, new: Mapping[str, Any], policy: Iterable[str]) -> Iterator[Change]:
    """Keys of `[engines]`; for the first generation, and for keys that the one before did not hold, none is listed."""
    if old is None:
        return
    for key, value in new.items():
        if key in old and old[key] != value:
            note = " (project default; other projects keep theirs)" if key in policy else ""
            yield Change("", key, CHANGED, (f"{_written(old[key])} → {_written(value)}{note}",))
    fresh = [key for key in new if key not in old]
    if fresh:
        yield Change("", "[engines]", ADDED, (f"recorded for the first time: {', '.join(fresh)}",))
    for key in sorted(old.keys() - new):
        yield Change("", key, REMOVED, (f"was {_written(old[key])}",))


def _by_name(schedules: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {each["name"]: each for each in schedules}


def _engine_value(key: str, value: Any) -> str:  # noqa: ANN401  a JSON value
    if key == "weight":
        return _decimal(value, MILLIONTHS)
    if key == "price":
        return f"{_decimal(value, _MICRO)} dollars"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else _written(value)


def _decimal(value: int, unit: int) -> str:
    return f"{(Decimal(value) / unit).normalize():f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _written(value: Any) -> str:  # noqa: ANN401  a JSON value
    return json.dumps(value, ensure_ascii=False)
