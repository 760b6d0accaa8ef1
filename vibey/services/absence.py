"""Absence: why a job that was asked for is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.domain.errors import Removed, UnknownName
from vibey.services.wording import in_words
from vibey.store import horizon

if TYPE_CHECKING:
    from vibey.store.database import Connection


def absent(connection: Connection, job_id: int) -> UnknownName:
    """The error to raise for a job without a row: it was removed with what is older than the record, or never was."""
    reach = horizon.READ.all(connection)[0]
    before = None if reach.before is None else in_words(reach.before)
    if before is not None and job_id <= reach.job_id and horizon.TOLD.scalar(connection, job=job_id):
        return Removed(job_id, before)
    return UnknownName("job", job_id, None)
