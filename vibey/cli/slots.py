"""`vibey slots`: who holds which slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = (
    Column("SLOT", wide=True),
    Column("JOB", right=True),
    Column("RUN", right=True),
    Column("PROJECT", wide=True),
    Column("STATE"),
    Column("HOLDER", wide=True),
    Column("AGE", right=True),
    Column("RENEWED", right=True),
    Column("LEASE", right=True),
)


@click.command(cls=Command, examples=("vibey slots", "vibey slots --json"))
@json_option
def slots(*, as_json: bool) -> None:
    """Show every slot of every engine and the run that holds it.

    HOLDER is the host and process that holds the run, AGE the time since its grant, RENEWED the time since its holder
    last renewed it, LEASE how long it may go on unless it is renewed again.
    """
    from vibey.services import views

    with session.installation() as installation:
        found = views.slots(installation)
    if as_json:
        output.print_json(found)
        return
    screen = output.console()
    rows = [_row(each) for each in found["slots"]]
    screen.print(output.table(COLUMNS, rows) if rows else "no engine is configured; run: vibey up")
    screen.print(f"as of {output.clock(found['as_of'])} UTC", style="dim")


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    holder = f"{each['host']}:{each['pid']}" if each["host"] else None
    return (
        f"{each['engine']}/{each['slot']}",
        each["job_id"],
        each["run_id"],
        each["project"],
        each["state"] or "free",
        holder,
        output.lasting(each["age_seconds"]),
        output.lasting(each["renewed_seconds"]),
        output.lasting(each["lease_left_seconds"]),
    )
