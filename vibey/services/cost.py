"""Cost: what the fleet has spent, day by day; a day is the UTC day that the cap is counted by."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import InvalidInput
from vibey.services.wording import instant
from vibey.store import cap, projects, views
from vibey.store import cost as spending

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from vibey.services.installation import Installation
    from vibey.store.database import Connection
    from vibey.store.statement import Row

DAYS = 7
MAX_DAYS = 3660
SUMS = ("runs", "tokens_in", "tokens_out", "cost_usd", "paid_units")


def cost(installation: Installation, *, project: str | None = None, days: int = DAYS) -> dict[str, Any]:
    """Today and the days before it, `days` in all: `days`, today first, each with its sums and its `rows`.

    A row is a project on an engine. `paid_units` are units of the cap taken that day and not given back, `cost_usd` is
    what the engines reported. Raises InvalidInput for a number of days out of range, UnknownName for a project.
    """
    if not 1 <= days <= MAX_DAYS:
        raise InvalidInput("days", days, f"a whole number from 1 to {MAX_DAYS}")

    def read(connection: Connection) -> dict[str, Any]:
        wanted = None if project is None else projects.named(connection, project).id
        as_of = instant(views.NOW.scalar(connection))
        today = cap.today(connection)
        rows = spending.spent(connection, today - timedelta(days=days - 1), wanted)
        told = [_day(today - timedelta(days=back), rows) for back in range(days)]
        return {"as_of": as_of, "project": project, "days": told}

    return installation.database.run(read)


def _day(day: date, rows: Sequence[Row[Any]]) -> dict[str, Any]:
    own = [_row(row) for row in rows if row.day == day]
    sums = {key: sum(row[key] for row in own) for key in SUMS}
    return {"utc_day": day.isoformat(), **sums, "cost_usd": round(sums["cost_usd"], 6), "rows": own}


def _row(row: Row[Any]) -> dict[str, Any]:
    return {
        "project": row.project,
        "engine": row.engine,
        "tier": row.tier,
        "runs": row.runs,
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
        "cost_usd": round(row.cost_usd, 6),
        "paid_units": row.units,
    }
