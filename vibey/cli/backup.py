"""`vibey backup`: write the installation's database into one file."""

from __future__ import annotations

from pathlib import Path

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.interrupts import interruptible


@click.command(
    cls=Command,
    examples=(
        "vibey backup vibey.backup               all that is true, in one file",
        "vibey backup nightly.backup --json      for a program",
    ),
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@json_option
def backup(file: Path, *, as_json: bool) -> None:
    """Write a backup of the installation's database to FILE; workers may be at work.

    In it: jobs with payloads and results, runs with the end of their output, projects, the rotation, caps, decisions
    and the ledger. Not in it: vibey.toml, the whole output of runs (data_dir/runs), and Redis, which holds nothing
    that is lost. An earlier backup of that name is replaced once the new one is whole.
    """
    from vibey.services import backup as service

    with interruptible(), output.progress() as progress:
        made = service.back_up(session.settings(), file, progress)
    if as_json:
        output.print_json({"file": str(file.absolute()), **service.summary(made)})
        return
    size = output.size(made.bytes)
    click.echo(f"backed up {output.many(made.jobs, 'job')} ({made.open_jobs} not ended) to {file}, {size}")
