"""`vibey jobs`: a list of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option, past_instant
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
    Column("TITLE", wide=True),
    Column("REASON", wide=True),
)


@click.command(
    cls=Command,
    examples=(
        "vibey jobs                        the newest 20",
        "vibey jobs --state failed -n 100",
        "vibey jobs -p website --engine ollama --json",
        "vibey jobs --label team=web --since 2h",
        "vibey jobs --search 'flaky test'",
    ),
)
@click.option("-p", "--project", help="Only of this project.")
@click.option("-s", "--state", help="Only in this state: queued, granted, running, succeeded, failed or cancelled.")
@click.option("-e", "--engine", help="Only those now, or last, on this engine.")
@click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only with this label; repeatable.")
@click.option("--search", metavar="TEXT", help="Only those with this text in their title, in either case.")
@click.option(
    "--since", callback=past_instant, metavar="TIME", help="Only those enqueued since this instant, or so long ago: 2h."
)
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="At most so many.")
@click.option("--before", type=int, metavar="ID", help="Only older ones than this job: the next page.")
@json_option
def jobs(*, as_json: bool, labels: tuple[str, ...], **wanted: Any) -> None:  # noqa: ANN401  the options above
    """List jobs, newest first, each with why it is where it is.

    TIME counts from enqueueing to the end, or until now. A list looks through the newest 50,000 jobs that the index on
    its first label, its project or its state serves; it then names the job before which the next page goes on.
    """
    from vibey.domain.titles import labels_of
    from vibey.services import views

    page = views.JobsPage(labels=labels_of(labels), **wanted)
    with session.installation() as installation:
        found = views.jobs(installation, page)
    if as_json:
        output.print_json(found)
        return
    screen = output.console()
    rows = [_row(each) for each in found["jobs"]]
    screen.print(output.table(COLUMNS, rows) if rows else "no jobs")
    more = f"; older ones: --before {found['next_before']}" if found["next_before"] else ""
    if found["partial"]:
        more = f"; looked through {views.LOOKED_THROUGH:,} jobs{more}"
    screen.print(f"as of {output.clock(found['as_of'])} UTC{more}", style="dim")


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        each["job_id"],
        each["project"],
        each["state"],
        f"{each['attempt']}/{each['max_attempts']}",
        each["engine"],
        output.lasting(each["age_seconds"]),
        each["title"],
        each["reason"] if each["reason"] != each["state"] else None,
    )
