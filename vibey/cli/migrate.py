"""`vibey migrate`: bring the database's schema to this version."""

from __future__ import annotations

import click

from vibey.cli import session
from vibey.cli.command import Command, json_option
from vibey.cli.output import print_json
from vibey.domain.errors import NothingApplied


@click.command(
    cls=Command,
    examples=("vibey migrate                  apply what is missing; safe to repeat",),
)
@json_option
def migrate(*, as_json: bool) -> None:
    """Bring the database to this version's schema.

    What is in force stays in force: `vibey apply` is what changes it. Refused while workers of the version before are
    alive. Starts the embedded servers if the configuration names none. `vibey up` does this by itself.
    """
    from vibey.services.installation import Installation, ensure_services, require_suitable_redis
    from vibey.store import generations
    from vibey.store import migrate as schema

    chosen = session.settings()
    ensure_services(chosen)
    opened = Installation.open(chosen)
    try:
        require_suitable_redis(chosen)
        before = schema.current(opened.database)
        opened.upgrade_schema()
        after = schema.current(opened.database)
        is_applied = opened.database.statement(generations.number) is not None
    finally:
        opened.close()
    if as_json:
        print_json({"from": before, "to": after, "changed": before != after, "applied": is_applied})
    elif before == after:
        click.echo(f"the schema is at {after} already")
    else:
        click.echo(f"migrated from {before or 'nothing'} to {after}")
    if not as_json and not is_applied:
        click.echo(str(NothingApplied()))
