"""`vibey logs`: what a job's run printed, and of a coding client what it did, as people read it."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session, transcript
from vibey.cli.command import Command, json_option
from vibey.cli.jobref import JOB, number_of

if TYPE_CHECKING:
    from vibey.services.logs import RunOutput


@click.command(
    cls=Command,
    examples=(
        "vibey logs 17             the output of its newest run",
        "vibey logs 17 -f          follow it until the run ends",
        "vibey logs 17 --run 41    of an earlier run, as vibey job 17 lists them",
        "vibey logs 17 --raw       the events of its client, as they were printed",
    ),
)
@click.argument("ref", type=JOB, metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, until the run has ended.")
@click.option("--run", "run_id", type=int, metavar="N", help="Of this run; default: the newest.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last so many lines.")
@click.option("--raw", is_flag=True, help="As it was printed, also where that is events for programs.")
@json_option
def logs(ref: str | int, *, follow: bool, run_id: int | None, lines: int | None, raw: bool, as_json: bool) -> None:
    """Print the output of a run of job ID, which is its number or the id of a Celery task.

    Of a coding client it shows what it said, each tool with its argument and the beginning of its result, edits as
    diffs, and tokens and cost at the end; lines of an unknown form are shown as they are. --json has the output as it
    was printed.

    A run on this machine has a file with all that is kept; of one elsewhere, the end of it is in the database.
    A terminal gets what it can show, and colours; a file or pipe gets all of it.
    """
    from vibey.services import logs as service

    if follow and (as_json or lines is not None):
        raise click.UsageError("--follow goes with neither --json nor --lines")
    with session.installation() as installation:
        job_id = number_of(installation, ref)
        if follow:
            at_work, pieces = service.follow(installation, job_id, run_id, threading.Event().wait)
            if raw or not at_work.has_transcript:
                for piece in pieces:
                    output.print_raw(piece)
                return
            encoded = (piece.encode("utf-8", "replace") for piece in pieces)
            again = partial(service.find, installation, job_id, at_work.run_id)
            transcript.show(service.transcript(at_work, encoded, again))
            return
        found = service.find(installation, job_id, run_id)
        reason = service.no_run(installation, job_id) if found is None else ""
    if as_json:
        output.print_json(_as_json(job_id, found, lines))
    elif found is None:
        output.note(f"{reason}; see: vibey job {job_id}")
    else:
        if found.source == "stored":
            output.note(f"run {found.run_id} ran on {found.host}; this is the end of its output as stored")
        if raw or not found.has_transcript:
            output.print_raw(found.text(lines))
        else:
            transcript.show(service.transcript(found, found.pieces(), lambda: None), lines)


def _as_json(job_id: int, found: RunOutput | None, lines: int | None) -> dict[str, Any]:
    if found is None:
        return {
            "job_id": job_id,
            "run_id": None,
            "engine": None,
            "state": None,
            "host": None,
            "source": "none",
            "text": "",
        }
    return {
        "job_id": job_id,
        "run_id": found.run_id,
        "engine": found.engine,
        "state": found.state,
        "host": found.host,
        "source": found.source,
        "text": found.text(lines),
    }
