"""`vibey cancel`: end jobs nobody wants any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.jobref import JOB, number_of
from vibey.cli.output import Column

if TYPE_CHECKING:
    from vibey.services.control import Matching
    from vibey.services.installation import Installation

COLUMNS = (
    Column("JOB", right=True),
    Column("PROJECT", wide=True),
    Column("STATE"),
    Column("ENGINE", wide=True),
    Column("TITLE", wide=True),
)


@click.command(
    cls=Command,
    examples=(
        "vibey cancel 17",
        "vibey cancel 17 18 19 --json",
        "vibey cancel --state queued --project website    show what would be cancelled, and ask",
        "vibey cancel --label team=web                    every job with that label",
        "vibey cancel --all --yes                         every job that has not ended",
    ),
)
@click.argument("refs", nargs=-1, type=JOB, metavar="[ID]...")
@click.option("-s", "--state", "states", multiple=True, help="Every job in this state: queued, granted or running.")
@click.option("-p", "--project", help="Every job of this project that has not ended.")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Every job with this label; repeatable."
)
@click.option("--all", "every", is_flag=True, help="Every job that has not ended.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def cancel(
    context: click.Context,
    /,
    refs: tuple[str | int, ...],
    *,
    every: bool,
    yes: bool,
    as_json: bool,
    **wanted: Any,  # noqa: ANN401  --state, --project and --label
) -> None:
    """Cancel jobs, queued or running: by their numbers or the ids of Celery tasks, or all that fit the options.

    A queued job ends at once, a running one when its processes have been stopped. Of jobs that are named each is tried,
    whatever became of the others; exit 3 if any could not be cancelled. Jobs found by options are counted and shown
    first, and those enqueued after that stay.
    """
    if bool(refs) == (every or any(wanted.values())):
        raise click.UsageError("name jobs, or choose them by --state, --project, --label or --all")
    from vibey.domain.titles import labels_of
    from vibey.services import control

    with session.installation() as installation:
        if refs:
            context.exit(_cancel_named(installation, refs, as_json=as_json))
        found = control.matching(installation, **{**wanted, "labels": labels_of(wanted["labels"])})
        _cancel_matching(installation, found, yes=yes, as_json=as_json)


def _cancel_named(installation: Installation, refs: tuple[str | int, ...], *, as_json: bool) -> int:
    from vibey.domain.errors import Refused
    from vibey.services import control

    done: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for ref in refs:
        job_id = number_of(installation, ref)
        try:
            result = control.cancel(installation, job_id)
        except Refused as error:
            refused.append({"job_id": job_id, "error": str(error)})
            output.note(f"vibey: {error}")
            continue
        done.append({"job_id": job_id, "state": result.state, "stopping_run": result.stopping_run})
        if not as_json:
            told = f"stopping run {result.stopping_run}" if result.stopping_run else "cancelled"
            click.echo(f"job {job_id}: {told}")
    if as_json:
        output.print_json({"cancelled": done, "refused": refused})
    return Refused.exit_code if refused else 0


def _cancel_matching(installation: Installation, found: Matching, *, yes: bool, as_json: bool) -> None:
    from vibey.domain.errors import Refused
    from vibey.services import control

    total = sum(found.counts.values())
    if total and not as_json:
        _show(found, total)
    if total and not yes and not output.confirmed(f"cancel {output.many(total, 'job')}?"):
        raise Refused("not confirmed", "nothing was changed")
    done = control.cancel_matching(installation, found)
    if as_json:
        output.print_json(
            {"matched": dict(found.counts), "cancelled_jobs": done.cancelled, "stopping_runs": done.stopping}
        )
    elif total:
        stopping = f"; stopping {output.many(done.stopping, 'run')}" if done.stopping else ""
        click.echo(f"cancelled {output.many(done.cancelled, 'job')}{stopping}")
    else:
        click.echo("no such job")


def _show(found: Matching, total: int) -> None:
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(found.counts.items()))
    click.echo(f"{output.many(total, 'job')}: {counts}")
    rows = [(each.id, each.project, each.state, each.engine, each.title) for each in found.first]
    output.console().print(output.table(COLUMNS, rows))
    if total > len(found.first):
        click.echo(f"and {total - len(found.first):,} more: vibey jobs")
