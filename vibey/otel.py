"""OpenTelemetry as the standard environment asks for it: which exporters of which signal, and what they say we are.

Its packages are an extra; nothing of them is imported here before the environment has asked.
"""

from __future__ import annotations

import logging
from importlib import metadata
from typing import TYPE_CHECKING, Any

from vibey import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("vibey.otel")

TRACES, METRICS = "traces", "metrics"


def wanted(environ: Mapping[str, str], signal: str) -> tuple[str, ...]:
    """The names of the exporters the environment asks for, of `traces` or `metrics`; none when it does not ask."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip()
    if not named:
        endpoints = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        return ("otlp",) if any(environ.get(name) for name in endpoints) else ()
    return tuple(name for word in named.split(",") if (name := word.strip()) and name != "none")


def exporters(environ: Mapping[str, str], signal: str) -> list[Any]:
    """The exporters of a signal; none, with a warning, when something it takes is not installed."""
    try:
        return [_exporter(name, environ, signal) for name in wanted(environ, signal)]
    except (ImportError, LookupError) as error:
        log.warning("the environment asks for %s, but: %s; run: pip install 'vibey[otel]'", signal, error)
        return []


def resource(environ: Mapping[str, str]) -> Any:  # noqa: ANN401  OpenTelemetry's, which may be absent
    """What we say we are: service `vibey`, unless the environment names another."""
    from opentelemetry.sdk.resources import Resource

    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({"service.version": __version__} | ({} if named else {"service.name": "vibey"}))


def _exporter(name: str, environ: Mapping[str, str], signal: str) -> Any:  # noqa: ANN401  OpenTelemetry's
    """The exporter of this name; LookupError when none is installed."""
    if name == "otlp":
        own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        protocol = own or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        name = "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"
    found = metadata.entry_points(group=f"opentelemetry_{signal}_exporter", name=name)
    if not found:
        raise LookupError(f"no exporter {name!r} of {signal} is installed")
    return next(iter(found)).load()()
