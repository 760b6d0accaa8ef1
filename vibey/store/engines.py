"""Engines, their accounts, and how full they are: read for routing, written by the fleet's own services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.call import ROUTED_ONLY
from vibey.domain.circuit import Circuit, OpenReason
from vibey.domain.effort import Effort
from vibey.domain.engine import EngineFacts, Tier, Usage
from vibey.domain.weight import decayed
from vibey.store.fleet import ALIVE
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

_POOL_FILTER = "configured and (%(names)s::text[] is null or name = any(%(names)s))"

LOCK = Statement(
    "engine-lock",
    "lock a pool's engines, waiting for whoever holds them",
    f"select name from engines where {_POOL_FILTER} order by name for no key update",  # noqa: S608  constant
    prepared=True,
)
LOCK_FREE = Statement(
    "engine-lock-free",
    "lock a pool's engines as far as nobody holds them; with each, how many there are in all",
    f"""select name, (select count(*) from engines where {_POOL_FILTER}) as everything
        from engines where {_POOL_FILTER} order by name for no key update skip locked""",  # noqa: S608  constant
    prepared=True,
)
# How many runs of an engine the live workers that serve it can have at work; null where none does. See `workers.slots`.
OFFERED = f"""(select sum(coalesce(w.slots[array_position(w.engines, e.name)], e.slots))::int from workers w
               where e.name = any(w.engines)
                 and {ALIVE})"""  # noqa: S608  constant
# A probe's run is there as long as its account points to it (a foreign key). One that this statement does not see was
# made by the pass that it waited for, after its snapshot, and so is live.
_FACTS = f"""select e.name, e.account, e.tier, e.ordinal, e.slots, e.weight, e.price, e.capabilities, e.efforts,
              e.enabled and not e.paused as enabled, e.installed, e.conformant, a.login_ok,
              coalesce(e.busy_until > clock_timestamp(), false) as busy,
              coalesce(e.demoted_until > clock_timestamp(), false) as demoted,
              a.open_reason, a.probes, a.failures_in_a_row, a.failure, a.ramp,
              (extract(epoch from a.probe_at) * 1000)::bigint as probe_at_ms,
              (extract(epoch from a.resets_at) * 1000)::bigint as resets_at_ms,
              (extract(epoch from a.failure_at) * 1000)::bigint as failure_at_ms,
              (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
              a.probe_run_id is not null and not exists (
                select 1 from runs r where r.id = a.probe_run_id and r.ended_at is not null) as probing,
              coalesce(live.n, 0) as in_use, (select generation from installation) as generation,
              {OFFERED} as offered
       from engines e join accounts a on a.name = e.account
       left join (select engine, count(*)::int as n from runs where ended_at is null and engine = any(%(names)s)
                  group by engine) live on live.engine = e.name
       where e.name = any(%(names)s) order by a.name, e.name"""  # noqa: S608  (made of constants)
FACTS = Statement(
    "engine-facts",
    "lock accounts and read all routing knows of some locked engines, so that the count of live runs is exact",
    f"{_FACTS} for no key update of a",
    prepared=True,
)
GLANCE = Statement(
    "engine-glance", "all routing knows of some engines, without its locks: as good as the moment it is read", _FACTS
)
COMING = Statement(
    "engine-coming",
    "the instants at which some engines come back by themselves: their circuit's next trial, their server's next try",
    """select e.name, e.account, e.busy_until, case when a.open_reason is not null then a.probe_at end as probe_at
       from engines e join accounts a on a.name = e.account where e.name = any(%(names)s) order by e.name""",
)
SET_PROBE = Statement(
    "account-set-probe",
    "remember which run is the probe of a locked, half-open account",
    "update accounts set probe_run_id = %(run)s where name = %(account)s",
)
CIRCUIT = Statement(
    "account-circuit",
    "lock one account and read its circuit",
    """select name, open_reason, probes, failures_in_a_row, failure, ramp,
              (select max(slots) from engines where account = accounts.name and configured) as widest,
              (extract(epoch from probe_at) * 1000)::bigint as probe_at_ms,
              (extract(epoch from resets_at) * 1000)::bigint as resets_at_ms,
              (extract(epoch from failure_at) * 1000)::bigint as failure_at_ms,
              (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms
       from accounts where name = %(account)s for no key update""",
)
SET_CIRCUIT = Statement(
    "account-set-circuit",
    "write a locked account's circuit",
    """update accounts set open_reason = %(open_reason)s, probes = %(probes)s,
              failures_in_a_row = %(in_a_row)s, failure = %(failure)s, ramp = %(ramp)s,
              probe_at = to_timestamp(%(probe_at_ms)s::numeric / 1000),
              resets_at = to_timestamp(%(resets_at_ms)s::numeric / 1000),
              failure_at = to_timestamp(%(failure_at_ms)s::numeric / 1000)
       where name = %(account)s""",
)
SET_BUSY = Statement(
    "engine-set-busy",
    "count an engine as full for a while because its server said so",
    """update engines set busy_until = clock_timestamp() + %(ms)s * interval '1 millisecond'
       where name = %(engine)s""",
)
SET_HEALTH = Statement(
    "engine-set-health",
    "write what doctor found of an engine; returns what was known before",
    """with before as materialized (
         select name, installed, conformant, detail from engines where name = %(engine)s for no key update)
       update engines e set installed = %(installed)s, conformant = %(conformant)s, detail = %(detail)s
       from before where e.name = before.name
       returning e.account, before.installed, before.conformant, before.detail""",
)
SET_LOGIN = Statement(
    "account-set-login",
    "write what doctor found of an account's login; returns what was known before",
    """with before as materialized (
         select name, login_ok from accounts where name = %(account)s for no key update)
       update accounts a set login_ok = %(ok)s from before where a.name = before.name returning before.login_ok""",
)
SET_PAUSED = Statement(
    "engine-set-paused",
    "pause or resume an engine; returns what it was",
    """with before as materialized (
         select name, paused from engines where name = %(engine)s and configured for no key update)
       update engines e set paused = %(paused)s from before where e.name = before.name returning before.paused""",
)
SET_DEMOTED = Statement(
    "engine-set-demoted",
    "let one engine serve last for a while, or no more; returns until when, and until when it was to before",
    """with before as materialized (
         select name, demoted_until from engines where name = %(engine)s and configured for no key update)
       update engines e set demoted_until = clock_timestamp() + %(seconds)s::float * interval '1 second'
       from before where e.name = before.name returning e.demoted_until, before.demoted_until as was""",
)
DEMOTE_ACCOUNT = Statement(
    "engine-demote-account",
    "let an account's engines serve last while its quota is nearly spent; a longer such time stands",
    """with held as materialized (
         select name from engines where account = %(account)s order by name for no key update),
       due as materialized (select clock_timestamp() + %(ms)s * interval '1 millisecond' as until)
       update engines e set demoted_until = due.until from held, due
       where e.name = held.name and e.configured and coalesce(e.demoted_until < due.until, true)
       returning e.name, e.demoted_until""",
)
RESET_ENGINE = Statement(
    "engine-reset",
    "forget what keeps an engine out; returns what that was",
    """with before as materialized (
         select name, demoted_until, conformant, installed, detail from engines
         where name = %(engine)s and configured for no key update)
       update engines e set busy_until = null, demoted_until = null, conformant = true, installed = true, detail = ''
       from before where e.name = before.name
       returning e.account, before.demoted_until, before.conformant, before.installed, before.detail""",
)
RESET_ACCOUNT = Statement(
    "account-reset",
    "close a circuit by hand; returns what was known of the login",
    """with before as materialized (
         select name, login_ok from accounts where name = %(account)s for no key update)
       update accounts a set open_reason = null, probe_at = null, resets_at = null, probes = 0, failures_in_a_row = 0,
              failure = 0, probe_run_id = null, ramp = null, login_ok = true
       from before where a.name = before.name returning before.login_ok""",
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """A pool's engines and how full they are, read under their locks if they are to be routed to.

    `generation` is the one in force by then; None where there are no engines.
    """

    engines: tuple[EngineFacts, ...]
    usage: Usage
    now_ms: int
    generation: int | None = None


def lock(connection: Connection, names: Sequence[str] | None, *, wait: bool) -> list[str] | None:
    """Lock a pool's engines (all configured ones for None). Without `wait`: None when someone holds any of them."""
    wanted = None if names is None else list(names)
    if wait:
        return [row.name for row in LOCK.all(connection, names=wanted)]
    locked = LOCK_FREE.all(connection, names=wanted)
    return [row.name for row in locked] if locked and len(locked) == locked[0].everything else None


def fleet(
    connection: Connection, names: Sequence[str], *, presence_ms: int, half_life_ms: int, locking: bool = True
) -> Fleet:
    """The facts of these engines, which are locked, in declared order; locks their accounts. All that if `locking`."""
    statement = FACTS if locking else GLANCE
    found = statement.all(connection, names=list(names), presence_ms=presence_ms)
    rows = sorted(found, key=lambda row: (row.ordinal, row.name))
    engines = tuple(_facts(row, half_life_ms) for row in rows)
    in_use = {row.name: row.in_use for row in rows}
    probing = frozenset(row.account for row in rows if row.probing)
    generation = rows[0].generation if rows else None
    return Fleet(engines, Usage(in_use, probing), max((row.now_ms for row in rows), default=0), generation)


def coming(connection: Connection, names: Sequence[str]) -> Sequence[Row[Any]]:
    """Of each of these engines its `account`, `probe_at` and `busy_until`, None where nothing is to come."""
    return COMING.all(connection, names=list(names))


def _facts(row: Row[Any], half_life_ms: int) -> EngineFacts:
    circuit = circuit_of(row, row.account)
    return EngineFacts(
        name=row.name,
        tier=Tier(row.tier),
        ordinal=row.ordinal,
        slots=circuit.slots(row.slots if row.offered is None else min(row.slots, row.offered)),
        account=row.account,
        weight=row.weight,
        enabled=row.enabled,
        installed=row.installed,
        conformant=row.conformant,
        login_ok=row.login_ok,
        phase=circuit.phase(row.now_ms),
        failure=decayed(row.failure, row.now_ms - row.failure_at_ms, half_life_ms),
        capabilities=frozenset(row.capabilities),
        efforts=tuple(Effort(level) for level in row.efforts),
        price=row.price,
        staffed=row.offered is not None,
        busy=row.busy,
        demoted=row.demoted,
        calls_only=ROUTED_ONLY in row.capabilities,
    )


def circuit_of(row: Row[Any], account: str) -> Circuit:
    """The circuit held by a row that carries an account's columns."""
    return Circuit(
        account=account,
        open_reason=OpenReason(row.open_reason) if row.open_reason else None,
        probe_at_ms=row.probe_at_ms,
        probes=row.probes,
        failures_in_a_row=row.failures_in_a_row,
        failure=row.failure,
        failure_at_ms=row.failure_at_ms,
        ramp=row.ramp,
        resets_at_ms=row.resets_at_ms,
    )


def locked_circuit(connection: Connection, account: str) -> tuple[Circuit, int, int]:
    """Lock an account; return its circuit, the database's instant in milliseconds, and its widest engine's slots."""
    row = CIRCUIT.first(connection, account=account)
    if row is None:
        raise LookupError(account)
    return circuit_of(row, account), row.now_ms, row.widest or 1


def set_circuit(connection: Connection, circuit: Circuit) -> None:
    """Write the circuit of a locked account."""
    SET_CIRCUIT.run(
        connection,
        account=circuit.account,
        open_reason=circuit.open_reason.value if circuit.open_reason else None,
        probes=circuit.probes,
        in_a_row=circuit.failures_in_a_row,
        failure=circuit.failure,
        ramp=circuit.ramp,
        probe_at_ms=circuit.probe_at_ms,
        resets_at_ms=circuit.resets_at_ms,
        failure_at_ms=circuit.failure_at_ms,
    )
