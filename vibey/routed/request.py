"""Request: a call as Celery's tracer and backends want it, from the message that lies in the job's payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kombu.serialization import loads, prepare_accept_content

if TYPE_CHECKING:
    from celery import Celery

    from vibey.domain.call import TaskCall

Request = dict[str, Any]


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
