"""Facts: what a configuration means to the domain, for a fleet that has not begun to work."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from vibey.domain.call import ROUTED_ONLY, ROUTED_TASKS
from vibey.domain.effort import Effort
from vibey.domain.engine import EngineFacts, Tier
from vibey.domain.measure import MILLION, Judge
from vibey.domain.offer import Covers, Fallback, Mode, Policy
from vibey.domain.pool import Member, Pool, Select, default_pool

if TYPE_CHECKING:
    from vibey.settings.model import EngineSettings, MemberSettings, PolicyKeys
    from vibey.settings.settings import Settings

MAIN = "main"
MICRO = 1_000_000


def engine_facts(settings: Settings) -> tuple[EngineFacts, ...]:
    """Every configured engine, healthy, idle and served, in declared order."""
    return tuple(
        EngineFacts(
            name=engine.name,
            tier=Tier(engine.tier),
            ordinal=number,
            slots=settings.slots_of(engine.name),
            account=engine.account,
            weight=engine.weight_millionths,
            enabled=engine.enabled,
            capabilities=frozenset(engine.capabilities) | _routed(engine),
            efforts=tuple(sorted(Effort.named(name) for name in engine.efforts)),
            price=price_of(engine),
            calls_only=ROUTED_ONLY in _routed(engine),
        )
        for number, engine in enumerate(settings.engine.values())
    )


def _routed(engine: EngineSettings) -> frozenset[str]:
    """What an engine says of calls of Celery tasks."""
    if engine.app is None:
        return frozenset()
    return frozenset({ROUTED_TASKS, ROUTED_ONLY} if engine.kind == "celery" else {ROUTED_TASKS})


def price_of(engine: EngineSettings) -> int:
    """Micro-dollars for a million tokens in and out together; 0 when none is known."""
    return int(((engine.price_in or Decimal(0)) + (engine.price_out or Decimal(0))) * MICRO)


def root_pool(settings: Settings, engines: tuple[EngineFacts, ...]) -> Pool:
    """The pool of jobs that name none: `main` as configured, or the default tree."""
    return _pool(settings, MAIN) if MAIN in settings.pool else default_pool(MAIN, engines)


def policy_of(keys: PolicyKeys, mode: Mode, poll_ms: int, weight: int = 1) -> Policy:
    """A project's rules, in the mode it is in and with its weight among projects."""
    return Policy(
        mode=mode,
        overflow_after_ms=keys.overflow_after_seconds * 1000,
        poll_ms=poll_ms,
        cap=keys.paid_daily_cap,
        fallback=Fallback(keys.paid_fallback),
        weight=weight,
        covers=Covers(keys.paid_daily_cap_covers),
    )


def judge_of(keys: PolicyKeys) -> Judge:
    """The thresholds a project is judged by under `auto`."""
    return Judge(
        overflow_after_ms=keys.overflow_after_seconds * 1000,
        window_hours=keys.auto_window_hours,
        min_sessions=keys.auto_min_sessions,
        min_contention=int(keys.auto_min_contention * MILLION),
    )


def _pool(settings: Settings, key: str) -> Pool:
    pool = settings.pool[key]
    members = tuple(_member(settings, each) for each in pool.members)
    return Pool(key, Select(pool.select), members, pool.tier_by == "weight", pool.when_full == "wait")


def _member(settings: Settings, member: MemberSettings) -> Member:
    nested = _pool(settings, member.pool) if member.pool is not None else None
    return Member(member.pool or member.engine or "", nested, member.weight_millionths, member.tier)
