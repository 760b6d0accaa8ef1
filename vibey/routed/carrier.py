"""Carrier: stands where Celery expects a producer, and takes a task's message to the router instead of a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kombu.exceptions import OperationalError
from kombu.serialization import dumps

from vibey.client import order
from vibey.domain.call import TaskCall, with_body
from vibey.domain.errors import Contended, ServiceUnavailable
from vibey.routed.request import carried_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery import Celery

    from vibey.client import Placed, Vibey, Wishes
    from vibey.services.enqueue import Order

EXPIRED_SECONDS = 0.001
KEPT = ("reply_to", "correlation_id", "priority")


class Carrier:
    """One call's producer. `wishes` are what the job asks for beside what Celery's options say.

    `within` is a SQLAlchemy connection or session to whose transaction the job shall belong, None for its own.
    """

    serializer: str | None = None

    def __init__(self, app: Celery, vibey: Vibey, wishes: Wishes, within: object = None) -> None:
        self._app = app
        self._vibey = vibey
        self._wishes = wishes
        self._within = within
        self.placed: Placed | None = None
        # Celery asks it which errors mean a lost connection; nothing is connected by that.
        self.connection = app.connection_for_write()

    @property
    def channel(self) -> Any:  # noqa: ANN401  kombu's channel
        """A channel of the app's broker, for a result backend that declares a queue there."""
        return self.connection.default_channel

    def revive(self, _: object) -> None:
        """Nothing to revive: each attempt to publish finds its own connection."""

    def release(self) -> None:
        """Let go of the broker, if anybody asked for it."""
        self.connection.release()

    def publish(self, body: object, *, headers: Mapping[str, Any], serializer: str, **more: Any) -> None:  # noqa: ANN401
        """Enqueue the call; OperationalError, as callers of Celery expect it, when Vibey's database does not answer."""
        if "task" not in headers:
            self._forward(body, {"headers": headers, "serializer": serializer, **more})
            return
        content_type, content_encoding, text = dumps(body, serializer=serializer)
        call = TaskCall(
            settings=carried_settings(self._app),
            id=headers["id"],
            task=headers["task"],
            headers=headers,
            properties={name: more[name] for name in KEPT if more.get(name) is not None},
            content_type=content_type,
            content_encoding=content_encoding,
            **with_body(text),
        )
        try:
            (self.placed,) = self._vibey.enqueue_many([self._order(call)], connection=self._within)
        except (ServiceUnavailable, Contended) as error:
            raise OperationalError(str(error)) from error

    def _order(self, call: TaskCall) -> Order:
        wishes: Wishes = {**self._wishes, "idempotency_key": call.key}
        if call.properties.get("priority") is not None:
            # checked with the job's other options: a whole number, and no other kind of number is made one
            wishes["priority"] = call.properties["priority"]
        due, deadline = _seconds_until(call.headers.get("eta")), _seconds_until(call.headers.get("expires"))
        if due is not None and due > 0:
            wishes["delay_seconds"] = due
        if deadline is not None:
            wishes["deadline_seconds"] = max(deadline, EXPIRED_SECONDS)
        return order(call.payload(), wishes)

    def _forward(self, body: object, message: dict[str, Any]) -> None:
        """Any other message, such as the event that tells of a task sent, goes to the app's broker."""
        with self._app.producer_pool.acquire(block=True) as producer:
            producer.publish(body, **message)


def _seconds_until(instant: str | None) -> float | None:
    """From now, by this machine's clock, which is the one that made the instant of a countdown."""
    if not instant:
        return None
    found = datetime.fromisoformat(instant)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
