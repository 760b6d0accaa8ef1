"""Granting: decide the jobs a pass has locked, and write what was assigned, a part of them at a time.

While the database writes one part in a thread of its own, the next is decided: to the router, what follows from a
decision is known before it is written. Each part is kept as a pass of its own, with the world it was decided on, so it
is replayed like any other. All parts are one transaction: when one cannot be written, none is.

The connection is used by one thread at a time: by the writing one from the first part on, until all parts are written.
"""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from vibey.domain.decide import Request
from vibey.domain.requirement import conversation
from vibey.services import grants, turns
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

# So many assignments are written at once; a pass over no more jobs needs no second thread. Of more, the first part is
# small: until it is decided the database has nothing to do.
PART = 500
FIRST = 100
# After so many decisions the writing thread may have the interpreter, should it wait for it.
COURTESY = 64


@dataclass(frozen=True, slots=True)
class Made:
    """What was granted, the spans that tell of it, and the outlook it leaves."""

    granted: tuple[Granted, ...]
    spans: tuple[Span, ...]
    outlook: Outlook


def grant(
    connection: Connection,
    installation: Installation,
    outlook: Outlook,
    chosen: Sequence[tuple[Head, Requirement]],
    waits: Waits,
    began_ns: int,
) -> Made:
    """Decide the chosen jobs, which are locked, and write what was assigned; if any was, also why groups wait."""
    heads = [head for head, _ in chosen]
    requests = [_request(head, requirement) for head, requirement in chosen]
    parents = {head.job_id: head.traceparent for head in heads if head.traceparent}
    outlook = outlook.recalling(connection, requests)
    lease_ms, session_s = installation.timing.lease_ms, installation.settings.engines.session_ttl_seconds
    write = partial(_write, connection, lease_ms=lease_ms, session_s=session_s, day=outlook.day)
    parts: list[tuple[list[Assign], dict[int, Span], Writing]] = []
    threaded = len(heads) > PART
    with _writing(ThreadPoolExecutor(1) if threaded else _Here()) as writer:
        for assigned, world in _parts(turns.assigned(outlook, requests, heads), FIRST if threaded else PART):
            spans = grants.spans(assigned, parents, began_ns)
            rows = grants.written(outlook, assigned, world, Record(outlook.world, waits), spans)
            parts.append((assigned, spans, writer.submit(write, rows, parts[-1][-1] if parts else None)))
            outlook, waits = replace(outlook, world=world), ()
        made = [pair for part in parts for pair in _granted(*part)]
    for run, decision in made:
        if decision.is_probe:
            engines.SET_PROBE.run(connection, account=decision.engine.account, run=run.run_id)
    told = [span for _, spans, _ in parts for span in spans.values()]
    return Made(tuple([run for run, _ in made]), tuple(told), outlook)


def _request(head: Head, requirement: Requirement) -> Request:
    session = conversation(requirement.project, head.session)
    return Request(head.job_id, head.attempt + 1, grants.warmed(requirement, head), head.waited_ms, session)


def _parts(assigned: Iterator[tuple[Assign, World]], size: int) -> Iterator[tuple[list[Assign], World]]:
    """The assignments by parts, the first of this size, each with the world it leaves."""
    part: list[Assign] = []
    for decision, world in assigned:
        part.append(decision)
        if len(part) % COURTESY == 0:
            time.sleep(0)
        if len(part) == size:
            yield part, world
            part, size = [], PART
    if part:
        yield part, world


@contextmanager
def _writing(writer: Executor) -> Iterator[Executor]:
    """The writer for as long as parts need it; left early, by an error or an interrupt, it writes none that waits.

    The transaction is undone next. A part written after that would be committed by itself, without its locks.
    """
    try:
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


def _granted(
    assigned: Sequence[Assign], spans: Mapping[int, Span], writing: Writing
) -> Iterator[tuple[Granted, Assign]]:
    """The runs of a part once it is written, each with the decision that made it."""
    by_job = {decision.request.job_id: decision for decision in assigned}
    for row in writing.result():
        decision = by_job[row.job_id]
        if span := spans.get(decision.request.job_id):
            span.note({"vibey.run_id": row.id})
        yield grants.granted(row, decision), decision


class _Here(Executor):
    """Runs what it is given at once, in this very thread."""

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done
