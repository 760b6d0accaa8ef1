"""`vibey ledger`: what happened, line by line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = (
    Column("EVENT", right=True),
    Column("AT (UTC)"),
    Column("KIND"),
    Column("JOB", right=True),
    Column("RUN", right=True),
    Column("ENGINE", wide=True),
    Column("DATA", wide=True),
)


@click.command(
    cls=Command,
    examples=(
        "vibey ledger --job 17                    the life of one job",
        "vibey ledger --kind JobFailed -n 100",
        "vibey ledger --before 5000 --public      the page before, bar dispatch events",
    ),
)
@click.option("-p", "--project", help="Only of this project.")
@click.option("-j", "--job", type=int, help="Only of this job.")
@click.option("-k", "--kind", help="Only of this kind, such as JobFailed.")
@click.option("-e", "--engine", help="Only of this engine.")
@click.option("-n", "--limit", type=int, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="EVENT", help="Only older ones than this: the next page.")
@click.option(
    "--public",
    is_flag=True,
    help="Leave out how engines were dispatched: wait, overflow, release, fallback, measurement.",
)
@json_option
def ledger(*, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401  the options above
    """Show the append-only ledger, newest first."""
    from vibey.services import views

    with session.installation() as installation:
        found = views.ledger(installation, views.LedgerPage(**wanted))
    if as_json:
        output.print_json(found)
        return
    screen = output.console()
    rows = [_row(each) for each in found["events"]]
    screen.print(output.table(COLUMNS, rows) if rows else "no such event")
    more = f"; older ones: --before {found['next_before']}" if found["next_before"] else ""
    screen.print(f"as of {output.clock(found['as_of'])} UTC{more}", style="dim")


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    at = output.clock(each["at"])
    data = json.dumps(each["data"], ensure_ascii=False) if each["data"] else None
    return (each["id"], at[5:] if at else None, each["kind"], each["job_id"], each["run_id"], each["engine"], data)
