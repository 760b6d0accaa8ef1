"""`vibey config`: is the configuration good, what is in force, and examples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from vibey.cli import output, session
from vibey.cli.command import Command, Group, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from vibey.settings.difference import Change


@click.group(cls=Group, examples=("vibey config check", "vibey config show", "vibey config example laptop"))
def config() -> None:
    """Check the configuration, show what is in force, or print an example."""


@config.command(
    cls=Command,
    examples=(
        "vibey config check                      the file in force",
        "vibey --config new.toml config check    another one",
    ),
)
@json_option
@click.pass_context
def check(context: click.Context, *, as_json: bool) -> None:
    """Check the configuration file and the environment over it; nothing is connected to.

    A mistake in a key or value is exit 2, an engine that cannot be built here exit 1.
    """
    from vibey.domain.errors import SettingsError
    from vibey.services.fleet import unusable

    chosen = session.settings()
    problems = unusable(chosen)
    where = str(chosen.path) if chosen.path else "no configuration file here; everything has its default"
    if as_json:
        path = str(chosen.path) if chosen.path else None
        told = [str(problem) for problem in problems]
        output.print_json({"ok": not problems, "path": path, "engines": list(chosen.engine), "problems": told})
    elif problems:
        output.note(output.plain(f"vibey: {SettingsError(where, tuple(problems))}"))
    else:
        click.echo(f"{where}: good, {output.many(len(chosen.engine), 'engine')}")
    context.exit(1 if problems else 0)


@config.command(
    cls=Command,
    examples=(
        "vibey config show           every key, its value in force, and its source",
        "vibey config show --json",
    ),
)
@json_option
def show(*, as_json: bool) -> None:
    """Show every key with its value in force, where it comes from, and beside it what the file says where it differs.

    What routing depends on is in force once it is applied; services, and what runs an engine, as the file here says.
    Where the database cannot be asked, only what file and environment say is shown.
    """
    from vibey.domain.errors import VibeyError
    from vibey.services.apply import DIFFERS, in_force_beside

    chosen = session.settings()
    generation: int | None = None
    changes: tuple[Change, ...] = ()
    rows = [(key, value, source, value) for key, value, source in chosen.effective()]
    try:
        with session.installation() as installation:
            generation, rows, changes = in_force_beside(installation)
    except VibeyError as error:
        output.note(output.plain(f"vibey: what is in force is not known: {error}"))
    if as_json:
        entries = [{"key": key, "value": value, "source": source, "file": said} for key, value, source, said in rows]
        path = str(chosen.path) if chosen.path else None
        told = [change.as_json() for change in changes]
        output.print_json({"path": path, "generation": generation, "settings": entries, "differences": told})
        return
    columns = (Column("KEY"), Column("VALUE", wide=True), Column("SOURCE", wide=True), Column("FILE SAYS", wide=True))
    shown = [(key, _text(value), source, _text(said) if said != value else "") for key, value, source, said in rows]
    output.console().print(output.table(columns, shown))
    if changes:
        click.echo(f"\n{DIFFERS} (generation {generation}); run: vibey apply")
        for change in changes:
            click.echo(output.plain(f"  {change}"))


def _text(value: object) -> str:
    return "-" if value is None else json.dumps(value, ensure_ascii=False)


@config.command(
    cls=Command,
    examples=(
        "vibey config example                  the names of all files",
        "vibey config example vibey.toml       every key with its default and its meaning",
        "vibey config example laptop > vibey.toml",
        "vibey config example grafana-dashboard.json > dashboard.json",
    ),
)
@click.argument("name", required=False)
@json_option
def example(name: str | None, *, as_json: bool) -> None:
    """Print a file that comes with Vibey: the annotated configuration, whole fleets, dashboard, alerts, Procfile.

    NAME is a path of the list that is printed without it, or its last part, with or without a suffix.
    """
    from vibey.cli.examples import example_names, example_text

    if name is not None:
        text = example_text(name)
        if as_json:
            output.print_json({"name": name, "text": text})
        else:
            click.echo(text, nl=False)
    elif as_json:
        output.print_json({"examples": example_names()})
    else:
        click.echo("\n".join(example_names()))
