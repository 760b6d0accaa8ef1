"""`vibey restore`: put a backup in force."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.interrupts import interruptible

if TYPE_CHECKING:
    from vibey.services.backup import Target


@click.command(
    cls=Command,
    examples=(
        "vibey restore vibey.backup              into an installation that holds no jobs, such as a new folder",
        "vibey restore vibey.backup --replace    over what is there, which is lost",
    ),
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--replace", "replace_jobs", is_flag=True, help="Restore over a database that holds jobs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def restore(file: Path, *, replace_jobs: bool, yes: bool, as_json: bool) -> None:
    """Restore the backup FILE into the installation's own database.

    Nothing of the installation may run: stop it with `vibey down`, on every machine. The file is checked to its end
    before anything is changed, and what follows happens as a whole or not at all. Also on another machine or in a new
    folder: put vibey.toml there, restore, and run `vibey up`.

    Jobs that ended after the backup was made run again. Runs that were at work in it count as lost, and their jobs run
    again, so the installation the backup was made from must not go on working elsewhere.
    """
    from vibey.services import backup as service

    def confirm(target: Target) -> bool:
        question = f"throw away the {output.many(target.jobs, 'job')} of this database and restore {file}?"
        return yes or output.confirmed(question)

    chosen = session.settings()
    with interruptible(), output.progress() as progress:
        done = service.restore(chosen, file, replace_jobs=replace_jobs, confirm=confirm, progress=progress)
    made = done.manifest
    if not done.redis_cleared:
        output.note("Redis did not answer: its old messages stay, and are refused by their tokens")
    if as_json:
        outcome = {"replaced_jobs": done.replaced_jobs, "redis_cleared": done.redis_cleared}
        output.print_json({"file": str(file.absolute()), **service.summary(made), **outcome})
        return
    click.echo(
        f"restored {output.many(made.jobs, 'job')} ({made.open_jobs} not ended) as of {output.clock(made.at)} UTC"
    )
    if made.live_runs:
        click.echo(f"{output.many(made.live_runs, 'run')} at work then will count as lost, and their jobs run again")
    click.echo("next: vibey up")
