"""Cost: what runs have spent, by UTC day, project and engine; those that were removed as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from sqlalchemy import Connection, Row

# A run and its unit belong to the day it was granted on, so that both stand in one line however late it ends.
SPENT = Statement(
    "cost-spent",
    "runs, tokens, dollars and paid units of some days; a run that never started did nothing and is left out",
    """with ran as (
         select (r.granted_at at time zone 'utc')::date as day, j.project_id, r.engine, count(*) as runs,
                sum(r.tokens_in) as tokens_in, sum(r.tokens_out) as tokens_out, sum(r.cost_usd) as cost_usd
         from runs r join jobs j on j.id = r.job_id
         where r.started_at is not null
           and r.granted_at >= (%(first)s::date)::timestamp at time zone 'utc'
           and (%(project)s::int is null or j.project_id = %(project)s)
         group by 1, 2, 3
         union all
         select day, project_id, engine, runs, tokens_in, tokens_out, cost_usd from spendings
         where day >= %(first)s::date and (%(project)s::int is null or project_id = %(project)s)),
       spent as (
         select day, project_id, engine, sum(runs) as runs, sum(tokens_in) as tokens_in,
                sum(tokens_out) as tokens_out, sum(cost_usd) as cost_usd
         from ran group by 1, 2, 3),
       took as (
         select utc_day as day, project_id, engine,
                sum(case kind when 'EngineOverflowReleased' then -1 else 1 end) as units
         from ledger
         where utc_day >= %(first)s::date and (%(project)s::int is null or project_id = %(project)s)
         group by 1, 2, 3)
       select day, p.name as project, e.name as engine, e.tier, coalesce(spent.runs, 0)::bigint as runs,
              coalesce(spent.tokens_in, 0)::bigint as tokens_in, coalesce(spent.tokens_out, 0)::bigint as tokens_out,
              coalesce(spent.cost_usd, 0)::float as cost_usd, coalesce(took.units, 0)::bigint as units
       from spent full join took using (day, project_id, engine)
       join projects p on p.id = project_id join engines e on e.name = engine
       where coalesce(spent.runs, 0) > 0 or coalesce(took.units, 0) <> 0
       order by day desc, p.name, e.ordinal, e.name""",
)


def spent(connection: Connection, first: date, project: int | None) -> Sequence[Row[Any]]:
    """What was spent from the UTC day `first` on, newest day first; of one project, or of all."""
    return SPENT.all(connection, first=first, project=project)
