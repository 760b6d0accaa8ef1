"""`vibey mode`: which mode a project is in, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@click.command(
    cls=Command,
    examples=(
        "vibey mode               how the default project dispatches, and on what evidence",
        "vibey mode website       the same of another project",
    ),
)
@click.argument("project", default="default")
@json_option
def mode(project: str, *, as_json: bool) -> None:
    """Show which mode PROJECT is in: since when, why, on what evidence, and when that is measured next."""
    from vibey.services import measure

    with session.installation() as installation:
        found = measure.mode(installation, project)
    if as_json:
        output.print_json(found)
        return
    show(found)


def show(found: Mapping[str, Any]) -> None:
    """Print the mode of a project."""
    output.console().print(output.facts(_facts(found)))


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    since = f" since {output.clock(found['since'])} UTC" if found["since"] else ""
    yield "project", f"{found['project']}, set to {found['setting'] or 'unreadable'}"
    yield "mode", f"{found['mode']}{since} ({found['mode_source']})"
    yield "why", found["mode_reason"]
    yield "cap", output.cap(found["cap"])
    if outside := output.outside_cap(found):
        yield "outside", outside
    if found["evidence"] is not None:
        yield "measured", f"{output.clock(found['measured_at'])} UTC: {found['evidence']['winner']}"
        for line in _evidence(found["evidence"]):
            yield "", line
    if found["next_measurement"] is not None:
        due = found["next_measurement"] <= found["as_of"]
        when = "before the next job is routed" if due else f"after {output.clock(found['next_measurement'])} UTC"
        yield "next", when


def _evidence(evidence: Mapping[str, Any]) -> Iterator[str]:
    """What a measurement found, beside the thresholds it was held against; an older version's may lack some."""
    needs = evidence.get("thresholds", {})
    rows = (
        ("attempts", evidence.get("demand"), needs.get("sessions"), str),
        ("contended", evidence.get("contention"), needs.get("contention"), output.percent),
        ("median wait", evidence.get("median_wait_seconds"), needs.get("wait_seconds"), output.lasting),
    )
    for name, value, least, shown in rows:
        if value is not None and least is not None:
            yield f"{name:<12} {shown(value):>8}  hybrid needs {shown(least)}"
