"""Delay: what a longer way to Postgres and Redis costs, beside what it costs plain Celery.

Both sides reach the servers through proxies (`vibey.bench.proxy`), so that with no delay added they pay for these too.
What a way really takes is measured by questions through it. Jobs are those of `vibey.bench.endtoend`, on fewer slots.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from vibey.bench.endtoend import finish
from vibey.bench.figures import Figure, Scale, ratios, say
from vibey.bench.handover import ping
from vibey.bench.laboratory import until
from vibey.bench.peer import Peer
from vibey.bench.processes import Processes
from vibey.bench.procrastinating import Procrastinate
from vibey.embedded import Services
from vibey.services.programs import CONTROL_PROCESSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.bench.laboratory import Laboratory

DELAYS_MS = (0, 2)
SLOTS = 16


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Jobs a second of either side by milliseconds added to each question."""
    return [figure for delay_ms in DELAYS_MS for figure in _at(laboratory, scale, delay_ms)]


def _at(near: Laboratory, scale: Scale, delay_ms: int) -> list[Figure]:
    count, slots = scale.pick(1_000, 30), scale.pick(SLOTS, 2)
    say(f"  {delay_ms} ms")
    with ExitStack() as stack:
        far = stack.enter_context(_far(near, delay_ms))
        site = stack.enter_context(far.site("delay", {"noop": slots}))
        fleet = stack.enter_context(far.fleet(site))
        peer = stack.enter_context(Peer.running(far, slots + 1 + CONTROL_PROCESSES))
        sides = [lambda: ping(site), lambda: finish(site, fleet, count), lambda: peer.jobs(count)]
        if near.peers.has("procrastinate"):
            other = stack.enter_context(Procrastinate.running(far, slots))
            sides.append(lambda: other.jobs(count))
        finish(site, fleet, 2 * slots)
        pings, ours, theirs, *others = scale.in_turn(*sides)
    added = f"{delay_ms} ms added"
    return [
        Figure("delay", f"a question to Redis, {added}", "ms", pings),
        Figure("delay", f"Vibey, no-op jobs, {added}", "jobs/s", ours),
        Figure("delay", f"plain Celery, no-op tasks, {added}", "tasks/s", theirs),
        Figure("delay", f"Vibey over plain Celery, {added}", "x", ratios(ours, theirs)),
        *(Figure("delay", f"Procrastinate, no-op jobs, {added}", "jobs/s", each) for each in others),
        *(Figure("delay", f"Vibey over Procrastinate, {added}", "x", ratios(ours, each)) for each in others),
    ]


@contextmanager
def _far(laboratory: Laboratory, delay_ms: int) -> Iterator[Laboratory]:
    """The laboratory with its servers so much further away."""
    services = laboratory.services
    with Processes(laboratory.folder) as proxies:
        yield laboratory.detour(
            Services(
                _proxied(laboratory, proxies, services.database_url, delay_ms),
                _proxied(laboratory, proxies, services.redis_url, delay_ms),
            )
        )


def _proxied(laboratory: Laboratory, proxies: Processes, url: str, delay_ms: int) -> str:
    parts = urlsplit(url)
    told = laboratory.folder / f"proxy-{parts.port}-{delay_ms}.port"
    arguments = ["-m", "vibey.bench.proxy", str(parts.hostname), str(parts.port), str(delay_ms), str(told)]
    proxies.start(told.stem, arguments, {})
    until(told.exists, proxies, "a proxy did not listen")
    port = told.read_text(encoding="ascii")
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))
