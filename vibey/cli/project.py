"""`vibey project`: look at projects and change their dispatch settings."""

from __future__ import annotations

import click

from vibey.cli import output, session
from vibey.cli.command import Command, Group, json_option
from vibey.cli.output import Column


@click.group(cls=Group, examples=("vibey project list", "vibey project set website paid_daily_cap=5"))
def project() -> None:
    """List projects, show one, or change its dispatch settings."""


@project.command(name="list", cls=Command, examples=("vibey project list",))
@json_option
def list_(*, as_json: bool) -> None:
    """List projects with what sets them apart."""
    from vibey.services import views

    with session.installation() as installation:
        found = views.all_projects(installation)
    if as_json:
        output.print_json(found)
        return
    shown = ("mode", "paid_daily_cap", "paid_daily_cap_covers", "paid_fallback")
    columns = (
        Column("PROJECT", wide=True),
        Column("MODE"),
        Column("CAP", right=True),
        Column("COVERS"),
        Column("PAID FALLBACK"),
    )
    rows = [(each["project"], *(each["effective"][key] for key in shown)) for each in found["projects"]]
    output.console().print(output.table(columns, rows))


@project.command(cls=Command, examples=("vibey project show website",))
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show the dispatch settings of project NAME: what is in force, where it comes from, and where the file differs.

    The implicit project `default` follows the configuration that was applied; others keep the copy they were made with.
    """
    from vibey.services import views

    with session.installation() as installation:
        found = views.project(installation, name)
    if as_json:
        output.print_json(found)
        return
    effective, sources, file = found["effective"], found["sources"], found["file"]
    rows = [(key, effective[key], sources[key], file.get(key, "")) for key in effective]
    columns = (Column("KEY"), Column("VALUE"), Column("FROM"), Column("FILE SAYS"))
    output.console().print(output.table(columns, rows))


@project.command(
    name="set",
    cls=Command,
    examples=(
        "vibey project set website paid_daily_cap=5",
        "vibey project set website mode=singleton paid_fallback=never",
    ),
)
@click.argument("name")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@json_option
def set_(name: str, changes: tuple[str, ...], *, as_json: bool) -> None:
    """Change dispatch settings of project NAME; all the changes or none."""
    from vibey.services import control

    wanted = dict(_pair(change) for change in changes)
    with session.installation() as installation:
        policy = control.set_project(installation, name, wanted)
    if as_json:
        output.print_json({"project": name, "policy": policy})
    else:
        click.echo(f"{name}: " + ", ".join(f"{key} = {policy[key]}" for key in wanted))


def _pair(change: str) -> tuple[str, str]:
    key, equals, value = change.partition("=")
    if not equals or not key:
        raise click.UsageError(f"{change!r} is not a change; write KEY=VALUE")
    return key.strip(), value
