"""A collector of our own on loopback: takes spans and metrics by OTLP over HTTP, as the real exporters send them."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from typing_extensions import override

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class Told:
    """A span as it arrived; ids are hexadecimal, `parent` is empty for a root."""

    name: str
    trace: str
    span: str
    parent: str
    kind: int
    failed: bool
    words: str
    began_ns: int
    ended_ns: int
    service: str
    attributes: dict[str, Any]


class Collector:
    """The server; `spans` are those that have arrived so far, by name the ones asked for.

    `metrics` holds, of the last push of metrics, each point by its name and attributes.
    """

    def __init__(self) -> None:
        """Listen on a free port of loopback."""
        self.metrics: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        self._spans: list[Told] = []
        self._guard = threading.Lock()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/metrics":
                    collector.take_metrics(body)
                else:
                    collector.take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            @override
            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process send its spans here, without much delay."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def spans(self, name: str | None = None) -> list[Told]:
        """The spans that have arrived, in the order in which they began."""
        with self._guard:
            found = [each for each in self._spans if name is None or each.name == name]
        return sorted(found, key=lambda each: each.began_ns)

    def take(self, body: bytes) -> None:
        """Take in one request."""
        request = ExportTraceServiceRequest.FromString(body)
        found = []
        for resource in request.resource_spans:
            service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
            found += [_told(span, service) for scope in resource.scope_spans for span in scope.spans]
        with self._guard:
            self._spans += found

    def take_metrics(self, body: bytes) -> None:
        """Take in one push of metrics."""
        found = {}
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    labels = sorted((each.key, each.value.string_value) for each in point.attributes)
                    found[metric.name, tuple(labels)] = point
        self.metrics = found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _told(span: Any, service: str) -> Told:
    return Told(
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        words=span.status.message,
        began_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        service=service,
        attributes={each.key: _value(each.value) for each in span.attributes},
    )


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
