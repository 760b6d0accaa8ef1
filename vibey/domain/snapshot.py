"""Snapshot: the world, requirements and traces as plain JSON values, and back, so that decisions can be replayed.

Names are short because one world is kept per pass, and one requirement and trace per decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Assign, World
from vibey.domain.effort import Effort
from vibey.domain.engine import EngineFacts, Phase, Tier, Usage
from vibey.domain.offer import Fallback, Mode, Policy
from vibey.domain.pool import Member, Pool, Select
from vibey.domain.requirement import Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1


def world_json(world: World) -> dict[str, Any]:
    """A world as JSON values."""
    return {
        "v": VERSION,
        "pool": _pool_json(world.pool),
        "engines": [_engine_json(engine, world.usage) for engine in world.engines],
        "probing": sorted(world.usage.probing),
        "credits": [[pool, member, value] for (pool, member), value in sorted(world.credits.items())],
        "cost_aware": world.cost_aware,
        "policies": {project: _policy_json(policy) for project, policy in sorted(world.policies.items())},
        "purses": dict(sorted(world.purses.items())),
        "caps": dict(sorted(world.caps.items())),
    }


def world_of(value: Mapping[str, Any]) -> World:
    """The world `world_json` wrote."""
    in_use = {item["name"]: item["in_use"] for item in value["engines"]}
    return World(
        pool=_pool_of(value["pool"]),
        engines=tuple(_engine_of(item) for item in value["engines"]),
        usage=Usage(in_use, frozenset(value["probing"])),
        credits={(pool, member): credit for pool, member, credit in value["credits"]},
        cost_aware=value["cost_aware"],
        policies={project: _policy_of(item) for project, item in value["policies"].items()},
        purses=value["purses"],
        caps=value["caps"],
    )


def requirement_json(requirement: Requirement) -> dict[str, Any]:
    """A requirement as JSON values; what is empty is left out."""
    value = {
        "pool": requirement.pool,
        "project": requirement.project,
        "effort": requirement.effort.label,
        "capabilities": sorted(requirement.capabilities),
        "excluded": sorted(requirement.excluded),
        "avoided": sorted(requirement.avoided),
        "affinity": requirement.affinity,
        "session": requirement.session,
    }
    return {key: item for key, item in value.items() if item}


def requirement_of(value: Mapping[str, Any]) -> Requirement:
    """The requirement `requirement_json` wrote."""
    return Requirement(
        pool=value["pool"],
        project=value["project"],
        effort=Effort.named(value["effort"]),
        capabilities=frozenset(value.get("capabilities", ())),
        excluded=frozenset(value.get("excluded", ())),
        avoided=frozenset(value.get("avoided", ())),
        affinity=value.get("affinity"),
        session=value.get("session"),
    )


def trace_json(decision: Assign) -> dict[str, Any]:
    """The steps of an assignment: per pool its members, the shares offered, credits before, and the one chosen.

    A step without a choice is left out: its one member has the whole share, and its credit does not move.
    """
    steps = [
        [step.pool, step.skipped, step.members, step.shares, step.before, step.chosen]
        for step in decision.selection.steps
        if len(step.members) > 1
    ]
    optional = {
        "waived": decision.waived,
        "waited_ms": decision.request.waited_ms,
    }
    return {"steps": steps} | {key: value for key, value in optional.items() if value}


def _policy_json(policy: Policy) -> dict[str, Any]:
    return {
        "mode": policy.mode.value,
        "overflow_after_ms": policy.overflow_after_ms,
        "poll_ms": policy.poll_ms,
        "cap": policy.cap,
        "fallback": policy.fallback.value,
    }


def _policy_of(value: Mapping[str, Any]) -> Policy:
    return Policy(
        Mode(value["mode"]), value["overflow_after_ms"], value["poll_ms"], value["cap"], Fallback(value["fallback"])
    )


def _engine_json(engine: EngineFacts, usage: Usage) -> dict[str, Any]:
    value = {
        "name": engine.name,
        "tier": engine.tier.value,
        "ordinal": engine.ordinal,
        "slots": engine.slots,
        "account": engine.account,
        "weight": engine.weight,
        "phase": engine.phase.value,
        "in_use": usage.in_use.get(engine.name, 0),
    }
    flags = ("enabled", "installed", "conformant", "login_ok", "staffed")
    value |= {flag: False for flag in flags if not getattr(engine, flag)}
    optional = {
        "failure": engine.failure,
        "price": engine.price,
        "busy": engine.busy,
        "capabilities": sorted(engine.capabilities),
        "efforts": [int(level) for level in engine.efforts],
    }
    return value | {key: item for key, item in optional.items() if item}


def _engine_of(value: Mapping[str, Any]) -> EngineFacts:
    return EngineFacts(
        name=value["name"],
        tier=Tier(value["tier"]),
        ordinal=value["ordinal"],
        slots=value["slots"],
        account=value["account"],
        weight=value["weight"],
        enabled=value.get("enabled", True),
        installed=value.get("installed", True),
        conformant=value.get("conformant", True),
        login_ok=value.get("login_ok", True),
        phase=Phase(value["phase"]),
        failure=value.get("failure", 0),
        capabilities=frozenset(value.get("capabilities", ())),
        efforts=tuple(Effort(level) for level in value.get("efforts", ())),
        price=value.get("price", 0),
        staffed=value.get("staffed", True),
        busy=value.get("busy", False),
    )


def _pool_json(pool: Pool) -> dict[str, Any]:
    return {
        "key": pool.key,
        "select": pool.select.value,
        "members": [
            {"key": each.key, "weight": each.weight, "tier": each.tier}
            | ({"pool": _pool_json(each.pool)} if each.pool else {})
            for each in pool.members
        ],
    }


def _pool_of(value: Mapping[str, Any]) -> Pool:
    members = tuple(
        Member(item["key"], _pool_of(item["pool"]) if item.get("pool") else None, item["weight"], item["tier"])
        for item in value["members"]
    )
    return Pool(value["key"], Select(value["select"]), members)
