"""`vibey cancel`: end jobs nobody wants any more."""

from __future__ import annotations

from typing import Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.jobref import JOB, number_of


@click.command(cls=Command, examples=("vibey cancel 17", "vibey cancel 17 18 19 --json"))
@click.argument("refs", nargs=-1, required=True, type=JOB, metavar="ID...")
@json_option
@click.pass_context
def cancel(context: click.Context, refs: tuple[str | int, ...], *, as_json: bool) -> None:
    """Cancel jobs, queued or running, by their numbers or by the ids of Celery tasks.

    A queued job ends at once, a running one when its processes have been stopped. Each is tried, whatever became of
    the others; exit 3 if any could not be cancelled.
    """
    from vibey.domain.errors import Refused
    from vibey.services import control

    done: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    with session.installation() as installation:
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
    context.exit(Refused.exit_code if refused else 0)
