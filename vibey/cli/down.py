"""`vibey down`: stop everything of an installation on this machine."""

from __future__ import annotations

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option


@click.command(
    cls=Command,
    examples=(
        "vibey down                    stop workers, beat, Flower and the embedded servers",
        "vibey down --keep-services    leave Postgres and Redis running",
    ),
)
@click.option("--keep-services", is_flag=True, help="Leave the embedded servers running.")
@json_option
def down(*, keep_services: bool, as_json: bool) -> None:
    """Stop everything on this machine.

    Runs at work have 20 seconds to end; then they are killed, and their jobs run again after the next start. All data
    stays.
    """
    from vibey.services import machine

    stopped = machine.down(session.settings(), output.note if as_json else click.echo, keep_services=keep_services)
    if as_json:
        output.print_json({"running": False, "stopped": stopped})
    else:
        click.echo("down" if stopped else "nothing was running")
