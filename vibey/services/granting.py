"""Granting: decide the jobs a pass has locked, and write what was assigned, a part of them at a time.

While the database writes one part in a thread of its own, the next is decided: to the router, what follows from a
decision is known before it is written. Each part is kept as a pass of its own, with the world it was decided on, so it
is replayed like any other. All parts are one transaction: when one cannot be written, none is.

The connection is used by one thread at a time: by the writing one from the first part on, until all parts are written.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from vibey.domain.decide import Request
from vibey.domain.requirement import conversation
from vibey.services import grants, turns
from vibey.services.interpreter import short_turns
from vibey.services.record import Record
from vibey.store import engines, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vibey.domain.decide import Assign, World
    from vibey.domain.requirement import Requirement
    from vibey.services.installation import Installation
    from vibey.services.outlook import Outlook
    from vibey.services.record import Waits
    from vibey.store.database import Connection
    from vibey.store.jobs import Head
    from vibey.store.runs import Granted, Grants
    from vibey.store.statement import Row
    from vibey.tracing import Span

    Writing = Future[Sequence[Row[Any]]]

# So many assignments are written at once; a pass that can make no more needs no second thread.
PART = 500


@dataclass(frozen=True, slots=True)
class Made:
    """What was granted, the spans that tell of it, and the outlook it leaves."""

    granted: tuple[Granted, ...]
    spans: tuple[Span, ...]
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class _Part:
    """Assignments that are written together, their spans by job, and the writing of them."""

    assigned: Sequence[Assign]
    spans: Mapping[int, Span]
    writing: Writing


@dataclass(slots=True)
class _Read:
    """The runs that writing made, in order, with their spans; and of which account some are the probe."""

    granted: list[Granted] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    probes: dict[int, str] = field(default_factory=dict)

    def add(self, part: _Part) -> None:
        """Add a part's, once it is written."""
        by_job = {decision.request.job_id: decision for decision in part.assigned}
        for row in part.writing.result():
            decision = by_job[row.job_id]
            self.granted.append(grants.granted(row, decision))
            if decision.is_probe:
                self.probes[row.id] = decision.engine.account
            if span := part.spans.get(row.job_id):
                span.note({"vibey.run_id": row.id})
        self.spans += part.spans.values()


def grant(
    connection: Connection,
    installation: Installation,
    outlook: Outlook,
    chosen: Sequence[tuple[Head, Requirement]],
    most: int,
    waits: Waits,
    began_ns: int,
) -> Made:
    """Decide the chosen jobs, which are locked, and write what was assigned; if any was, also why groups wait.

    At most `most` are assigned.
    """
    heads = [head for head, _ in chosen]
    parents = {head.job_id: head.traceparent for head in heads if head.traceparent}
    outlook = outlook.recalling(connection, {_session(*each) for each in chosen})
    requests = (_request(*each) for each in chosen)
    lease_ms, session_s = installation.timing.lease_ms, installation.settings.engines.session_ttl_seconds
    write = partial(_write, connection, lease_ms=lease_ms, session_s=session_s, at=outlook.at)
    parts: deque[_Part] = deque()
    read = _Read()
    threaded = min(len(heads), outlook.free_slots) > PART
    with _writing(threaded=threaded) as writer:
        for assigned, world in _parts(islice(turns.assigned(outlook, requests, heads), most)):
            spans = grants.spans(assigned, parents, began_ns)
            rows = grants.written(outlook, assigned, world, Record(outlook.world, waits), spans)
            writing = writer.submit(write, rows, parts[-1].writing if parts else None)
            parts.append(_Part(assigned, spans, writing))
            outlook, waits = replace(outlook, world=world), ()
        while parts:
            # What was read is let go while the next is being written: that takes its time, too.
            read.add(parts.popleft())
    for run, account in read.probes.items():
        engines.SET_PROBE.run(connection, account=account, run=run)
    return Made(tuple(read.granted), tuple(read.spans), outlook)


def _session(head: Head, requirement: Requirement) -> str | None:
    return conversation(requirement.project, head.session)


def _request(head: Head, requirement: Requirement) -> Request:
    session = _session(head, requirement)
    return Request(head.job_id, head.attempt + 1, grants.warmed(requirement, head), head.waited_ms, session)


def _parts(assigned: Iterator[tuple[Assign, World]]) -> Iterator[tuple[list[Assign], World]]:
    """The assignments by parts, each with the world it leaves."""
    part: list[Assign] = []
    for decision, world in assigned:
        part.append(decision)
        if len(part) == PART:
            yield part, world
            part = []
    if part:
        yield part, world


@contextmanager
def _writing(*, threaded: bool) -> Iterator[Executor]:
    """The writer for as long as parts need it; left early, by an error or an interrupt, it writes none that waits.

    The transaction is undone next. A part written after that would be committed by itself, without its locks.
    """
    writer = ThreadPoolExecutor(1) if threaded else _Here()
    with short_turns() if threaded else nullcontext():
        try:
            # A thread that an interrupt finds being started is not waited for; so it starts with nothing to write.
            writer.submit(int)
            yield writer
        except BaseException:
            writer.shutdown(cancel_futures=True)
            raise
        writer.shutdown()


def _write(connection: Connection, rows: Grants, before: Writing | None, **how: Any) -> Sequence[Row[Any]]:  # noqa: ANN401
    """Write one part, unless the one before it failed, and the transaction with it."""
    if before is not None:
        before.result()
    return runs.grant(connection, rows, **how)


class _Here(Executor):
    """Runs what it is given at once, in this very thread."""

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done
