"""`vibey explain`: why a job ran where it did, or why not yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.jobref import JOB, number_of
from vibey.cli.output import Column
from vibey.services import display

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

ENGINES = (
    Column("ENGINE", wide=True),
    Column("TIER"),
    Column("VERDICT"),
    Column("WEIGHT", right=True),
    Column("WHY", wide=True),
)
MEMBERS = (
    Column("MEMBER", wide=True),
    Column("SHARE", right=True),
    Column("CREDIT", right=True),
    Column("AFTER", right=True),
    Column(""),
)
PROJECTS = (Column("PROJECT", wide=True), *MEMBERS[1:])
# Labels stand below one another in all the lists of facts, whose longest is this.
LABELS = len("backoff until")


@click.command(
    cls=Command,
    examples=(
        "vibey explain 17             the latest run of job 17, or why it has not started",
        "vibey explain 17 --all       every run of it",
        "vibey explain 17 --json",
    ),
)
@click.argument("ref", type=JOB, metavar="JOB")
@click.option("--all", "every_run", is_flag=True, help="Every run of the job, latest first; default: the latest.")
@json_option
def explain(ref: str | int, *, every_run: bool, as_json: bool) -> None:
    """Explain why a job ran where it did, or why it has not started.

    A run is explained from what was recorded when it was granted: the grounds, the way through the pools, and what
    became of every engine. For a queued job: what each engine lacks now, and the earliest start that is known. For one
    that ended without a run: what each engine lacked at the last decision about jobs like it.
    JOB is the job's number, or the id of a Celery task: then it is the task's newest job.
    """
    from vibey.services.explain import explain as explained

    with session.installation() as installation:
        found = explained(installation, number_of(installation, ref), every_run=every_run)
    if as_json:
        output.print_json(found)
        return
    screen = output.console()
    _facts(
        screen,
        {
            "job": f"{found['job_id']} in project {found['project']}, pool {found['pool']}",
            "state": f"{found['state']}, attempt {found['attempt']} of {found['max_attempts']}",
            **({"reason": found["reason"]} if found["reason"] != found["state"] else {}),
        },
    )
    if found["waiting"]:
        _show_waiting(screen, found["waiting"])
    if found["unstarted"]:
        _show_unstarted(screen, found["unstarted"])
    for run in found["runs"]:
        _show_run(screen, run)
    screen.print(f"as of {output.clock(found['as_of'])} UTC", style="dim")


def _show_waiting(screen: Console, waiting: Mapping[str, Any]) -> None:
    earliest, decided = waiting["earliest"], waiting["decision"]
    start = f"{output.clock(earliest['at'])} UTC: {earliest['words']}" if earliest["at"] else earliest["words"]
    facts = {"earliest": start}
    facts |= {name: f"{output.clock(waiting[key])} UTC" for name, key in _INSTANTS if waiting[key]}
    if decided:
        facts["decided"] = _decided(decided)
    _facts(screen, facts)
    screen.print()
    screen.print(output.table(ENGINES, map(_engine, waiting["engines"])))


def _show_unstarted(screen: Console, unstarted: Mapping[str, Any]) -> None:
    """Why no engine was free for a job that ended without a run."""
    decided = unstarted["decision"]
    never = "nothing that kept it waiting is recorded: jobs before it took what came free, or it ended before any look"
    _facts(screen, {"no run": "it ended before any engine was granted to it"})
    _facts(screen, {"decided": never if decided is None else _decided(decided)})
    if unstarted["engines"]:
        screen.print()
        screen.print(output.table(ENGINES, map(_engine, unstarted["engines"])))


def _decided(decided: Mapping[str, Any]) -> str:
    doubt = "" if decided["reproduced"] else " (vibey replay comes to something else)"
    return f"{output.clock(decided['at'])} UTC, {decided['outcome']}: {decided['words']}{doubt}"


_INSTANTS = (("held since", "held_since"), ("backoff until", "backoff_until"), ("deadline", "deadline_at"))


def _show_run(screen: Console, run: Mapping[str, Any]) -> None:
    screen.print()
    facts = {
        "run": f"{run['run_id']} on {run['engine']} ({run['why']}), attempt {run['attempt']}, {run['state']}",
        "granted": f"{output.clock(run['granted_at'])} UTC",
    }
    if not run["reproduced"]:
        _facts(screen, {**facts, "unexplained": run["problem"]})
        return
    waived = f"; {run['grounds']['waiver']}" if run["grounds"]["waived"] else ""
    _facts(screen, {**facts, "because": f"{run['grounds']['because']}{waived}"})
    for step in run["turn"]:
        _show_turn(screen, step)
    for step in run["walk"]:
        _show_step(screen, step)
    screen.print()
    screen.print(output.table(ENGINES, map(_engine, run["engines"])))


def _show_turn(screen: Console, turn: Mapping[str, Any]) -> None:
    _facts(screen, {"turn": f"{turn['chosen']}, drawn among projects with a job to be granted"})
    screen.print(output.table(PROJECTS, _members(turn)))


def _show_step(screen: Console, step: Mapping[str, Any]) -> None:
    skipped = "".join(
        f", {display.class_words(each['class'])} skipped ({display.FOUND[each['found']]})" for each in step["skipped"]
    )
    which = f", {display.class_words(step['class'])}" if step["class"] else ""
    head = f"{step['pool']} ({step['select']}{skipped}{which}) → {step['chosen']}, {display.TURNS[step['turn']]}"
    _facts(screen, {"pool": head})
    if step["turn"] != "only":
        screen.print(output.table(MEMBERS, _members(step)))


def _members(step: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for each in step["members"]:
        mark = "chosen" if each["member"] == step["chosen"] else ""
        before, after = f"{each['credit_before']:+.3f}", f"{each['credit_after']:+.3f}"
        yield each["member"], f"{each['share']:.3f}", before, after, mark


def _engine(each: Mapping[str, Any]) -> tuple[object, ...]:
    notes = [note for note in (display.factors(each["factors"]), "demoted" if each["demoted"] else "") if note]
    told = f"{each['detail']} ({', '.join(notes)})" if notes else each["detail"]
    return each["engine"], each["tier"], display.verdict(each), f"{each['weight']:.3g}", told


def _facts(screen: Console, facts: Mapping[str, object]) -> None:
    screen.print(output.facts(facts.items(), LABELS))
