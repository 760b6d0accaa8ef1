"""`vibey audit`: did every invariant hold?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNTED = ("jobs", "runs", "decisions", "events", "units")


@click.command(
    cls=Command,
    examples=(
        "vibey audit                  exit 0 if every invariant held, else 1",
        "vibey audit --json           each violation with its invariant",
    ),
)
@json_option
@click.pass_context
def audit(context: click.Context, *, as_json: bool) -> None:
    """Check from the record that every invariant held.

    That is of slots, runs, the cap, tokens, credits and the ledger. Reads everything as of one instant and writes
    nothing; the installation may be at work. Exit 1 on a violation.
    """
    from vibey.services.audit import audit as audited

    with session.installation() as installation:
        found = audited(installation).to_json()
    if as_json:
        output.print_json(found)
    else:
        _show(found)
    context.exit(0 if found["ok"] else 1)


def _show(found: Mapping[str, Any]) -> None:
    screen = output.console()
    checked = found["checked"]
    if found["violations"]:
        rows = [(each["invariant"], each["detail"]) for each in found["violations"]]
        screen.print(output.table((Column("INVARIANT"), Column("VIOLATION", wide=True)), rows))
    else:
        screen.print(f"every invariant held: {', '.join(checked['invariants'])}")
    counted = ", ".join(f"{checked[name]:,} {name}" for name in COUNTED)
    if checked["removed_jobs"]:
        counted += f" (besides {checked['removed_jobs']:,} removed jobs with {checked['removed_runs']:,} runs)"
    screen.print(f"looked at {counted}; as of {output.clock(found['as_of'])} UTC", style="dim")
