"""Turns: how a routing pass shares the slots among projects, where `fair_share` says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vibey.domain.decide import Assign, decide_all
from vibey.domain.fairness import Queued, decide_fairly
from vibey.domain.turn import level, turns_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.domain.decide import Request
    from vibey.services.outlook import Outlook
    from vibey.store.jobs import Group, Head, Wanted


def shortlist(outlook: Outlook, groups: Sequence[Group], wanted: Sequence[Wanted], limit: int) -> list[Wanted]:
    """What to fetch of what is wanted, at most about `limit` jobs, so that no project's many keep out another's few.

    The groups that come first are those whose first job has the highest level, then those whose project is owed most.
    """
    if outlook.age_ms is None or sum(each.count for each in wanted) <= limit:
        return list(wanted)
    by_key = {group.key: group for group in groups}
    credits, key = outlook.world.credits, turns_key(outlook.world.pool.key)

    def rank(each: Wanted) -> tuple[int, int, int]:
        group = by_key[each.key]
        owed = credits.get((key, group.requirement.project), 0)
        return -_level(outlook, group.standing), -owed, group.standing

    first = sorted(wanted, key=rank)[:limit]
    return [replace(each, count=min(each.count, max(1, limit // len(first)))) for each in first]


def assigned(outlook: Outlook, requests: Sequence[Request], heads: Sequence[Head]) -> list[Assign]:
    """What is granted of these jobs, the requests of the heads, in the order it is decided."""
    if outlook.age_ms is None:
        return [each for each in decide_all(requests, outlook.world) if isinstance(each, Assign)]
    levels = [_level(outlook, head.standing) for head in heads]
    return list(decide_fairly(map(Queued, requests, levels), outlook.world))


def _level(outlook: Outlook, standing: int) -> int:
    return level(standing, outlook.now_ms, outlook.age_ms or 0)
