"""The fleet as configured, and who serves it: engines and pools from settings, workers by their own word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vibey.domain.layer import Layer, LayerKind
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row

ADD_ACCOUNTS = Statement(
    "fleet-add-accounts",
    "make accounts that do not exist yet",
    "insert into accounts (name) select unnest(%(names)s::text[]) on conflict do nothing",
)
LOCK_ENGINES = Statement(
    "fleet-lock-engines",
    "hold every engine while the fleet changes",
    "select name from engines order by name for no key update",
)
UPSERT_ENGINES = Statement(
    "fleet-upsert-engines",
    "write engines as configured, keeping what was learned of them",
    """insert into engines (name, account, kind, tier, ordinal, slots, weight, price, capabilities, efforts, enabled,
                            workspace_roots)
       select name, account, kind, tier, ordinal, slots, weight, price, capabilities, efforts, enabled, workspace_roots
       from json_to_recordset(%(rows)s::json) as r(name text, account text, kind text, tier text, ordinal int,
         slots int, weight bigint, price bigint, capabilities text[], efforts smallint[], enabled boolean,
         workspace_roots text[])
       order by name
       on conflict (name) do update set account = excluded.account, kind = excluded.kind, tier = excluded.tier,
         ordinal = excluded.ordinal, slots = excluded.slots, weight = excluded.weight, price = excluded.price,
         capabilities = excluded.capabilities, efforts = excluded.efforts, enabled = excluded.enabled,
         workspace_roots = excluded.workspace_roots, configured = true""",
)
DROP_ENGINES = Statement(
    "fleet-drop-engines",
    "leave out engines that are configured no more; their history stays",
    "update engines set configured = false where not (name = any(%(names)s)) and configured",
)
SET_POOLS = Statement(
    "fleet-set-pools",
    "write pool trees as configured",
    """insert into pools (name, definition)
       select name, definition from json_to_recordset(%(rows)s::json) as r(name text, definition jsonb)
       on conflict (name) do update set definition = excluded.definition""",
)
DROP_POOLS = Statement(
    "fleet-drop-pools",
    "leave out pools that are configured no more",
    "delete from pools where not (name = any(%(names)s))",
)
POOLS = Statement(
    "fleet-pools",
    "the number of the generation in force, every configured pool tree, and the adjustments in force",
    """select '' as name, null::jsonb as definition, 'generation' as kind, generation::bigint as factor,
              null::bigint as until_ms, null as note
       from installation
       union all
       select name, definition, null, null, null, null
       from pools where definition is not null
       union all
       select member, null, kind, factor, trunc(extract(epoch from expires_at) * 1000)::bigint, note
       from adjustments where expires_at > statement_timestamp()
       order by name, kind desc""",
    prepared=True,
)
PAID = Statement(
    "fleet-paid",
    "paid engines in use, with their capabilities",
    "select name, capabilities from engines where configured and enabled and tier = 'paid' order by name",
)
TIERS = Statement(
    "fleet-tiers",
    "tiers of configured engines, and whether each is enabled",
    "select name, tier, enabled from engines where configured order by ordinal, name",
)
ENGINE_NAMES = Statement(
    "fleet-engine-names",
    "names of configured engines",
    "select name, capabilities from engines where configured order by ordinal, name",
)
CONFIGURED = Statement(
    "fleet-configured",
    "what configured engines can ever serve, whatever state they are in",
    "select name, kind, capabilities, workspace_roots from engines where configured order by ordinal, name",
)
# A report from the future was written before the clock was set back; the worker's next report replaces it.
ALIVE = """w.seen_at between clock_timestamp() - %(presence_ms)s * interval '1 millisecond'
                               and clock_timestamp() + %(presence_ms)s * interval '1 millisecond'"""
SERVED = Statement(
    "fleet-served",
    "configured engines that are enabled, whether a live worker serves each, and what keeps one from it where one does "
    "not",
    f"""select name, exists (select 1 from workers w where e.name = any(w.engines) and {ALIVE}) as served,
              (select min('worker ' || w.name || ': ' || (w.problems->>e.name)) from workers w
               where w.problems ? e.name and {ALIVE}) as problem
       from engines e where configured and enabled order by ordinal, name""",  # noqa: S608  constant
)
# What the ledger says of a worker: what it serves, and on what grounds.
_SERVES = """'engines', to_jsonb({row}.engines), 'slots', to_jsonb({row}.slots), 'concurrency', {row}.concurrency,
                  'generation', {row}.generation, 'version', {row}.version, 'problems', {row}.problems"""
_LEFT = f"""insert into ledger (kind, data)
       select 'WorkerChanged', jsonb_build_object('worker', gone.name, 'host', gone.host, 'engines', '[]'::jsonb,
                'was', jsonb_build_object({_SERVES.format(row="gone")}))
       from gone order by gone.name"""  # noqa: S608  constant
SEE_WORKER = Statement(
    "worker-see",
    "a worker says that it lives, since when it has done so, and serves nothing where it has read its file for another "
    "generation than the one in force; returns that and how long ago its canary sang, in milliseconds; no row where a "
    "worker that began earlier lives under the same name",
    f"""with before as materialized (select * from workers where name = %(name)s),
       seen as (
         insert into workers as w (name, host, pid, engines, slots, concurrency, generation, version, problems,
                                   started_at)
         select %(name)s, %(host)s, %(pid)s, case when fresh then %(engines)s::text[] else '{{}}' end,
                case when fresh then %(slots)s::int[] else '{{}}' end, %(concurrency)s, %(generation)s, %(version)s,
                %(problems)s::jsonb, coalesce(%(since)s::timestamptz, clock_timestamp())
         from (select %(generation)s::int is null or %(generation)s = generation as fresh from installation) i
         on conflict (name) do update set host = excluded.host, pid = excluded.pid, engines = excluded.engines,
           slots = excluded.slots, generation = excluded.generation, version = excluded.version,
           problems = excluded.problems, concurrency = excluded.concurrency, seen_at = clock_timestamp(),
           started_at = excluded.started_at,
           canary_at = least(clock_timestamp(), case when w.started_at = excluded.started_at then w.canary_at
                                                else excluded.started_at end)
         where %(since)s::timestamptz is null or w.started_at >= %(since)s or not ({ALIVE})
         returning *),
       noted as (
         insert into ledger (kind, data)
         select 'WorkerChanged', jsonb_build_object('worker', seen.name, 'host', seen.host,
                  {_SERVES.format(row="seen")}, 'was', case when before.name is not null then
                  jsonb_build_object({_SERVES.format(row="before")}) end)
         from seen left join before using (name)
         where before.name is null
           or jsonb_build_object({_SERVES.format(row="seen")}) <> jsonb_build_object({_SERVES.format(row="before")}))
       select started_at, (extract(epoch from clock_timestamp() - canary_at) * 1000)::bigint as canary_ms
       from seen""",  # noqa: S608
)
NAMESAKE = Statement(
    "worker-namesake",
    "the live worker of this name on another host",
    f"""select w.host, w.pid, extract(epoch from clock_timestamp() - w.seen_at)::float as seen_seconds from workers w
       where w.name = %(name)s and w.host <> %(host)s and {ALIVE}""",  # noqa: S608  constant
)
PROCESSES = Statement(
    "fleet-processes",
    "how many processes each live worker of the fleet has in its pool",
    f"select name, concurrency from workers w where {ALIVE} order by name",  # noqa: S608  constant
)
OLDER_WORKERS = Statement(
    "worker-older",
    "workers seen within the minute, read on a schema of any version",
    """select name, host, pid from workers
       where seen_at between clock_timestamp() - interval '1 minute' and clock_timestamp() + interval '1 minute'
       order by name""",
)
CANARY = Statement(
    "worker-canary",
    "a worker's canary was consumed",
    "update workers set canary_at = clock_timestamp() where name = %(name)s",
)
DROP_WORKER = Statement(
    "worker-drop",
    "a worker leaves in good order",
    f"with gone as (delete from workers where name = %(name)s and started_at = %(since)s returning *) {_LEFT}",  # noqa: S608
)
FORGET_WORKERS = Statement(
    "worker-forget",
    "drop rows of workers unseen for a day, or seen in a future that is none since the clock was set back",
    f"""with gone as (
         delete from workers
         where seen_at not between clock_timestamp() - interval '1 day' and clock_timestamp() + interval '1 minute'
         returning *)
       {_LEFT}""",  # noqa: S608  constant
)
FORGET_SESSIONS = Statement(
    "session-forget",
    "drop sessions that have gone cold",
    "delete from sessions where expires_at < statement_timestamp()",
)
# `main` has its tree and the pools in it by default, without a row.
STRAY_SESSION = """((s.pool not in ('main', 'main.local', 'main.paid') and s.pool not in (select name from pools))
          or (s.member not in ('main.local', 'main.paid') and s.member not in (select name from pools)
              and s.member not in (select name from engines where configured)))"""
DROP_SESSIONS = Statement(
    "session-drop",
    "drop what is remembered of pools and members that are configured no more",
    f"delete from sessions s where {STRAY_SESSION}",  # noqa: S608  constant
)
WORKERS = Statement(
    "worker-all",
    "workers seen of late",
    """select name, host, pid, engines, concurrency, started_at, seen_at, canary_at,
              extract(epoch from clock_timestamp() - seen_at)::float as seen_seconds
       from workers
       where seen_at between clock_timestamp() - interval '1 hour' and clock_timestamp() + interval '1 minute'
       order by name""",
)
TICK = Statement(
    "installation-tick",
    "note this tick, let the lease clock go on by the time since the last one, at most a tenth of a lease, and return "
    "what there is to do",
    """update installation i set last_tick_at = now.at,
         lease_clock_ms = i.lease_clock_ms + least(greatest(coalesce(
           (extract(epoch from now.at - i.last_tick_at) * 1000)::bigint, 0), 0), %(gap_ms)s),
         steady_since = case when i.steady_since is null or i.last_tick_at is null
           or i.last_tick_at not between now.at - %(gap_ms)s * interval '1 millisecond' and now.at + interval '1 second'
           then now.at else i.steady_since end
       from (select last_tick_at from installation where id = 1) before,
            (select clock_timestamp() as at) now
       where id = 1
       returning
         exists (select 1 from runs r where r.ended_at is null
                 and r.lease_clock_ms < i.lease_clock_ms - %(judge_ms)s) as expired,
         exists (select 1 from runs where ended_at is null and state = 'granted'
                 and sent_at < statement_timestamp() - %(resend_ms)s * interval '1 millisecond') as unsent,
         exists (select 1 from jobs where deadline_at <= statement_timestamp() and deadline_at is not null
                 and ended_at is null and state = 'queued') as late,
         exists (select 1 from jobs where state = 'queued' and not_before <= statement_timestamp()) as backoff,
         array(with recursive pools as (
           (select pool from jobs where state = 'queued' and not_before is null order by pool limit 1)
           union all
           (select (select j.pool from jobs j where j.state = 'queued' and j.not_before is null
                      and j.pool > pools.pool order by j.pool limit 1)
            from pools where pools.pool is not null))
           select pool from pools where pool is not null) as pools,
         coalesce(before.last_tick_at > i.last_tick_at + interval '1 second', false)
           or i.last_clean_at not between i.last_tick_at - interval '10 minutes' and i.last_tick_at as clean,
         case when before.last_tick_at > i.last_tick_at + interval '1 second' and i.steady_since = i.last_tick_at
           then extract(epoch from before.last_tick_at - i.last_tick_at)::float end as set_back""",
)
CLEANED = Statement(
    "installation-cleaned",
    "note that everything which points to nothing was dropped by now",
    "update installation set last_clean_at = clock_timestamp() where id = 1",
)
NOW = Statement("now", "the database's clock", "select clock_timestamp() as now, version() as version")


def write(connection: Connection, engines: Sequence[dict[str, Any]], pools: Mapping[str, dict[str, Any]]) -> None:
    """Write the fleet as configured; engines and pools that are not among these are configured no more."""
    ADD_ACCOUNTS.run(connection, names=sorted({engine["account"] for engine in engines}))
    LOCK_ENGINES.all(connection)
    UPSERT_ENGINES.run(connection, rows=json.dumps(engines))
    DROP_ENGINES.run(connection, names=[engine["name"] for engine in engines])
    rows = [{"name": name, "definition": definition} for name, definition in pools.items()]
    SET_POOLS.run(connection, rows=json.dumps(rows))
    DROP_POOLS.run(connection, names=list(pools))
    DROP_SESSIONS.run(connection)


def pools(connection: Connection) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[Layer, ...]]]:
    """Configured pool trees by name, and the adjustments in force on members by key, preferences first."""
    _, definitions, adjustments = pools_in_force(connection)
    return definitions, adjustments


def pools_in_force(
    connection: Connection,
) -> tuple[int | None, dict[str, dict[str, Any]], dict[str, tuple[Layer, ...]]]:
    """The number of the generation in force, and what `pools` returns, read in one statement."""
    number: int | None = None
    definitions: dict[str, dict[str, Any]] = {}
    adjustments: dict[str, tuple[Layer, ...]] = {}
    for row in POOLS.all(connection):
        if row.kind == "generation":
            number = row.factor
        elif row.kind is None:
            definitions[row.name] = row.definition
        else:
            layer = Layer(LayerKind(row.kind), row.factor, row.until_ms, row.note)
            adjustments[row.name] = (*adjustments.get(row.name, ()), layer)
    return number, definitions, adjustments


def engine_names(connection: Connection) -> dict[str, frozenset[str]]:
    """Configured engines in declared order, with their capabilities."""
    return {row.name: frozenset(row.capabilities) for row in ENGINE_NAMES.all(connection)}


def configured(connection: Connection) -> Sequence[Row[Any]]:
    """Configured engines in declared order: `name`, `kind`, `capabilities`, `workspace_roots`."""
    return CONFIGURED.all(connection)


def paid_engines(connection: Connection) -> dict[str, frozenset[str]]:
    """Paid engines that are in use, with their capabilities."""
    return {row.name: frozenset(row.capabilities) for row in PAID.all(connection)}


def tiers(connection: Connection) -> Sequence[Row[Any]]:
    """Configured engines in declared order: `name`, `tier`, `enabled`."""
    return TIERS.all(connection)


def workers(connection: Connection) -> list[Row[Any]]:
    """Workers seen within the hour."""
    return list(WORKERS.all(connection))
