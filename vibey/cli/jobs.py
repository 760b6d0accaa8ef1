"""`vibey jobs`: a list of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = (
    Column("JOB", right=True),
    Column("PROJECT", wide=True),
    Column("STATE"),
    Column("TRY", right=True),
    Column("ENGINE", wide=True),
    Column("TIME", right=True),
    Column("REASON", wide=True),
)


@click.command(
    cls=Command,
    examples=(
        "vibey jobs                        the newest 20",
        "vibey jobs --state failed -n 100",
        "vibey jobs -p website --engine ollama --json",
    ),
)
@click.option("-p", "--project", help="Only of this project.")
@click.option("-s", "--state", help="Only in this state: queued, granted, running, succeeded, failed or cancelled.")
@click.option("-e", "--engine", help="Only those now, or last, on this engine.")
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="ID", help="Only older ones than this job: the next page.")
@json_option
def jobs(*, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401  the options above
    """List jobs, newest first, each with why it is where it is.

    TIME counts from enqueueing to the end, or until now.
    """
    from vibey.services import views

    with session.installation() as installation:
        found = views.jobs(installation, **wanted)
    if as_json:
        output.print_json(found)
        return
    screen = output.console()
    rows = [_row(each) for each in found["jobs"]]
    screen.print(output.table(COLUMNS, rows) if rows else "no such job")
    more = f"; older ones: --before {found['next_before']}" if found["next_before"] else ""
    screen.print(f"as of {output.clock(found['as_of'])} UTC{more}", style="dim")


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        each["job_id"],
        each["project"],
        each["state"],
        f"{each['attempt']}/{each['max_attempts']}",
        each["engine"],
        output.lasting(each["age_seconds"]),
        each["reason"] if each["reason"] != each["state"] else None,
    )
