"""Generations: the configurations that were applied, numbered, and which of them is in force.

A generation's content is what routing depends on, and for each engine the digests of what runs it; see
`vibey.settings.applied` for its form. The row of the installation names the generation in force. Whoever changes it
holds that row first and then every engine, so that no grant is made under two generations.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.store import fleet
from vibey.store.runs import Expired
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Row

NUMBER = Statement("generation-number", "the number of the generation in force", "select generation from installation")
LOCK_NUMBER = Statement(
    "generation-lock",
    "hold the installation's row, and with it the number of the generation in force",
    "select generation from installation where id = 1 for no key update",
)
CONTENT = Statement(
    "generation-content",
    "the content of one generation",
    "select content from generations where number = %(number)s",
)
INSERT = Statement(
    "generation-insert",
    "store a generation",
    """insert into generations (number, who, difference, content)
       values (%(number)s, %(who)s, %(difference)s, %(content)s::jsonb)""",
)
SET_NUMBER = Statement(
    "generation-set-number",
    "put a generation in force",
    "update installation set generation = %(number)s where id = 1",
)
HISTORY = Statement(
    "generation-history",
    "every generation, the newest first, with the one it undoes; the index on a project's events serves the ledger",
    """select g.number, g.at, g.who, g.difference, g.number = i.generation as in_force,
              (l.data ->> 'undone')::int as undoes
       from generations g cross join installation i
       left join ledger l on l.project_id is null and l.kind = 'ConfigurationApplied'
         and (l.data ->> 'generation')::int = g.number
       order by g.number desc""",
)
AT = Statement("generation-at", "when a generation was applied", "select at from generations where number = %(number)s")
BEFORE = Statement(
    "generation-before",
    "the number of the generation before one",
    "select max(number) from generations where number < %(number)s",
)
LIVE = Statement(
    "generation-live-runs",
    "live runs by engine and state",
    """select engine, state, count(*)::int as n, (array_agg(id order by id))[1:5] as runs,
              (array_agg(job_id order by id))[1:5] as jobs
       from runs where ended_at is null group by engine, state order by engine, state""",
)
QUEUED_GROUPS = Statement(
    "generation-queued-groups",
    "queued jobs by what they ask and the repository they name: how many, how many of them are due, how many are held, "
    "since when the first of these is, and their first job",
    """select g.n, g.due, g.held, g.first, coalesce(g.held_ms, 0) as held_ms, p.name as project, j.pool, j.effort_now,
              j.capabilities, j.excluded, j.avoided, j.handed_off, j.pinned, j.workspace,
              case when j.workspace is not null then j.payload -> 'repo' end as repo
       from (select pool, requirement_key, case when workspace is not null then payload -> 'repo' end as repo,
                    count(*)::int as n, count(*) filter (where not_before is null)::int as due,
                    count(held_at)::int as held, min(id) as first,
                    (extract(epoch from clock_timestamp() - min(held_at)) * 1000)::bigint as held_ms
             from jobs where state = 'queued' and ended_at is null group by 1, 2, 3) g
       join jobs j on j.id = g.first join projects p on p.id = j.project_id
       order by g.first""",
)
RELEASE_ENGINES = Statement(
    "generation-release-engines",
    "no worker counts as serving these engines until it has read its file again",
    """update workers w set engines = coalesce(kept.names, '{}'), slots = coalesce(kept.slots, '{}')
       from (select o.name, array_agg(e.engine order by e.place) filter (where not e.engine = any(%(names)s)) as names,
                    array_agg(o.slots[e.place] order by e.place) filter (where not e.engine = any(%(names)s)) as slots
             from workers o, unnest(o.engines) with ordinality as e(engine, place) group by o.name) kept
       where kept.name = w.name and w.engines && %(names)s::text[]""",
)
LOCK_GRANTED_JOBS = Statement(
    "generation-lock-granted-jobs",
    "lock the jobs of runs that were granted on these engines and have not started",
    """select j.id from jobs j where j.id in (
         select r.job_id from runs r where r.ended_at is null and r.state = 'granted' and r.engine = any(%(names)s))
       order by j.id for no key update""",
)
LOCK_GRANTED = Statement(
    "generation-lock-granted-runs",
    "lock those runs whose jobs are locked, and read what withdrawing them needs",
    """select r.id, r.token, r.state, r.engine, r.attempt, j.id as job_id, j.max_attempts, j.effort, j.refunds,
              j.handoffs, j.avoided, j.handed_off, j.affinity, j.cancel_requested_at is not null as cancel, j.pool,
              p.name as project, j.effort_now, j.capabilities, j.excluded, j.pinned, j.workspace, j.session, e.tier
       from runs r join jobs j on j.id = r.job_id join projects p on p.id = j.project_id
       join engines e on e.name = r.engine
       where r.job_id = any(%(jobs)s) and r.ended_at is null and r.state = 'granted' and r.engine = any(%(names)s)
       order by r.id for no key update of r""",
)
REMOVED = Statement(
    "generation-removed-engines",
    "engines that are configured no more and still have live runs, with how many",
    """select e.name, count(*)::int as running from engines e join runs r on r.engine = e.name and r.ended_at is null
       where not e.configured group by e.name order by e.name""",
)


def number(connection: Connection) -> int | None:
    """The number of the generation in force; None before the first."""
    found: int | None = NUMBER.scalar(connection)
    return found


def lock(connection: Connection) -> int | None:
    """Hold the installation's row; the number of the generation in force."""
    found: int | None = LOCK_NUMBER.scalar(connection)
    return found


def content(connection: Connection, number: int) -> dict[str, Any]:
    """The content of a generation; LookupError when there is none of this number."""
    found: dict[str, Any] | None = CONTENT.scalar(connection, number=number)
    if found is None:
        raise LookupError(number)
    return found


def store(connection: Connection, number: int, who: str, difference: str, content: Mapping[str, Any]) -> None:
    """Store a generation and put it in force. The installation's row is locked."""
    INSERT.run(connection, number=number, who=who, difference=difference, content=json.dumps(content))
    SET_NUMBER.run(connection, number=number)


def write_fleet(connection: Connection, content: Mapping[str, Any]) -> None:
    """Bring the rows of engines and pools in line with a generation's content, holding every engine meanwhile."""
    rows = [_row(name, engine) for name, engine in content["engine"].items()]
    fleet.write(connection, rows, content["pool"])


def lock_granted(connection: Connection, engines: Iterable[str]) -> list[Expired]:
    """Lock jobs, then runs, of grants on these engines that nobody has started."""
    names = sorted(engines)
    jobs = [row.id for row in LOCK_GRANTED_JOBS.all(connection, names=names)]
    return [Expired(row) for row in LOCK_GRANTED.all(connection, jobs=jobs, names=names)] if jobs else []


def history(connection: Connection) -> Sequence[Row[Any]]:
    """Every generation (`number`, `at`, `who`, `difference`, `in_force`), the newest first."""
    return HISTORY.all(connection)


def _row(name: str, engine: Mapping[str, Any]) -> dict[str, Any]:
    """An engine of a generation as `fleet.write` takes it."""
    keys = ("account", "kind", "tier", "ordinal", "slots", "weight", "price", "capabilities", "enabled")
    efforts = [int(Effort.named(label)) for label in engine["efforts"]]
    roots = engine.get("workspace_roots")
    return {"name": name, "efforts": efforts, "workspace_roots": roots, **{key: engine[key] for key in keys}}
