"""Spans and transactions: what is told is what was committed, under the caller's own span."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy.exc import DBAPIError

from tests.support.databases import query
from tests.support.installation import noop
from vibey import tracing
from vibey.domain.errors import InvalidInput
from vibey.services.enqueue import Order, place
from vibey.services.route import run_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.support.installation import Bench

OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def told() -> Iterator[InMemorySpanExporter]:
    """What this process tells, and a provider for callers' own spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield exporter
    tracing.use(None)


def _named(told: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in told.get_finished_spans() if span.name == name]


def test_a_grant_is_told_once_it_is_committed(open_bench: Callable[..., Bench], told: InMemorySpanExporter) -> None:
    """A pass that is undone tells nothing; the one that grants tells each of its runs."""
    bench = open_bench(engine={"near": noop()}, engines={"slots": {"near": 5}})
    bench.enqueue(3)
    query(bench.url, "alter table credits rename to away")
    with pytest.raises(DBAPIError):
        run_pass(bench.installation, "main")
    assert _named(told, "vibey.route") == []
    query(bench.url, "alter table away rename to credits")
    run_pass(bench.installation, "main")
    spans = _named(told, "vibey.route")
    stored = bench.rows("select id, traceparent from runs order by id")
    assert [(span.attributes or {})["vibey.run_id"] for span in spans] == [run for run, _ in stored]
    contexts = [span.context for span in spans]
    assert [f"00-{each.trace_id:032x}-{each.span_id:016x}-01" for each in contexts if each] == [
        row[1] for row in stored
    ]
    assert len({row[1].split("-")[1] for row in stored}) == 3


def test_a_job_belongs_to_the_callers_span(open_bench: Callable[..., Bench], told: InMemorySpanExporter) -> None:
    """Enqueued within a span, a job is its child; one with a context of its own belongs to that."""
    bench = open_bench(engine={"near": noop()})
    own = TracerProvider(shutdown_on_exit=False).get_tracer("caller")
    with own.start_as_current_span("work") as work:
        bench.enqueue(1)
        bench.enqueue(1, traceparent=OTHER)
    inside, apart = _named(told, "vibey.enqueue")
    assert inside.parent is not None
    assert apart.parent is not None
    assert inside.parent.span_id == work.get_span_context().span_id
    assert f"{apart.parent.trace_id:032x}" in OTHER


def test_a_duplicate_keeps_the_context_of_the_first(
    open_bench: Callable[..., Bench], told: InMemorySpanExporter
) -> None:
    """A second order with one key tells that it made nothing, and changes nothing."""
    bench = open_bench(engine={"near": noop()})
    bench.enqueue(1, idempotency_key="k")
    bench.enqueue(1, idempotency_key="k")
    first, second = _named(told, "vibey.enqueue")
    assert [(span.attributes or {})["vibey.created"] for span in (first, second)] == [True, False]
    assert first.context is not None
    assert f"-{first.context.trace_id:032x}-{first.context.span_id:016x}-" in bench.value(
        "select traceparent from jobs"
    )


@pytest.mark.parametrize(
    "text", ["", "x", f"00-{0:032x}-{1:016x}-01", f"00-{1:032x}-{0:016x}-01", f"ff-{1:032x}-{1:016x}-01"]
)
def test_a_context_that_is_none_is_refused(open_bench: Callable[..., Bench], text: str) -> None:
    """The error names the field; nothing is enqueued."""
    bench = open_bench(engine={"near": noop()})
    with pytest.raises(InvalidInput, match="traceparent"):
        place(bench.installation, [Order(traceparent=text)])
    assert bench.value("select count(*) from jobs") == 0


def test_a_span_that_fails_repeats_nothing_of_the_job(
    open_bench: Callable[..., Bench], told: InMemorySpanExporter
) -> None:
    """An error of the database holds the statement with its values; the span names its kind only."""
    bench = open_bench(engine={"near": noop()})
    query(bench.url, "alter table ledger rename to away")
    with pytest.raises(DBAPIError, match="hush"):
        bench.enqueue(1, payload={"prompt": "hush"})
    (span,) = _named(told, "vibey.enqueue")
    assert not span.status.is_ok
    assert span.status.description == "ProgrammingError"
    assert "hush" not in span.to_json()
