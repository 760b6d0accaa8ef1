"""`vibey apply`: put the configuration in force."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.services.apply import LeftToEdit, Plan
    from vibey.services.installation import Installation


@click.command(
    cls=Command,
    examples=(
        "vibey apply                  show what differs, ask, and put it in force",
        "vibey apply --yes            without asking",
        "vibey apply --check          only show it; exit 1 when something differs",
        "vibey apply --undo           go back to the configuration applied before",
        "vibey apply --history        what was applied, when, and by whom",
    ),
)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when something differs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--undo", is_flag=True, help="Apply the generation before the one in force, as a new one.")
@click.option("--history", is_flag=True, help="List the generations, the newest first.")
@json_option
@click.pass_context
def apply(context: click.Context, *, check: bool, yes: bool, undo: bool, history: bool, as_json: bool) -> None:
    """Put the configuration in force, for all processes on all machines, as one generation.

    Shows what differs from what is in force, and what becomes of queued and running jobs, and asks. Without a terminal
    it wants --yes. Live runs keep their account, price and lease; workers follow without a restart. Of the environment,
    VIBEY_ENGINES_MODE, _OVERFLOW_AFTER_SECONDS and _PAID_DAILY_CAP are not stored: each router lays its own over it.
    """
    if history and (check or yes or undo):
        raise click.UsageError("--history goes with no other option but --json")
    with session.installation() as installation:
        if history:
            _history(installation, as_json=as_json)
        elif check:
            context.exit(_check(installation, undo=undo, as_json=as_json))
        else:
            _apply(installation, yes=yes, undo=undo, as_json=as_json)


def show(plan: Plan) -> None:
    """Print a plan's changes and effects."""
    for change in plan.changes:
        click.echo(output.plain(f"  {change}"))
    for effect in plan.effects:
        click.echo(output.plain(f"  * {effect}"))


def _check(installation: Installation, *, undo: bool, as_json: bool) -> int:
    from vibey.services.apply import plan

    found = plan(installation, undo=undo)
    if as_json:
        output.print_json(found.as_json())
    elif found.differs:
        click.echo(_heading(found, undo=undo))
        show(found)
        _show_left(found.left)
    else:
        click.echo(f"nothing differs from generation {found.generation}, which is in force")
    return 1 if found.differs else 0


def _apply(installation: Installation, *, yes: bool, undo: bool, as_json: bool) -> None:
    from vibey.domain.errors import Refused
    from vibey.services.apply import apply as put_in_force
    from vibey.services.apply import plan

    found = plan(installation, undo=undo)
    if found.differs and not yes:
        if as_json or not sys.stdin.isatty():
            raise Refused("the configuration differs from what is in force, and nobody can be asked", "add --yes")
        click.echo(_heading(found, undo=undo))
        show(found)
        _show_left(found.left)
        if not click.confirm("Apply this?", default=False):
            raise Refused("nothing was applied", "to look at it again: vibey apply --check")
    done = put_in_force(installation, undo=undo, seen=None if yes else found)
    if as_json:
        result = {"generation": done.generation, "changed": done.changed, "withdrawn": done.withdrawn}
        output.print_json({**done.plan.as_json(), **result})
    elif not done.changed:
        click.echo(f"nothing differs from generation {done.generation}, which is in force")
    else:
        if yes:
            show(done.plan)
            _show_left(done.plan.left)
        click.echo(f"applied: generation {done.generation} is in force")


def _show_left(left: LeftToEdit | None) -> None:
    """Of going back: say what the file here changes of it, and what that means for workers of this machine."""
    if left is None or not left.changes:
        return
    click.echo("vibey.toml here says otherwise than that; edit it, or the next vibey apply puts this in force again:")
    for change in left.changes:
        click.echo(output.plain(f"  {change}"))
    for name, difference in left.unserved.items():
        click.echo(output.plain(f"until it is edited, workers of this machine leave {name} unserved: {difference}"))


def _heading(found: Plan, *, undo: bool) -> str:
    what = "going back" if undo else "your file"
    return f"{what} changes generation {found.generation}:" if found.generation else "nothing has been applied yet:"


def _history(installation: Installation, *, as_json: bool) -> None:
    from vibey.services.apply import history

    found = history(installation)
    if as_json:
        output.print_json({"generations": found})
        return
    columns = (Column("GENERATION", right=True), Column("APPLIED (UTC)"), Column("BY"), Column("DIFFERENCE", wide=True))
    rows = [(each["generation"], output.clock(each["at"]), each["who"], _difference(each)) for each in found]
    output.console().print(output.table(columns, rows))


def _difference(each: Mapping[str, Any]) -> str:
    """What a generation of the history changed, and whether by going back."""
    undoes = [] if each["undoes"] is None else [f"undoes generation {each['undoes']}"]
    return "; ".join([*undoes, *each["difference"]])
