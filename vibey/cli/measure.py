"""`vibey measure`: find out whether hybrid would help a project."""

from __future__ import annotations

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.mode import show


@click.command(
    cls=Command,
    examples=(
        "vibey measure website            unless its measurement is current",
        "vibey measure website --force    in any case",
    ),
)
@click.argument("project", default="default")
@click.option("--force", is_flag=True, help="Measure again although the latest measurement is current.")
@json_option
def measure(project: str, *, force: bool, as_json: bool) -> None:
    """Measure from recorded demand whether hybrid would help PROJECT, and record it on the project's ledger.

    The mode follows the measurement only where it is set to auto.
    """
    from vibey.services import measure as measuring

    with session.installation() as installation:
        found = measuring.measure(installation, project, force=force)
    if as_json:
        output.print_json(found)
        return
    click.echo("measured now" if found["recorded"] else "the latest measurement is current: nothing was measured")
    show(found)
