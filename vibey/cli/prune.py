"""`vibey prune`: remove what is older than the record is kept, now."""

from __future__ import annotations

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option


@click.command(cls=Command, examples=("vibey prune", "vibey prune --json"))
@json_option
def prune(*, as_json: bool) -> None:
    """Remove jobs that ended more than keep_days ago, with their runs and decisions.

    Beat does so by itself, some seconds every ten minutes; this goes on to the end. The installation may be at work,
    and Ctrl-C loses nothing. The ledger keeps what happened to the jobs; caps, costs, credits, measurements and audits
    come out as before.
    """
    from vibey.services.prune import prune as pruned

    with session.installation() as installation:
        found = pruned(installation)
    if as_json:
        output.print_json(found.to_json())
        return
    removed = ", ".join(output.many(n, what) for n, what in ((found.jobs, "job"), (found.runs, "run")))
    click.echo(f"removed {removed}, {output.many(found.passes, 'record')} of passes")
    if not found.done:
        click.echo("someone else is pruning: the rest is theirs")
