"""Waiting: what a command shows while the jobs it waits for are on their way, and what it says when it is interrupted.

A terminal has one live line. Elsewhere lines go to standard error: one for each change of state, and one for any other
change when none was printed for some seconds.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from vibey.services.installation import Installation

INTERRUPTED = 130
LINE_SECONDS = 10.0


class ProgressLine:
    """The line that says how far the jobs are; one that is `quiet` shows nothing."""

    def __init__(self, *, quiet: bool) -> None:
        screen = output.console(stderr=True)
        self._quiet = quiet
        self._live = screen.status("") if screen.is_terminal and not quiet else None
        self._shown: tuple[object, str] = (None, "")
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, state: object, text: str) -> None:
        """Show the text; `state` is the part of it whose change is shown at once."""
        text = output.plain(text)
        if self._live is not None:
            self._live.update(text)
            return
        now = time.monotonic()
        due = state != self._shown[0] or (text != self._shown[1] and now - self._shown_at >= LINE_SECONDS)
        if due and not self._quiet:
            output.note(text)
            self._shown, self._shown_at = (state, text), now


def wait_for_job(installation: Installation, job_id: int, *, quiet: bool) -> dict[str, Any]:
    """The job as `vibey job` shows it, once it has ended; KeyboardInterrupt when the person does not want to wait."""
    from vibey.services import queue, views
    from vibey.services.batch import until_ended

    with ProgressLine(quiet=quiet) as line:
        for _ in until_ended(installation, [job_id], threading.Event().wait):
            if not quiet:
                job = views.job(installation, job_id)
                if job["ended_at"] is not None:
                    break
                line.show(job["state"], progress_of(job, queue.position(installation, job_id)))
    return views.job(installation, job_id)


def wait_to_end(installation: Installation, job_id: int, *, quiet: bool) -> tuple[int, dict[str, Any]]:
    """Wait for a job and say how it ended; returns the exit code of the command that waits, and the job."""
    from vibey.services import views

    try:
        job = wait_for_job(installation, job_id, quiet=quiet)
    except KeyboardInterrupt:
        say_interrupted([job_id])
        return INTERRUPTED, views.job(installation, job_id)
    succeeded = job["state"] == "succeeded"
    if not quiet:
        where = f" on {job['engine']}" if job["engine"] else ""
        why = "" if succeeded else f": {job['reason']}"
        click.echo(output.plain(f"{job['state']}{where} in attempt {job['attempt']}{why}"))
        if not succeeded:
            click.echo(f"see: vibey job {job_id}, vibey logs {job_id}")
    return (0 if succeeded else 1), job


def wait_for_jobs(installation: Installation, job_ids: Sequence[int], *, quiet: bool) -> dict[str, int]:
    """How many of the jobs ended in each state, once all have."""
    from vibey.services.batch import until_ended

    counted: dict[str, int] = {}
    if not job_ids:
        return counted
    with ProgressLine(quiet=quiet) as line:
        for counted in until_ended(installation, job_ids, threading.Event().wait):
            line.show(None, ", ".join(f"{count:,} {state}" for state, count in sorted(counted.items())))
    return counted


def progress_of(job: Mapping[str, Any], position: int | None) -> str:
    """How far a job is, in a line: its state, its place in the queue or its engine, and the reason."""
    from vibey.services.queue import POSITION_LIMIT

    about = f"job {job['job_id']}: {job['state']}"
    if job["state"] != "queued":
        where = f" on {job['engine']}" if job["engine"] else ""
        return f"{about}{where}, attempt {job['attempt']} of {job['max_attempts']}"
    if position is not None:
        place = f"{position:,}" if position <= POSITION_LIMIT else f"over {POSITION_LIMIT:,}"
        about = f"{about}, position {place} in pool {job['pool']}"
    return f"{about}: {job['reason']}"


def say_interrupted(job_ids: Sequence[int]) -> None:
    """Say that the jobs go on, and how to cancel them or to wait again."""
    if len(job_ids) == 1:
        (job_id,) = job_ids
        output.note(f"vibey: no longer waiting; job {job_id} stays as it is")
        output.note(f"  wait again: vibey job {job_id} --wait")
        output.note(f"  cancel it:  vibey cancel {job_id}")
    else:
        output.note(f"vibey: no longer waiting; the {len(job_ids):,} jobs stay as they are")
        output.note("  see how far they are: vibey jobs")
        output.note("  cancel one:           vibey cancel ID")
