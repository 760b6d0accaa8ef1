"""Logs: what a run printed, from its file when it ran on this machine, else from the end kept in the database.

The output of a coding client is events for programs; `transcript` makes of it what people read.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.errors import Refused, UnknownName
from vibey.engines import output
from vibey.engines.transcripts import entries
from vibey.engines.transcripts.formats import FORMATS
from vibey.engines.transcripts.reader import EntryReader
from vibey.engines.transcripts.rows import Row, rows_of
from vibey.services.absence import absent
from vibey.services.outputs import output_of
from vibey.store import views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from decimal import Decimal
    from pathlib import Path

    from vibey.services.installation import Installation
    from vibey.store.database import Connection

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RunOutput:
    """A run and where its output is: `path` on this machine, else `stored`, the end of it as last reported."""

    job_id: int
    run_id: int
    engine: str
    state: str
    host: str | None
    ended: bool
    path: Path | None
    stored: str | None
    kind: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: Decimal | None = None

    @property
    def source(self) -> str:
        """Where the text comes from: `file`, `stored` or `none`."""
        if self.path is not None and self.path.exists():
            return "file"
        return "none" if self.stored is None else "stored"

    @property
    def has_transcript(self) -> bool:
        """Whether its engine's output can be turned into what people read."""
        return self.kind in FORMATS

    def pieces(self) -> Iterator[bytes]:
        """What there is of the output, read as it is taken."""
        if self.path is not None and self.path.exists():
            yield from (piece for _, piece in output.placed_pieces(self.path, 0))
        else:
            yield (self.stored or "").encode("utf-8", "replace")

    def used(self) -> Iterator[Row]:
        """Tokens and cost of a run that has ended, as its row says; nothing while it is at work."""
        if self.ended:
            cost = None if self.cost_usd is None else float(self.cost_usd)
            for entry in entries.usage(self.tokens_in, self.tokens_out, cost):
                yield from rows_of(entry)

    def text(self, lines: int | None = None) -> str:
        """What there is of the output, or its last lines."""
        if self.path is not None and self.path.exists():
            return output.read_text(self.path) if lines is None else output.read_tail(self.path, lines)
        kept = (self.stored or "").splitlines(keepends=True)
        return "".join(kept if lines is None else kept[max(0, len(kept) - lines) :])


def find(installation: Installation, job_id: int, run_id: int | None = None) -> RunOutput | None:
    """The output of a job's run, the newest if none is named; None while the job has had no run.

    UnknownName when there is no such job, or the job has no such run.
    """

    def read(connection: Connection) -> RunOutput | None:
        row = views.OUTPUT.first(connection, job=job_id, run=run_id)
        if row is None:
            known = tuple(str(run.id) for run in views.RUNS.all(connection, job=job_id))
            if views.JOB.first(connection, id=job_id) is None:
                raise absent(connection, job_id)
            if run_id is not None:
                raise UnknownName(f"run of job {job_id}:", run_id, known)
            return None
        here = row.host is not None and row.host == socket.gethostname()
        path = output_of(installation, row.id) if here else None
        return RunOutput(
            job_id,
            row.id,
            row.engine,
            row.state,
            row.host,
            row.ended_at is not None,
            path,
            row.output_tail,
            row.kind,
            row.tokens_in,
            row.tokens_out,
            row.cost_usd,
        )

    return installation.database.run(read)


def no_run(installation: Installation, job_id: int) -> str:
    """What is to be said in place of the output of a job that has had no run."""
    if _job_has_ended(installation, job_id):
        return f"job {job_id} ended without a run, so it has no output"
    return f"job {job_id} has had no run yet"


def transcript(found: RunOutput, pieces: Iterable[bytes], ended: Callable[[], RunOutput | None]) -> Iterator[list[Row]]:
    """The rows of an output that comes in pieces, as they are completed.

    Tokens and cost come last: as the client told them, else as the run's row has them; `ended` finds it once more.
    """
    reader = EntryReader(found.kind)
    for piece in pieces:
        yield [row for entry in reader.feed(piece) for row in rows_of(entry)]
    last = [row for entry in reader.rest() for row in rows_of(entry)]
    if not reader.told_usage:
        last += (ended() or found).used()
    yield last


def follow(
    installation: Installation, job_id: int, run_id: int | None, pause: Callable[[float], object]
) -> tuple[RunOutput, Iterator[str]]:
    """A run and its output from its beginning until the run has ended; waits for the job's first run to start.

    Refused when the run is at work on another machine.
    """
    found = _started(installation, job_id, run_id, pause)
    if found.path is None:
        if not found.ended:
            raise Refused(f"run {found.run_id} is at work on {found.host}", "follow it there")
        return found, iter((found.text(),))

    def ended(seconds: float) -> bool:
        pause(seconds)
        return _has_ended(installation, found.run_id)

    return found, output.follow(found.path, ended)


def tail(path: Path, most: int) -> tuple[bytes, int]:
    """The end of a run's output file, at most so many bytes, and the place in the whole output that follows it."""
    kept, reached = b"", 0
    for offset, piece in output.placed_pieces(path, 0):
        kept, reached = (kept + piece)[-most:], offset
    return kept, reached


def since(path: Path, place: int, most: int) -> tuple[bytes, int]:
    """What a run's output file holds from a place on, about so many bytes at once, and the place that follows it."""
    kept, reached = b"", place
    for offset, piece in output.placed_pieces(path, place):
        kept, reached = kept + piece, offset
        if len(kept) >= most:
            break
    return kept, reached


def _started(
    installation: Installation, job_id: int, run_id: int | None, pause: Callable[[float], object]
) -> RunOutput:
    while True:
        found = find(installation, job_id, run_id)
        if found is not None and (found.host is not None or found.ended):
            return found
        if found is None and _job_has_ended(installation, job_id):
            raise Refused(f"job {job_id} ended without a run", f"see: vibey job {job_id}")
        pause(POLL_SECONDS)


def _has_ended(installation: Installation, run_id: int) -> bool:
    return (
        installation.database.statement(lambda connection: views.RUN_ENDED.scalar(connection, run=run_id)) is not None
    )


def _job_has_ended(installation: Installation, job_id: int) -> bool:
    row = installation.database.statement(lambda connection: views.JOB.first(connection, id=job_id))
    return row is None or row.ended_at is not None
