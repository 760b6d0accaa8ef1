"""Call: the call of a Celery task as a job's payload.

`{"celery_task": {"id", "task", "headers", "properties", "body", "content_type", "content_encoding"}}` is the message
Celery would have sent (its task protocol, version 2), with a body of bytes as base64 and `"binary": true`. `settings`,
where there are any, are those of the caller's app that the run's app must share (`vibey.routed.request`). A job with
such a payload runs only on an engine that has the capability `routed-tasks`, which every engine with an `app` has. One
of kind `celery` runs nothing else, and says so by the capability `routed-tasks-only`: other jobs exclude it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vibey.domain.errors import InvalidInput

CALL = "celery_task"
ROUTED_TASKS = "routed-tasks"
ROUTED_ONLY = "routed-tasks-only"
_EXPECTED = "the call of a Celery task"


@dataclass(frozen=True, slots=True)
class TaskCall:
    """One call. Its result goes by `id`; `body` are its arguments, `headers` and `properties` its message's."""

    id: str
    task: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    body: str
    content_type: str
    content_encoding: str
    binary: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells this call, and this retry or replacement of it, from every other: its idempotency key."""
        retries, nesting = (self.headers.get(name) or 0 for name in ("retries", "replaced_task_nesting"))
        return f"celery {self.id} {retries}.{nesting}"

    def content(self) -> str | bytes:
        """The body as its serializer made it."""
        return base64.b64decode(self.body) if self.binary else self.body

    def payload(self) -> dict[str, Any]:
        """The job's payload."""
        fields = asdict(self)
        if not self.settings:
            del fields["settings"]
        return {CALL: fields}


def with_body(body: str | bytes) -> dict[str, Any]:
    """The fields of a call that hold this body."""
    if isinstance(body, str):
        return {"body": body}
    return {"body": base64.b64encode(body).decode("ascii"), "binary": True}


def task_call_of(payload: object) -> TaskCall | None:
    """The call a payload is, None for any other payload; InvalidInput for one that only pretends."""
    said = payload.get(CALL) if isinstance(payload, Mapping) else None
    if said is None:
        return None
    fields = {"properties": {}, "binary": False, "settings": {}, **said} if isinstance(said, Mapping) else {}
    texts = all(
        isinstance(fields.get(name), str) for name in ("id", "task", "body", "content_type", "content_encoding")
    )
    objects = all(isinstance(fields.get(name), Mapping) for name in ("headers", "properties", "settings"))
    if (
        not texts
        or not objects
        or not isinstance(fields["binary"], bool)
        or set(fields) != set(TaskCall.__dataclass_fields__)
    ):
        raise InvalidInput(f"payload.{CALL}", said, _EXPECTED)
    return TaskCall(**fields)
