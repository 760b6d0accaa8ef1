"""Job references: a job's number, or the id of the Celery task whose call it carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from typing_extensions import override

if TYPE_CHECKING:
    from vibey.services.installation import Installation

SHORTEST_TASK = 8
# Longer numbers are nobody's, and Python refuses to read those of thousands of digits.
LONGEST_NUMBER = 100


class JobRef(click.ParamType[str | int]):
    """A job's number as a whole number, or a task's id as text."""

    name = "job"

    @override
    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        """The number or the id; fails on what can be neither."""
        if isinstance(value, int):
            return value
        if value.removeprefix("-").isdecimal() and len(value) <= LONGEST_NUMBER:
            return int(value)
        if not value.isprintable() or ("-" not in value and len(value) < SHORTEST_TASK):
            self.fail(f"{value!r} is neither a job's number nor a task's id", param, ctx)
        return value


JOB = JobRef()


def number_of(installation: Installation, ref: str | int) -> int:
    """The job's number; of a task's jobs, one for each time it was sent or retried, the newest. UnknownName if none."""
    from vibey.domain.errors import UnknownName
    from vibey.services.endings import jobs_of

    if isinstance(ref, int):
        return ref
    found = jobs_of(installation, ref)
    if not found:
        raise UnknownName("task", ref, None)
    return found[-1].job_id
