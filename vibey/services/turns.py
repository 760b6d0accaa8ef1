"""Turns: how a routing pass shares the slots among projects, where `fair_share` says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from vibey.domain.backoff import fraction
from vibey.domain.decide import Assign, evolve
from vibey.domain.fairness import Queued, evolve_fairly
from vibey.domain.turn import level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vibey.domain.decide import Request, World
    from vibey.services.outlook import Outlook
    from vibey.store.jobs import Group, Head, Wanted

LOTS = 2**31


def shortlist(outlook: Outlook, groups: Sequence[Group], wanted: Sequence[Wanted], limit: int) -> list[Wanted]:
    """What to fetch of what is wanted, at most about `limit` jobs, so that no project's many keep out another's few.

    The groups that come first are those whose first job has the highest level, then each project's first, then each
    one's second, and so on. Who comes first of these is drawn by lot, anew for each pass: whoever is left out neither
    gains nor owes, so by what they are owed the same projects could be left out for ever.
    """
    if outlook.age_ms is None or sum(each.count for each in wanted) <= limit:
        return list(wanted)
    by_key = {group.key: group for group in groups}
    before: Counter[str] = Counter()
    ranked = []
    for each in sorted(wanted, key=lambda each: by_key[each.key].standing):
        group = by_key[each.key]
        project = group.requirement.project
        lot = fraction(f"{project}:{outlook.now_ms}", LOTS)
        ranked.append((-_level(outlook, group.standing), before[project], lot, each.key, each))
        before[project] += 1
    first = [each for *_, each in sorted(ranked, key=itemgetter(0, 1, 2, 3))[:limit]]
    return [replace(each, count=min(each.count, max(1, limit // len(first)))) for each in first]


def assigned(outlook: Outlook, requests: Iterable[Request], heads: Sequence[Head]) -> Iterator[tuple[Assign, World]]:
    """What is granted of these jobs, the heads' requests, in the order it is decided, each with the world it leaves."""
    if outlook.age_ms is None:
        yield from ((each, world) for each, world in evolve(requests, outlook.world) if isinstance(each, Assign))
        return
    levels = [_level(outlook, head.standing) for head in heads]
    yield from evolve_fairly(map(Queued, requests, levels), outlook.world)


def _level(outlook: Outlook, standing: int) -> int:
    return level(standing, outlook.now_ms, outlook.age_ms or 0)
