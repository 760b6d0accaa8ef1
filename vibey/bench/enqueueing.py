"""Enqueueing: a batch in one transaction, beside the same jobs one transaction each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.bench.figures import Bar, Figure, Scale, rate, ratios
from vibey.services import enqueue

if TYPE_CHECKING:
    from vibey.bench.laboratory import Laboratory
    from vibey.services.installation import Installation


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Jobs enqueued a second, validated, committed with their events, and the router woken."""
    many, few = scale.pick(20_000, 1_000), scale.pick(500, 50)
    with laboratory.site("enqueue", {"e0": 1}) as site:
        installation = site.installation
        enqueue.place(installation, [_order(0)])
        batch, single = scale.in_turn(
            lambda: rate(many, lambda: enqueue.place(installation, [_order(n) for n in range(many)])),
            lambda: rate(few, lambda: _one_by_one(installation, few)),
        )
    return [
        Figure("enqueue", "one batch", "jobs/s", batch, Bar(10_000)),
        Figure("enqueue", "one by one", "jobs/s", single),
        Figure("enqueue", "batch over one by one", "x", ratios(batch, single)),
    ]


def _order(number: int) -> enqueue.Order:
    return enqueue.Order(payload={"number": number, "prompt": "make the failing test pass"})


def _one_by_one(installation: Installation, count: int) -> None:
    for number in range(count):
        enqueue.place(installation, [_order(number)])
