"""`vibey purge`: remove an installation from this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option

if TYPE_CHECKING:
    from vibey.services.purge import Holdings
    from vibey.settings import Settings

SHOWN_FILES = 20


@click.command(
    cls=Command,
    examples=(
        "vibey purge              show what would go, and ask",
        "vibey purge --yes        for a script",
        "vibey purge --orphans    what is left of installations whose folder was deleted by hand",
    ),
)
@click.option("--orphans", is_flag=True, help="Remove root's databases whose data folder is gone, and nothing else.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def purge(*, orphans: bool, yes: bool, as_json: bool) -> None:
    """Stop an installation and remove everything it keeps on this machine, its database included.

    That is what Vibey made in data_dir, under root also the database's folder in /var/lib/vibey, and the systemd unit
    that `vibey up --install` wrote. vibey.toml stays, and so does every file in data_dir that is not Vibey's; those are
    named. A database and a Redis server of your own are not touched.
    """
    if orphans:
        _purge_orphans(yes=yes, as_json=as_json)
        return
    _purge(session.settings(), yes=yes, as_json=as_json)


def _purge(chosen: Settings, *, yes: bool, as_json: bool) -> None:
    from vibey.services import purge as service

    found = service.holdings(chosen, os.environ)
    removed = [str(path) for path in (*found.folders, found.unit) if path is not None]
    kept: list[str] = []
    if not found.nothing:
        if not as_json:
            _show(found)
        _confirm(f"remove {'it' if len(removed) == 1 else 'them'} for good?", yes=yes)
        step = output.note if as_json else click.echo
        kept = [str(path) for path in service.purge(chosen, os.environ, step)]
    if as_json:
        output.print_json({"removed": removed, "kept": kept, "external": list(found.external)})
        return
    click.echo("purged" if removed else "there is nothing to remove")
    if kept:
        click.echo(f"kept, as they are not Vibey's: {output.many(len(kept), 'file')}")
        for path in kept[:SHOWN_FILES]:
            click.echo(f"  {output.plain(path)}")
    if "database_url" in found.external:
        click.echo("the database that database_url names was not touched; drop it, or Vibey's tables in it, yourself")
    if "redis_url" in found.external:
        prefix = chosen.services.redis_prefix
        click.echo(f"the server that redis_url names was not touched; Vibey's keys there begin with {prefix}")


def _show(found: Holdings) -> None:
    from vibey.services.purge import size_of

    if found.running:
        click.echo("the installation is running and will be stopped; runs at work are lost")
    for folder in found.folders:
        click.echo(f"{folder}: {output.size(size_of(folder))}")
    if found.unit is not None:
        click.echo(f"{found.unit}: the systemd unit")


def _purge_orphans(*, yes: bool, as_json: bool) -> None:
    from vibey.services import purge as service

    orphaned, unknown = service.orphans()
    rows: list[dict[str, Any]] = [
        {"path": str(each.path), "data_dir": str(each.data_dir) if each.data_dir else None, "bytes": size}
        for each, size in ((each, service.size_of(each.path)) for each in orphaned)
    ]
    if orphaned and not as_json:
        for row in rows:
            of = f", of {row['data_dir']}, which is gone" if row["data_dir"] else ""
            click.echo(f"{row['path']}: {output.size(row['bytes'])}{of}")
    if orphaned:
        _confirm(f"remove {output.many(len(orphaned), 'database')} for good?", yes=yes)
        service.purge_orphans(orphaned)
    if as_json:
        output.print_json({"removed": rows, "unknown": [str(each.path) for each in unknown]})
        return
    click.echo(f"removed {output.many(len(orphaned), 'database')}" if orphaned else "there is no orphaned database")
    for each in unknown:
        click.echo(
            f"left alone: {each.path}: an earlier version made it and did not write down whose it is; "
            "the next start of its installation does; if there is none any more, delete it"
        )


def _confirm(question: str, *, yes: bool) -> None:
    from vibey.domain.errors import Refused

    if not yes and not output.confirmed(question):
        raise Refused("not confirmed", "nothing was changed")
