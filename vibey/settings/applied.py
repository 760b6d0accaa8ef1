"""What `vibey apply` puts in force: the form in which a generation is stored, and settings that follow one.

A generation's content is one JSON object:

    engines    every key of `[engines]` but the slots; keys of `OVERLAID` without the environment, the others with it
    engine     by name what routing depends on, as in the engines' rows: account, kind, tier, ordinal, slots, weight
               (millionths), price (micro-dollars), capabilities, efforts, enabled; `workspace_roots`, on any machine;
               and `runs`, a digest of each key that says what runs the engine
    pool       by name, as in the pools' rows
    schedule   a list, each with its name
    verify     the names of checks

What runs an engine is never read from here: each machine takes it from its own file, and serves an engine only where
the digests agree. They are made of the file's words before a `[host.NAME]` table changes them, so paths may differ.
The first generation of a database made by an earlier version lacks keys; those stay as each process's file says.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.settings.facts import engine_facts
from vibey.settings.model import EngineDefaults, PolicyKeys, ScheduleSettings
from vibey.settings.source import OVERLAID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.settings.model import EngineSettings, MemberSettings, PoolSettings
    from vibey.settings.settings import Settings

RUNS = (
    "argv",
    "callable",
    "app",
    "model",
    "base_url",
    "api_key_env",
    "api_key_file",
    "env",
    "efforts",
    "run_cost_limit_usd",
    "stall_seconds",
    "workspace_roots",
    "workspace_author",
)
"""Keys of an engine's table that say what runs it; `kind` does too, and is stored in clear."""

CHECKS = "checks"
_PATHS = frozenset({"argv", "api_key_file", "workspace_roots"})
_DIGEST_BYTES = 8


def content_of(settings: Settings) -> dict[str, Any]:
    """The content of a generation that these settings would make."""
    content = {
        "engines": _engines(settings),
        "engine": {facts.name: _engine(settings, facts) for facts in engine_facts(settings)},
        "pool": {name: _pool(pool) for name, pool in settings.pool.items()},
        "schedule": [_schedule(name, each) for name, each in settings.schedule.items()],
        "verify": sorted(settings.verify),
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, default=_plain))
    return plain


def followed(settings: Settings, content: Mapping[str, Any]) -> Settings:
    """These settings with what routing depends on taken from a generation; what runs an engine stays theirs."""
    stored = {key: value for key, value in content["engines"].items() if key in EngineDefaults.model_fields}
    slots = {name: engine["slots"] for name, engine in content["engine"].items()}
    declared = _with(settings.declared, {**_others(settings, stored), **stored, "slots": slots})
    over = {key: getattr(settings.engines, key) for key in OVERLAID if _is_from_environment(settings, key)}
    schedule = settings.schedule
    if "schedule" in content:
        schedule = MappingProxyType({each["name"]: _window(each) for each in content["schedule"]})
    return replace(settings, engines=_with(declared, over), declared=declared, schedule=schedule)


def policy_in(content: Mapping[str, Any]) -> dict[str, Any]:
    """The policy of the implicit project that a generation holds."""
    return {key: content["engines"][key] for key in PolicyKeys.model_fields if key in content["engines"]}


def disagreement(settings: Settings, content: Mapping[str, Any], name: str) -> str:
    """How these settings would run an engine in another way than the generation asks, in words; else empty."""
    engine, stored = settings.engine.get(name), content["engine"][name]
    if engine is None:
        return f"no engine {name} in its file"
    if engine.kind != stored["kind"]:
        return f"another kind for {name} ({engine.kind} instead of {stored['kind']})"
    known = stored.get("runs")
    if known is None:
        return ""
    own = _runs(settings, engine)
    odd = [key for key in sorted({*known, *own}) if known.get(key) != own.get(key)]
    return f"another {', '.join(odd)} for {name}" if odd else ""


def _engines(settings: Settings) -> dict[str, object]:
    keys = [key for key in EngineDefaults.model_fields if key != "slots"]
    return {key: getattr(settings.declared if key in OVERLAID else settings.engines, key) for key in keys}


def _engine(settings: Settings, facts: Any) -> dict[str, Any]:  # noqa: ANN401  EngineFacts, as `facts` makes them
    engine = settings.engine[facts.name]
    return {
        "account": facts.account,
        "kind": engine.kind,
        "tier": facts.tier.value,
        "ordinal": facts.ordinal,
        "slots": facts.slots,
        "weight": facts.weight,
        "price": facts.price,
        "capabilities": sorted(facts.capabilities),
        "efforts": [Effort(level).label for level in facts.efforts],
        "enabled": facts.enabled,
        "workspace_roots": list(map(str, settings.roots.get(facts.name, ()))),
        "runs": _runs(settings, engine),
    }


def _runs(settings: Settings, engine: EngineSettings) -> dict[str, str]:
    """A digest of each key that is set and says what runs the engine, as the file says it for every machine."""
    written = settings.written.get(engine.name, {})
    values = {key: written.get(key) if key in _PATHS else getattr(engine, key) for key in RUNS}
    found = {key: _digest(value) for key, value in values.items() if value not in (None, (), {}, [])}
    if settings.verify and settings.roots.get(engine.name):
        found[CHECKS] = _digest({name: each.model_dump() for name, each in settings.verify.items()})
    return found


def _digest(value: object) -> str:
    text = json.dumps(value, default=_plain, sort_keys=True)
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _pool(pool: PoolSettings) -> dict[str, Any]:
    return {
        "select": pool.select,
        "by_weight": pool.tier_by == "weight",
        "waits": pool.when_full == "wait",
        "members": [_member(member) for member in pool.members],
    }


def _member(member: MemberSettings) -> dict[str, Any]:
    return {
        "engine": member.engine,
        "pool": member.pool,
        "weight": member.weight_millionths,
        "tier": member.tier,
    }


def _schedule(name: str, each: ScheduleSettings) -> dict[str, Any]:
    return {"name": name, **{key: getattr(each, key) for key in ScheduleSettings.model_fields}}


def _window(stored: Mapping[str, Any]) -> ScheduleSettings:
    values = {key: value for key, value in stored.items() if key in ScheduleSettings.model_fields}
    until = None if values["until"] is None else datetime.fromisoformat(values["until"])
    return ScheduleSettings.model_construct(**{**values, "days": tuple(values["days"]), "until": until})


def _others(settings: Settings, stored: Mapping[str, Any]) -> dict[str, Any]:
    """What these settings say of the keys a generation does not hold."""
    return {key: getattr(settings.engines, key) for key in EngineDefaults.model_fields if key not in stored}


def _is_from_environment(settings: Settings, key: str) -> bool:
    return settings.sources.get(f"engines.{key}", "").startswith("environment ")


def _with(table: EngineDefaults, values: Mapping[str, object]) -> EngineDefaults:
    kept = {key: getattr(table, key) for key in EngineDefaults.model_fields}
    return EngineDefaults.model_validate({**kept, **values})


def _plain(value: object) -> object:
    """A value of the settings as JSON knows it."""
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case Path():
            return str(value)
        case datetime():
            return value.isoformat()
        case MappingProxyType():
            return dict(value)
        case _:
            pass
    raise TypeError(type(value).__name__)
