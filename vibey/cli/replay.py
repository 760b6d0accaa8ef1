"""`vibey replay`: does every recorded decision come out again?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session, whatif
from vibey.cli.command import Command, json_option, past_instant
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.services.installation import Installation
    from vibey.services.replay import Report


@click.command(
    cls=Command,
    examples=(
        "vibey replay                              every decision there is a record of",
        "vibey replay --since 2h                   those of the last two hours",
        "vibey replay --since 2026-03-01T14:00Z    those since an instant",
        "vibey replay --job 17 --json              those about one job",
        "vibey replay --since 7d --what-if mode=hybrid,cap=20,slots.ollama=2   the past on other settings",
    ),
)
@click.option(
    "--since", callback=past_instant, metavar="TIME", help="Only since this instant, or so long ago: 15m, 2h, 1d."
)
@click.option("--job", type=int, metavar="ID", help="Only those about this job.")
@click.option("--what-if", "changes", metavar="KEY=VALUE,…", help="Simulate the past with these settings instead.")
@json_option
@click.pass_context
def replay(
    context: click.Context, *, since: datetime | timedelta | None, job: int | None, changes: str | None, as_json: bool
) -> None:
    """Put the recorded inputs of past decisions to the router again and compare what comes out.

    Outcome, engine and every step must be the same, in the same bytes. Writes nothing; the installation may be at
    work. Exit 1 if any differs.

    With --what-if the jobs of the past (7 days, or --since) are simulated instead: on the settings in force, and on
    those with the changes, beside what really happened. Keys: mode, cap, cap_scope, cap_covers, fallback,
    overflow_after, max_attempts, cost_aware, slots.ENGINE, weight.ENGINE, enabled.ENGINE.
    """
    if changes is not None:
        if job is not None:
            raise click.UsageError("--what-if is about all jobs of a span; leave out --job")
        _what_if(changes, since, as_json=as_json)
        return
    with session.installation() as installation:
        found = _replayed(installation, since, job, quiet=as_json)
    told = found.to_json()
    if as_json:
        output.print_json(told)
    else:
        _show(told)
    context.exit(0 if found.same == found.replayed else 1)


def _what_if(changes: str, since: datetime | timedelta | None, *, as_json: bool) -> None:
    span = since if isinstance(since, timedelta) or since is None else datetime.now(UTC) - since
    if span is not None and span <= timedelta():
        raise click.UsageError("--since is an instant to come; name one that is past")
    found = whatif.compare(changes, None if span is None else span.total_seconds())
    if as_json:
        output.print_json(found)
    else:
        whatif.show(found)


def _replayed(
    installation: Installation, since: datetime | timedelta | None, job: int | None, *, quiet: bool
) -> Report:
    """Replay with a bar on a terminal."""
    from rich.progress import Progress

    from vibey.services.replay import replay as replayed

    screen = output.console(stderr=True)
    with Progress(console=screen, transient=True, disable=quiet or not screen.is_terminal) as bars:
        bar = bars.add_task("replaying", total=None)
        return replayed(
            installation,
            since=since,
            job=job,
            watch=lambda done, of: bars.update(bar, completed=done, total=of),
        )


def _show(found: Mapping[str, Any]) -> None:
    screen = output.console()
    unlike = found["replayed"] - found["same"]
    if found["differing"]:
        columns = (Column("DECISION", right=True), Column("JOB", right=True), Column("WHAT DIFFERS", wide=True))
        screen.print(output.table(columns, [_row(each) for each in found["differing"]]))
    if unlike > len(found["differing"]):
        screen.print(f"and {unlike - len(found['differing']):,} more")
    verdict = "all the same" if not unlike else f"{output.many(unlike, 'difference')}"
    screen.print(f"replayed {output.many(found['replayed'], 'decision')}: {verdict}")
    if found["record_begins"]:
        begins = output.clock(found["record_begins"])
        screen.print(f"those about jobs that ended before {begins} UTC are removed", style="dim")


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    was, came = each["recorded"], each["replayed"]
    if "unreadable" in came:
        return each["decision"], each["job"], f"its record cannot be read: {came['unreadable']}"
    keys = [key for key in was if was[key] != came.get(key)]
    return each["decision"], each["job"], "; ".join(f"{key}: {was[key]} recorded, {came.get(key)} now" for key in keys)
