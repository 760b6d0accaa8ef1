"""Batch: jobs from a JSON-lines file, all or none, mistakes named by their line; and waiting until jobs have ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import InvalidInput, Refused, UnknownName, Unservable
from vibey.domain.settlement import JobState
from vibey.domain.text import NotText, decode_text
from vibey.services.enqueue import Order, Placed, orders_of, place_in
from vibey.store import views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from vibey.services.installation import Installation

SLICE = 5000
# A payload has at most 262,144 bytes, of which JSON may spell each in six.
LONGEST_LINE = 4_000_000
POLL_SECONDS = 0.2
SLOWEST_POLL_SECONDS = 2.0
# A poll takes at most this part of the waiting, however many jobs are waited for.
POLL_PART = 20
OPEN_STATES = (JobState.QUEUED, JobState.GRANTED, JobState.RUNNING)

Counted = dict[str, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of a file of jobs, in its order."""

    placed: tuple[Placed, ...]

    @property
    def job_ids(self) -> list[int]:
        """The jobs the lines led to, new or known."""
        return [each.job_id for each in self.placed]

    @property
    def created(self) -> int:
        """How many jobs are new."""
        return sum(each.created for each in self.placed)


def place_lines(
    installation: Installation,
    lines: Iterable[bytes],
    defaults: Mapping[str, Any],
    *,
    noted: Callable[[str, int], None],
) -> Batch:
    """Enqueue a job for each line in one transaction, then wake the router.

    `defaults` stand in for keys a line leaves out. `noted` hears of progress: `read` and a line's length in bytes, then
    `placed` and how many jobs were. InvalidInput or Refused names the first bad line; then nothing is enqueued.
    """
    numbers: list[int] = []
    orders = orders_of(_decoded(lines, numbers, noted), defaults)
    placed: list[Placed] = []
    with installation.database.begin() as connection:
        for start in range(0, len(orders), SLICE):
            part = orders[start : start + SLICE]
            try:
                placed.extend(place_in(connection, installation, part))
            except UnknownName as error:
                raise _named(error, part, numbers[start:]) from error
            except Unservable as error:
                where = f"line {numbers[start + error.number]}, nothing was enqueued: "
                raise Unservable(error.missing, error.configure, where) from error
            noted("placed", len(part))
    for pool in sorted({order.pool for order in orders}):
        installation.wake(pool)
    return Batch(tuple(placed))


def progress(installation: Installation, job_ids: Sequence[int]) -> Counted:
    """How many of these jobs are in each state."""
    rows = installation.database.statement(lambda connection: views.PROGRESS.all(connection, ids=list(job_ids)))
    return {row.state: row.n for row in rows}


def progress_until_ended(installation: Installation, job_ids: Sequence[int]) -> Iterator[tuple[Counted, float]]:
    """How many of these jobs are in each state, until all have ended, and the seconds to wait before the next look.

    The seconds are 0 once all have ended, and then the iterator ends too.
    """
    wait = POLL_SECONDS
    while True:
        began = time.monotonic()
        counted = progress(installation, job_ids)
        if not any(counted.get(state) for state in OPEN_STATES):
            yield counted, 0.0
            return
        wait = min(SLOWEST_POLL_SECONDS, wait * 1.2)
        yield counted, max(wait, (time.monotonic() - began) * POLL_PART)


def until_ended(
    installation: Installation, job_ids: Sequence[int], pause: Callable[[float], object]
) -> Iterator[Counted]:
    """How far these jobs are, again and again until all have ended; `pause(seconds)` waits between two looks."""
    for counted, seconds in progress_until_ended(installation, job_ids):
        yield counted
        if seconds:
            pause(seconds)


def _decoded(lines: Iterable[bytes], numbers: list[int], noted: Callable[[str, int], None]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        noted("read", len(line))
        if len(line) > LONGEST_LINE:
            raise InvalidInput(f"line {number}", line[:40], f"at most {LONGEST_LINE:,} bytes")
        try:
            text = decode_text(line) if number == 1 else line.decode()
        except NotText as error:
            raise InvalidInput(f"line {number}", line[:40], f"UTF-8 text ({error.reason})") from error
        except UnicodeDecodeError as error:
            raise InvalidInput(f"line {number}", line[:40], f"UTF-8 text ({error.reason})") from error
        if text.strip():
            numbers.append(number)
        yield text


def _named(error: UnknownName, orders: Sequence[Order], numbers: Sequence[int]) -> Refused:
    """The same error with the line that holds the unknown name."""
    for number, order in zip(numbers, orders, strict=False):
        names = {
            "project": (order.project,),
            "pool": (order.pool,),
            "engine": (*order.engines, *order.exclude),
            "capability": tuple(order.capabilities),
        }
        if error.name in names.get(error.kind, ()):
            known = ", ".join(error.known) or f"no {error.kind} exists yet"
            return Refused(
                f"line {number}: unknown {error.kind} {error.name!r}; nothing was enqueued", f"known: {known}"
            )
    return error
