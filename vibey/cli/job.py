"""`vibey job`: one job and its runs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session, waiting
from vibey.cli.command import Command, json_option
from vibey.cli.jobref import JOB, number_of
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COLUMNS = (
    Column("RUN", right=True),
    Column("ENGINE", wide=True),
    Column("WHY"),
    Column("STATE"),
    Column("TRY", right=True),
    Column("GRANTED"),
    Column("TOOK", right=True),
    Column("DETAIL", wide=True),
)
SHOWN_CHARACTERS = 400
SHOWN_FACTS = (
    "priority",
    "capabilities",
    "exclude",
    "avoided",
    "handed_off",
    "session",
    "idempotency_key",
    "task_id",
)


@click.command(cls=Command, examples=("vibey job 17", "vibey job 17 --wait", "vibey job 17 --json"))
@click.argument("ref", type=JOB, metavar="ID")
@click.option("--wait", is_flag=True, help="Wait until it has ended, and show it then; exit 1 unless it succeeded.")
@json_option
@click.pass_context
def job(context: click.Context, /, ref: str | int, *, wait: bool, as_json: bool) -> None:
    """Show one job: its state and why, its result, and every run.

    ID is the job's number, or the id of a Celery task: then it is the task's newest job.
    """
    from vibey.services import views

    code = 0
    with session.installation() as installation:
        number = number_of(installation, ref)
        if wait:
            code, found = waiting.wait_to_end(installation, number, quiet=as_json)
        else:
            found = views.job(installation, number)
    if code != waiting.INTERRUPTED or as_json:
        _show(found, as_json=as_json)
    context.exit(code)


def _show(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(dict(found))
        return
    screen = output.console()
    screen.print(output.facts(_facts(found)))
    if found["runs"]:
        screen.print()
        screen.print(output.table(COLUMNS, [_row(run) for run in found["runs"]]))
    screen.print(f"as of {output.clock(found['as_of'])} UTC", style="dim")


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "job", f"{found['job_id']} in project {found['project']}, pool {found['pool']}"
    labels = ", ".join(f"{key}={value}" for key, value in found["labels"].items())
    yield from ((name, text) for name, text in (("title", found["title"]), ("labels", labels)) if text)
    yield "state", found["state"]
    if found["reason"] != found["state"]:
        yield "reason", found["reason"]
    yield "attempt", f"{found['attempt']} of {found['max_attempts']}"
    risen = "" if found["effort_now"] == found["effort"] else f", now {found['effort_now']}"
    yield "effort", f"{found['effort']}{risen}"
    if found["engines"]:
        yield "engines", f"{', '.join(found['engines'])}, and no other"
    if found["workspace_engines"] is not None:
        yield "repository", f"{', '.join(found['workspace_engines']) or 'no configured engine'} can work in it"
    for name in SHOWN_FACTS:
        value = found[name]
        if value:
            yield name.replace("_", " "), ", ".join(value) if isinstance(value, list) else value
    for name in ("created_at", "not_before", "deadline_at", "cancel_requested_at", "ended_at"):
        if found[name]:
            yield name.removesuffix("_at").replace("_", " "), f"{output.clock(found[name])} UTC"
    for name in ("payload", "result"):
        if found[name] is not None:
            text = json.dumps(found[name], ensure_ascii=False)
            yield name, text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… (all of it: --json)"


def _row(run: Mapping[str, Any]) -> tuple[object, ...]:
    granted = output.clock(run["granted_at"])
    failure = f"{run['failure_class']}: " if run["failure_class"] else ""
    return (
        run["run_id"],
        run["engine"],
        run["why"],
        run["state"],
        run["attempt"],
        granted[5:] if granted else None,
        output.lasting(_took(run)),
        f"{failure}{run['detail']}",
    )


def _took(run: Mapping[str, Any]) -> float | None:
    if run["started_at"] is None or run["ended_at"] is None:
        return None
    return (datetime.fromisoformat(run["ended_at"]) - datetime.fromisoformat(run["started_at"])).total_seconds()
