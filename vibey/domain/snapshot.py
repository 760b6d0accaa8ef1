"""Snapshot: the world, requirements and traces as plain JSON values, and back, so that decisions can be replayed.

Names are short because one world is kept per pass, and one requirement and trace per decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.domain.decide import Assign, World
from vibey.domain.effort import Effort
from vibey.domain.engine import EngineFacts, Phase, Tier, Usage
from vibey.domain.layer import Layer, LayerKind
from vibey.domain.offer import Covers, Fallback, Mode, Policy
from vibey.domain.pool import Member, Pool, Select
from vibey.domain.requirement import Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.domain.selection import Step

VERSION = 1


def world_json(world: World) -> dict[str, Any]:
    """A world as JSON values; that the pool is there goes without saying."""
    missing = {"pool_missing": True} if world.pool_missing else {}
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
        "sessions": [[*key, member] for key, member in sorted(world.sessions.items())],
        **missing,
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
        sessions={(pool, label, session): member for pool, label, session, member in value["sessions"]},
        pool_missing=value.get("pool_missing", False),
    )


def requirement_json(requirement: Requirement) -> dict[str, Any]:
    """A requirement as JSON values; what is empty is left out, but for a workspace that no engine has."""
    value = {
        "pool": requirement.pool,
        "project": requirement.project,
        "effort": requirement.effort.label,
        "capabilities": sorted(requirement.capabilities),
        "excluded": sorted(requirement.excluded),
        "avoided": sorted(requirement.avoided),
        "affinity": requirement.affinity,
    }
    return {key: item for key, item in value.items() if item} | requirement.later_parts


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
        handed_off=frozenset(value.get("handed_off", ())),
        pinned=frozenset(value.get("pinned", ())),
        workspace=frozenset(value["workspace"]) if "workspace" in value else None,
    )


def trace_json(decision: Assign) -> dict[str, Any]:
    """An assignment's steps through the tree, and what its job brought along.

    A step tells what `class_json` and `draw_json` say of it. One without a choice is left out: its one member has the
    whole share, and its credit does not move. The turn of the job's project, if it was drawn, is the first step.
    """
    return {"steps": [class_json(step) + draw_json(step) for step in choices(decision)]} | brought_json(decision)


def choices(decision: Assign) -> list[Step]:
    """The steps that left a choice."""
    return [step for step in decision.steps if len(step.members) > 1]


def class_json(step: Step) -> list[Any]:
    """The pool, the better classes and what was found in them, the class taken, its free members, their shares."""
    skipped = [[label, int(found)] for label, found in step.skipped]
    return [step.pool, skipped, step.label, list(step.members), list(step.shares)]


def draw_json(step: Step) -> list[Any]:
    """The members' credits before, the one chosen, and how; credits after follow."""
    return [list(step.before), step.chosen, int(step.turn)]


def brought_json(decision: Assign) -> dict[str, Any]:
    """What else the choice depended on: an exclusion waived, the wait, the session."""
    request = decision.request
    found = {"waived": decision.waived, "waited_ms": request.waited_ms, "session": request.session}
    return {key: value for key, value in found.items() if value}


def _policy_json(policy: Policy) -> dict[str, Any]:
    """A policy as JSON values; keys that came later are left out where they say what was so before them."""
    value = {
        "mode": policy.mode.value,
        "overflow_after_ms": policy.overflow_after_ms,
        "poll_ms": policy.poll_ms,
        "cap": policy.cap,
        "fallback": policy.fallback.value,
    }
    if policy.weight != 1:
        value["weight"] = policy.weight
    if policy.covers is not Covers.EXCEPTIONS:
        value["covers"] = policy.covers.value
    return value


def _policy_of(value: Mapping[str, Any]) -> Policy:
    return Policy(
        Mode(value["mode"]),
        value["overflow_after_ms"],
        value["poll_ms"],
        value["cap"],
        Fallback(value["fallback"]),
        value.get("weight", 1),
        Covers(value.get("covers", Covers.EXCEPTIONS)),
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
        "demoted": engine.demoted,
        "calls_only": engine.calls_only,
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
        demoted=value.get("demoted", False),
        calls_only=value.get("calls_only", False),
    )


def _pool_json(pool: Pool) -> dict[str, Any]:
    value = {"key": pool.key, "select": pool.select.value, "members": [_member_json(each) for each in pool.members]}
    optional = {"by_weight": pool.by_weight, "waits": pool.waits}
    return value | {key: item for key, item in optional.items() if item}


def _pool_of(value: Mapping[str, Any]) -> Pool:
    return Pool(
        value["key"],
        Select(value["select"]),
        tuple(_member_of(item) for item in value["members"]),
        value.get("by_weight", False),
        value.get("waits", False),
    )


def _member_json(member: Member) -> dict[str, Any]:
    optional = {
        "weight": member.weight,
        "tier": member.tier,
        "layers": [[each.kind.value, each.factor, each.until_ms, each.note] for each in member.layers] or None,
        "pool": _pool_json(member.pool) if member.pool else None,
    }
    return {"key": member.key} | {key: item for key, item in optional.items() if item is not None}


def _member_of(value: Mapping[str, Any]) -> Member:
    layers = tuple(
        Layer(LayerKind(kind), factor, until_ms, note) for kind, factor, until_ms, note in value.get("layers", ())
    )
    nested = _pool_of(value["pool"]) if "pool" in value else None
    return Member(value["key"], nested, value.get("weight"), value.get("tier"), layers)
