"""`vibey cost`: what the fleet has spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COLUMNS = (
    Column("DAY (UTC)"),
    Column("PROJECT", wide=True),
    Column("ENGINE", wide=True),
    Column("RUNS", right=True),
    Column("IN", right=True),
    Column("OUT", right=True),
    Column("DOLLARS", right=True),
    Column("UNITS", right=True),
)


@click.command(
    cls=Command,
    examples=(
        "vibey cost                   the last seven days, today first",
        "vibey cost -p website -d 1   one project, today",
    ),
)
@click.option("-p", "--project", help="Only of this project.")
@click.option("-d", "--days", type=int, default=7, show_default=True, help="How many days, today included.")
@json_option
def cost(*, project: str | None, days: int, as_json: bool) -> None:
    """Show runs, tokens, dollars and paid units by day, project and engine.

    IN and OUT are tokens, DOLLARS what the engines reported; UNITS are those of the paid cap, less the ones given back.
    A run counts for the UTC day it was granted on.
    """
    from vibey.services.cost import cost as spending

    with session.installation() as installation:
        found = spending(installation, project=project, days=days)
    if as_json:
        output.print_json(found)
        return
    screen = output.console()
    rows = [row for day in found["days"] for row in _rows(day)]
    screen.print(output.table(COLUMNS, rows) if rows else f"nothing ran in {output.many(days, 'day')}")
    screen.print(f"as of {output.clock(found['as_of'])} UTC", style="dim")


def _rows(day: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """The day's rows, and their sum where there are several."""
    for row in day["rows"]:
        yield _row(day["utc_day"], row["project"], row["engine"], row)
    if len(day["rows"]) > 1:
        yield _row(day["utc_day"], "all", "all", day)


def _row(day: str, project: str, engine: str, numbers: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        day,
        project,
        engine,
        numbers["runs"],
        f"{numbers['tokens_in']:,}",
        f"{numbers['tokens_out']:,}",
        f"{numbers['cost_usd']:.2f}",
        numbers["paid_units"],
    )
