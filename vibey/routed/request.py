"""Request: a call as Celery's tracer and backends want it, from the message that lies in the job's payload.

**Settings that travel with a call.** A result, a callback and a retry are written where the body runs, and read by
programs that share the caller's settings. The app is imported in both places, but it may read a setting from the
environment, of which a run sees only what its engine names. So a call carries those settings of the caller's app that
decide how results and further messages are written, as far as they differ from Celery's defaults, and the child applies
them before anything else of the app is used. None of them is an address or a secret, and none decides what is accepted:
a payload is written by a producer, and a producer must not be able to make a run accept pickles.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from celery.app.defaults import DEFAULTS
from kombu.serialization import loads, prepare_accept_content

if TYPE_CHECKING:
    from celery import Celery

    from vibey.domain.call import TaskCall

Request = dict[str, Any]

log = logging.getLogger("vibey.routed")

HARMLESS_SERIALIZERS = frozenset({"json", "msgpack", "yaml"})
CARRIED_SETTINGS = (
    "enable_utc",
    "result_chord_join_timeout",
    "result_compression",
    "result_expires",
    "result_extended",
    "result_serializer",
    "task_compression",
    "task_ignore_result",
    "task_serializer",
    "task_store_errors_even_if_ignored",
    "task_track_started",
    "timezone",
)


def carried_settings(app: Celery) -> dict[str, Any]:
    """The settings of the caller's app that its calls carry: those of `CARRIED_SETTINGS` that are not the defaults."""
    conf: Any = app.conf
    found = {name: conf.get(name) for name in CARRIED_SETTINGS}
    seconds = {name: value.total_seconds() for name, value in found.items() if isinstance(value, timedelta)}
    return {
        name: value
        for name, value in {**found, **seconds}.items()
        if isinstance(value, str | int | float) and value != _default(name)
    }


def apply_settings(app: Celery, call: TaskCall) -> None:
    """Let the app write results and messages as the caller's does.

    Celery reads back what it has written of a result. So the serializer of results is accepted for results, too, if it
    is one that cannot execute code; any other is left alone unless the app here accepts it.
    """
    settings = {name: value for name, value in call.settings.items() if name in CARRIED_SETTINGS}
    serializer = settings.get("result_serializer")
    conf: Any = app.conf
    accepted = conf.result_accept_content or conf.accept_content
    if serializer is not None and serializer not in accepted:
        if serializer in HARMLESS_SERIALIZERS:
            settings["result_accept_content"] = [*accepted, serializer]
        else:
            del settings["result_serializer"]
            log.warning(
                "the caller reads results by %s, which %s does not accept here; results are written by %s. Have the "
                "app set accept_content in its code, or name the variable it reads it from in the engine's env",
                serializer,
                app.main,
                app.conf.result_serializer,
            )
    app.conf.update(settings)


def _default(name: str) -> object:
    default: Any = DEFAULTS.get(name)
    return default.total_seconds() if isinstance(default, timedelta) else default


def request_of(app: Celery, call: TaskCall, *, hostname: str, again: bool = False) -> tuple[Any, Any, Request]:
    """Positional arguments, keyword arguments, and the request; `again` when an earlier run of it was lost.

    Raises as kombu does for a body whose content the app does not accept.
    """
    accept = prepare_accept_content(app.conf.accept_content)
    args, kwargs, embedded = loads(call.content(), call.content_type, call.content_encoding, accept=accept)
    request = {
        **call.headers,
        "args": args,
        "kwargs": kwargs,
        "hostname": hostname,
        "is_eager": False,
        "properties": dict(call.properties),
        "reply_to": call.properties.get("reply_to"),
        "correlation_id": call.properties.get("correlation_id"),
        "delivery_info": {"priority": call.properties.get("priority"), "redelivered": again},
        **embedded,
    }
    return args, kwargs, request
