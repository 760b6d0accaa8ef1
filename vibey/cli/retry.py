"""`vibey retry`: queue ended jobs again."""

from __future__ import annotations

from typing import Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option


@click.command(cls=Command, examples=("vibey retry 17",))
@click.argument("job_ids", nargs=-1, required=True, type=int, metavar="ID...")
@json_option
@click.pass_context
def retry(context: click.Context, job_ids: tuple[int, ...], *, as_json: bool) -> None:
    """Queue failed or cancelled jobs again, with fresh attempts.

    A deadline they had is gone. Each is tried, whatever became of the others; exit 3 if any could not be queued.
    """
    from vibey.domain.errors import Refused
    from vibey.services import control

    done: list[int] = []
    refused: list[dict[str, Any]] = []
    with session.installation() as installation:
        for job_id in job_ids:
            try:
                control.retry(installation, job_id)
            except Refused as error:
                refused.append({"job_id": job_id, "error": str(error)})
                output.note(f"vibey: {error}")
                continue
            done.append(job_id)
            if not as_json:
                click.echo(f"job {job_id}: queued again")
    if as_json:
        output.print_json({"retried": done, "refused": refused})
    context.exit(Refused.exit_code if refused else 0)
