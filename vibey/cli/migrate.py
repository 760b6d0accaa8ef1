"""`vibey migrate`: bring the database's schema to this version."""

from __future__ import annotations

import click

from vibey.cli import session
from vibey.cli.command import Command, json_option
from vibey.cli.output import print_json


@click.command(
    cls=Command,
    examples=("vibey migrate                  apply what is missing; safe to repeat",),
)
@json_option
def migrate(*, as_json: bool) -> None:
    """Bring the database to this version's schema and configuration.

    The fleet in it becomes what the configuration says. Starts the embedded servers if the configuration names none.
    `vibey up` does this by itself.
    """
    from vibey.services import fleet
    from vibey.services.installation import Installation, ensure_services
    from vibey.store import migrate as schema

    chosen = session.settings()
    ensure_services(chosen)
    opened = Installation.open(chosen)
    try:
        before = schema.current(opened.database)
        schema.upgrade(opened.database.url)
        after = schema.current(opened.database)
        fleet.sync(opened)
    finally:
        opened.close()
    if as_json:
        print_json({"from": before, "to": after, "changed": before != after})
    elif before == after:
        click.echo(f"the schema is at {after} already")
    else:
        click.echo(f"migrated from {before or 'nothing'} to {after}")
