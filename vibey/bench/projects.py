"""Projects: what many projects cost. The same jobs of one project, and spread over a hundred and ten thousand.

Each project's jobs are a group of their own to the router, so a pass looks at as many groups as there are projects with
jobs. Granted, ended and enqueued anew as in `vibey.bench.depth`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from vibey.bench.depth import SLOTS, VACUUM, granting
from vibey.bench.figures import Figure, Scale, ratios, say
from vibey.bench.laboratory import rows
from vibey.services import enqueue
from vibey.store.projects import DEFAULT_PROJECT
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.bench.laboratory import Laboratory

COUNTS = (1, 100, 10_000)
JOBS = 10_000
MAKE = Statement(
    "bench-projects",
    "make projects that have the policy of the first one",
    """insert into projects (name, policy)
       select 'p' || n, policy from generate_series(1, %(count)s) n, projects where name = %(like)s returning id""",
)


def measure(laboratory: Laboratory, scale: Scale) -> list[Figure]:
    """Runs granted a second by number of projects."""
    counts = tuple(count for count in COUNTS if count <= scale.pick(COUNTS[-1], 100))
    jobs = scale.pick(JOBS, 1_000)
    with ExitStack() as stack:
        sides = [_side(laboratory, stack, count, jobs) for count in counts]
        found = scale.in_turn(*sides)
    return [
        *(
            Figure("projects", f"granting, jobs of {count:,} projects", "runs/s", each)
            for count, each in zip(counts, found, strict=True)
        ),
        *(
            Figure("projects", f"{count:,} projects over one", "x", ratios(each, found[0]))
            for count, each in zip(counts[1:], found[1:], strict=True)
        ),
    ]


def _side(laboratory: Laboratory, stack: ExitStack, count: int, jobs: int) -> Callable[[], float]:
    site = stack.enter_context(laboratory.site("projects", {"noop": SLOTS}))
    rows(site.installation, MAKE, count=count, like=DEFAULT_PROJECT)
    orders = [enqueue.Order(project=f"p{number % count + 1}") for number in range(jobs)]
    enqueue.place(site.installation, orders)
    laboratory.sql(site.database, VACUUM)
    granting(site, _spread(count))
    say(f"  {jobs:,} jobs of {count:,} projects queued")
    return lambda: granting(site, _spread(count))


def _spread(count: int) -> list[enqueue.Order]:
    return [enqueue.Order(project=f"p{number % count + 1}") for number in range(SLOTS)]
