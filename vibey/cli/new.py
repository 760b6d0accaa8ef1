"""`vibey new`: make a project."""

from __future__ import annotations

import click

from vibey.cli import session
from vibey.cli.command import Command, json_option
from vibey.cli.output import print_json
from vibey.domain.shell import command


@click.command(cls=Command, examples=("vibey new website",))
@click.argument("name")
@json_option
def new(name: str, *, as_json: bool) -> None:
    """Make a project named NAME.

    It gets its own copy of the dispatch settings as the file has them now; `vibey project set` changes the copy.
    """
    from vibey.services import control

    with session.installation() as installation:
        project = control.new_project(installation, name)
    if as_json:
        print_json({"project": project.name, "policy": project.policy})
    else:
        click.echo(
            f"made project {project.name}; enqueue into it with: {command('vibey enqueue', project=project.name)} …"
        )
