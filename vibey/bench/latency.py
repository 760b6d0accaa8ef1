"""Latency: how long one decision takes, at ten, a hundred and a thousand engines.

*Decide* is the domain alone: the survey of the fleet and the choice, in memory. *A pass for one job* is what a lone job
waits for: the router's whole transaction, committed. Beside them LiteLLM's Router picks among as many deployments in
memory: it looks at no requirement, slot, cap or record, and what it picks is not written down.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING

from vibey.bench.figures import Figure, Scale, percentiles, ratios, say
from vibey.bench.peers import Dialogue
from vibey.bench.pure import world_of
from vibey.domain.decide import Request, decide
from vibey.domain.effort import Effort
from vibey.domain.errors import VibeyError
from vibey.domain.requirement import Requirement
from vibey.services import enqueue, route

if TYPE_CHECKING:
    from vibey.bench.laboratory import Laboratory, Site

FLEETS = (10, 100, 1_000)
PARTS = (50, 95, 99)
SLOTS = 10_000
VACUUM = "vacuum analyze"


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Percentiles of single decisions, pure and durable, and of the peer's picks, by size of fleet."""
    found: list[Figure] = []
    with ExitStack() as stack:
        peer = litellm(laboratory, stack)
        for engines in FLEETS:
            found += _at(laboratory, scale, engines, peer)
    return found


def litellm(laboratory: Laboratory, stack: ExitStack) -> Dialogue | None:
    """LiteLLM's Router at work until the stack ends; None where it is missing."""
    if not laboratory.peers.has("litellm") or laboratory.peers.python is None:
        return None
    return stack.enter_context(Dialogue.begun(laboratory.peers.python, "peer_litellm", laboratory.folder, {}))


def _at(laboratory: Laboratory, scale: Scale, engines: int, peer: Dialogue | None) -> list[Figure]:
    pure: list[list[float]] = []
    passes: list[list[float]] = []
    theirs: list[list[float]] = []
    slots = {f"e{number}": SLOTS for number in range(engines)}
    with laboratory.site("latency", slots) as site:
        laboratory.sql(site.database, VACUUM)
        site.staff()
        _passes(site, 3)
        for _ in range(scale.rounds):
            pure.append(_decisions(engines, scale.pick(2_000, 100) * FLEETS[0] // min(engines, 100)))
            if peer is not None:
                theirs.append(peer.ask(engines=engines, count=scale.pick(2_000, 100))["micros"])
            site.staff()
            passes.append(_passes(site, scale.pick(100, 5)))
    say(f"  {engines:,} engines")
    figures = [Figure("latency", f"decide, {engines:,} engines, p{p}", "µs", percentiles(pure, p)) for p in PARTS]
    figures += [
        Figure("latency", f"a pass for one job, {engines:,} engines, p{p}", "ms", percentiles(passes, p)) for p in PARTS
    ]
    if peer is not None:
        figures += [
            Figure("latency", f"LiteLLM, {engines:,} engines, p{p}", "µs", percentiles(theirs, p)) for p in PARTS
        ]
        medians = [tuple(statistics.median(each) for each in side) for side in (theirs, pure)]
        figures.append(Figure("latency", f"LiteLLM over decide, {engines:,} engines", "x", ratios(*medians)))
    return figures


def _decisions(engines: int, count: int) -> list[float]:
    """Microseconds of each of so many decisions, its survey included."""
    world = world_of(engines)
    requirement = Requirement("main", "default", Effort.LOW)
    took = []
    for number in range(count):
        request = Request(number, 1, requirement)
        began = perf_counter()
        decide(request, world, world.survey(requirement))
        took.append(1e6 * (perf_counter() - began))
    return took


def _passes(site: Site, count: int) -> list[float]:
    """Milliseconds of each of so many passes, each with one job in the queue."""
    took = []
    for _ in range(count):
        enqueue.place(site.installation, [enqueue.Order()])
        began = perf_counter()
        passed = route.run_pass(site.installation, "main")
        took.append(1000 * (perf_counter() - began))
        if passed is None or len(passed.granted) != 1:
            raise VibeyError("a pass did not grant the one job in the queue")
    return took
