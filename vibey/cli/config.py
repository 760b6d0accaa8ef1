"""`vibey config`: is the configuration good, and what is in force."""

from __future__ import annotations

import json

import click

from vibey.cli import output, session
from vibey.cli.command import Command, Group, json_option
from vibey.cli.output import Column


@click.group(cls=Group, examples=("vibey config check", "vibey config show"))
def config() -> None:
    """Check the configuration, or show what is in force."""


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
        "vibey config show           every key, its value, and its source",
        "vibey config show --json",
    ),
)
@json_option
def show(*, as_json: bool) -> None:
    """Show every key with its value in force and its source: default, file or environment."""
    chosen = session.settings()
    rows = chosen.effective()
    if as_json:
        entries = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        output.print_json({"path": str(chosen.path) if chosen.path else None, "settings": entries})
        return
    columns = (Column("KEY"), Column("VALUE", wide=True), Column("SOURCE", wide=True))
    shown = [(key, json.dumps(value, ensure_ascii=False), source) for key, value, source in rows]
    output.console().print(output.table(columns, shown))
