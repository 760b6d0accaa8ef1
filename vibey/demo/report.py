"""Report: what a demo says at its end, for a person or for a program."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from vibey.demo.screen import shares_table

if TYPE_CHECKING:
    from rich.console import Console

    from vibey.demo.conduct import Finished
    from vibey.demo.folder import Folder
    from vibey.services.summary import JobLine, Summary

SHOWN = 5
READING = """\
Peak is the most slots an engine held at once. Picks counts runs, so a job tried again counts twice. Expected sums the \
shares each engine was offered: by weight, among the engines with a free slot. Rotation keeps Picks close to it."""
HYBRID = """\
Mode hybrid: local engines come first. {held} of {jobs} jobs found every local slot in use and were held. {overflowed} \
{limited}"""
STOPPED = """\
Then today's cap of {limit} paid units was spent, and whoever was left waited for a local slot."""
UNSPENT = "Today's cap of {limit} paid units was not reached."
PRIVATE = """\
{private} jobs require the capability "private", which only local engines have: these could not overflow, and waited \
without being held."""
NAMES = "The four engines are one small program under four names; nothing was paid."
KEPT = "Postgres and the Redis-compatible server still run, so that these work. Stop them with:"


def as_json(finished: Finished, folder: Folder) -> dict[str, Any]:
    """The result as one object."""
    summary = finished.summary
    return {
        "jobs": len(summary.jobs),
        "succeeded": summary.succeeded,
        "engines": [
            {
                "name": share.name,
                "picks": share.picks,
                "expected": round(share.expected, 3),
                "tier": share.tier,
                "slots": share.slots,
                "peak": share.peak,
                "succeeded": share.succeeded,
            }
            for share in summary.shares
        ],
        "seconds": round(finished.seconds, 3),
        "work_seconds": round(finished.work_seconds, 3),
        "runs": sum(job.runs for job in summary.jobs),
        "project": finished.project,
        "holds": summary.holds,
        "overflows": summary.overflows,
        "cap": {key: finished.cap[key] for key in ("limit", "used", "remaining", "utc_day")},
        "audit": finished.audit.to_json(),
        "waits": {name: _rounded(summary.waited(percent)) for name, percent in WAITS.items()},
        "directory": str(folder.path),
        "config": str(folder.config),
    }


WAITS = {"p50": 50, "p95": 95, "max": 100}


def print_report(console: Console, finished: Finished, folder: Folder, *, kept: bool) -> None:
    """Print the result for a person, and, when the data was kept, how to look around in it."""
    summary = finished.summary
    console.print(Text(f"\n{_headline(finished)}", style="bold green" if finished.is_good else "bold red"))
    console.print(Text())
    console.print(shares_table(summary))
    console.print(Text(f"\n{_waits(summary)}"))
    _print_jobs(console, "Tried again:", [job for job in summary.jobs if job.runs > 1])
    _print_jobs(console, "Not succeeded:", [job for job in summary.jobs if job.state != "succeeded"])
    if not finished.is_good:
        console.print(Text(f"What the workers said is in {_short(folder.logs)}"), soft_wrap=True)
    console.print(Text(f"\n{_story(finished)}\n\n{READING}\n\n{_audited(finished)}"))
    if kept:
        _print_commands(console, finished, folder)


def _story(finished: Finished) -> str:
    """What held jobs back, what let some of them go, and what stopped the others."""
    summary, limit = finished.summary, finished.cap["limit"]
    count = summary.overflows
    overflowed = (
        f"After {finished.patience_seconds} s of that {count} overflowed to paid engines."
        if count
        else "None had to overflow."
    )
    limited = (UNSPENT if finished.cap["remaining"] else STOPPED).format(limit=limit)
    story = HYBRID.format(held=summary.held_jobs, jobs=len(summary.jobs), overflowed=overflowed, limited=limited)
    private = sum("private" in job.capabilities for job in summary.jobs)
    return " ".join((story, *([PRIVATE.format(private=private)] if private else []), NAMES))


def _audited(finished: Finished) -> str:
    """What the audit found, in a line, or a line for each violation."""
    checked = finished.audit.checked
    if finished.audit.ok:
        looked = f"{checked['runs']} runs, {checked['decisions']} decisions and {checked['events']} events"
        return f"The audit of {looked} found every invariant kept."
    return "\n".join(f"AUDIT {each.invariant}: {each.detail}" for each in finished.audit.violations)


def _headline(finished: Finished) -> str:
    summary = finished.summary
    runs = sum(job.runs for job in summary.jobs)
    return (
        f"{summary.succeeded} of {len(summary.jobs)} jobs succeeded: {runs} runs on {len(summary.shares)} engines in "
        f"{finished.work_seconds:.1f} s ({finished.seconds:.1f} s with starting and stopping)"
    )


def _waits(summary: Summary) -> str:
    waits = ", ".join(f"{name} {_seconds(summary.waited(percent))}" for name, percent in WAITS.items())
    return f"Waits from enqueueing to start: {waits}"


def _print_jobs(console: Console, heading: str, jobs: list[JobLine]) -> None:
    if not jobs:
        return
    console.print(Text(heading))
    for job in jobs[:SHOWN]:
        what = "; ".join(job.stumbles) or job.reason or job.state
        console.print(Text(f"  job {job.job_id}: {what}"), overflow="ellipsis", no_wrap=True)
    if len(jobs) > SHOWN:
        console.print(Text(f"  and {len(jobs) - SHOWN} more"))


def _print_commands(console: Console, finished: Finished, folder: Folder) -> None:
    summary = finished.summary
    vibey = f"{_own_command()} -c {shlex.quote(_short(folder.config))}"
    several = next((job for job in summary.jobs if job.runs > 1), summary.jobs[0])
    overflowed = next((job for job in summary.jobs if job.overflows), several)
    commands = (
        f"{vibey} status -p {finished.project}",
        f"{vibey} job {several.job_id}",
        f"{vibey} logs {several.job_id}",
        f"{vibey} ledger --job {overflowed.job_id}",
        f"{vibey} audit",
        f"git -C {shlex.quote(_short(folder.repository))} show --stat vibey/{several.job_id}",
    )
    console.print(Text("\nLook around:"))
    for command in commands:
        console.print(Text(f"  {command}"), soft_wrap=True)
    console.print(Text(f"\n{KEPT}"))
    console.print(Text(f"  {vibey} down"), soft_wrap=True)


def _own_command() -> str:
    """How the reader's shell finds this program: by its name where that is on the PATH, else by its file."""
    program = Path(sys.executable).parent / "vibey"
    on_path = shutil.which("vibey")
    if (on_path is not None and Path(on_path).samefile(program)) or not program.exists():
        return "vibey"
    return shlex.quote(_short(program))


def _short(path: Path) -> str:
    """The path as a person in this folder would write it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} s"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
