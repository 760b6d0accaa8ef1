"""Tracing: one trace for each job, from its enqueueing through every grant to every run, by OpenTelemetry.

Spans and who begins them:
- `vibey.enqueue`, by the producer; a child of the caller's own span, if there is one. Its context is stored with the
  job, as the W3C's `traceparent`.
- `vibey.route`, by the router, one for each run granted; a child of the job's. Its context is stored with the run, in
  the transaction that grants it, and the span is told only once that has been committed.
- `vibey.run`, by the worker that carries the run out; a child of the grant's. Its context goes to the engine's
  processes as `TRACEPARENT`, so that a client that traces can go on with it.

So a context crosses processes through rows only, and survives whatever becomes of messages: a grant that is sent again,
a run that follows a lost one, a worker that starts tomorrow. Where a process does not trace, what was stored goes on
unchanged to the next one that does.

Off unless the standard environment asks (`OTEL_TRACES_EXPORTER`, or an endpoint in `OTEL_EXPORTER_OTLP_ENDPOINT` or
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`), or the program around has a tracer provider of its own, which is then used. Off,
nothing of it is imported here and nothing is made. Spans are exported by a thread of each process: a collector that is
away loses spans, not jobs.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from vibey import __version__, otel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
VARIABLE = "TRACEPARENT"
FAREWELL_SECONDS = 2.0
Attributes = dict[str, "str | int | float | bool | None"]


class Span:
    """A span under way, or, where nothing is traced, only the context that goes on; ends when its `with` does."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Any, traceparent: str | None) -> None:  # noqa: ANN401  OpenTelemetry's, which may be absent
        """Go on with this span; None for none."""
        self._span = span
        self.traceparent = traceparent

    def note(self, attributes: Attributes) -> None:
        """Add what has become known; a None is left out."""
        if self._span is not None:
            self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def fail(self, words: str) -> None:
        """Mark it as failed, and say why."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, words))

    def end(self) -> None:
        """End it now; one that is never ended is never told."""
        if self._span is not None:
            self._span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            # its words may repeat what it was given, such as a job's payload
            self.fail(type(error).__name__)
        self.end()


def is_on() -> bool:
    """Whether this process traces."""
    return _tracer() is not None


def begin(
    name: str,
    kind: str,
    parent: str | None,
    attributes: Attributes,
    *,
    began_ns: int | None = None,
    joins: bool = False,
) -> Span:
    """Begin a span under the stored context `parent`; without one it begins a trace of its own.

    `kind` is the name of one of OpenTelemetry's. `joins`: without a parent, be a child of the span that is current.
    `began_ns` is nanoseconds since the epoch, now by default.
    """
    tracer = _tracer()
    if tracer is None:
        return Span(None, parent)
    from opentelemetry.trace import SpanKind

    given = {key: value for key, value in attributes.items() if value is not None}
    context = None if joins and parent is None else _context(parent)
    span = tracer.start_span(name, context, SpanKind[kind.upper()], given, start_time=began_ns)
    return Span(span, _written(span))


def taken(text: object) -> str | None:
    """A `traceparent` that came from outside, if it is one."""
    return text if isinstance(text, str) and TRACEPARENT.fullmatch(text) else None


def trace_of(traceparent: str | None) -> str | None:
    """The id of the trace that a stored context is of, as backends show it."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return None if found is None else found[1]


def use(provider: Any) -> None:  # noqa: ANN401  OpenTelemetry's, which may be absent
    """Trace by this tracer provider in this process, whatever the environment says; None: not at all."""
    _providers[os.getpid()] = provider


def close() -> None:
    """Send what this process has told so far, and tell no more; what a collector does not take soon is lost."""
    provider = _providers.get(os.getpid())
    if provider is not None:
        use(None)
        farewell = threading.Thread(target=provider.shutdown, name="vibey-traces", daemon=True)
        farewell.start()
        farewell.join(FAREWELL_SECONDS)


# Made by each process for itself: the thread that exports does not survive a fork.
_providers: dict[int, Any] = {}


def _tracer() -> Any:  # noqa: ANN401  OpenTelemetry's, which may be absent
    """This process's tracer, or None. A provider of the program around, which may come late, goes first."""
    surrounding = sys.modules.get("opentelemetry.trace")
    if surrounding is not None:
        provider = surrounding.get_tracer_provider()
        if not isinstance(provider, surrounding.ProxyTracerProvider | surrounding.NoOpTracerProvider):
            return provider.get_tracer("vibey", __version__)
    pid = os.getpid()
    if pid not in _providers:
        _providers[pid] = _made(os.environ)
    own = _providers[pid]
    return None if own is None else own.get_tracer("vibey", __version__)


def _made(environ: Mapping[str, str]) -> Any:  # noqa: ANN401  OpenTelemetry's, which may be absent
    found = otel.exporters(environ, otel.TRACES)
    if not found:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # its own farewell would keep a command waiting for a collector that is away
    provider = TracerProvider(resource=otel.resource(environ), shutdown_on_exit=False)
    atexit.register(close)
    for exporter in found:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _context(traceparent: str | None) -> Any:  # noqa: ANN401  OpenTelemetry's, which may be absent
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    found = TRACEPARENT.fullmatch(traceparent or "")
    if found is None:
        return Context()
    trace, span, flags = (int(part, 16) for part in found.groups())
    remote = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))
    return set_span_in_context(NonRecordingSpan(remote), Context())


def _written(span: Any) -> str:  # noqa: ANN401  OpenTelemetry's, which may be absent
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"
