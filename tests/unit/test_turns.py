"""Which jobs a pass fetches when projects take turns and it cannot fetch all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from vibey.domain.decide import World
from vibey.domain.effort import Effort
from vibey.domain.pool import default_pool
from vibey.domain.requirement import Requirement
from vibey.domain.turn import turn
from vibey.services.outlook import Outlook
from vibey.services.turns import shortlist
from vibey.store.jobs import Group, Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.domain.selection import CreditKey


def _outlook(now_ms: int = 0, credits: Mapping[CreditKey, int] | None = None) -> Outlook:
    return Outlook(World(default_pool("main", ()), (), credits=credits or {}), now_ms=now_ms, age_ms=0)


def _groups(projects: Sequence[str], standing: int = 0) -> list[Group]:
    return [
        Group(key, Requirement("main", project, Effort.LOW), standing, None, unheld=False, held_ms=None)
        for key, project in enumerate(projects)
    ]


@pytest.mark.parametrize(("many", "limit", "passes"), [(60, 10, 600), (200, 80, 1200)])
def test_every_project_is_served_however_many_there_are(many: int, limit: int, passes: int) -> None:
    """All that a pass cannot fetch comes with later ones, by weight: nobody is left out for ever."""
    groups = _groups([f"p{number}" for number in range(many)])
    weights = {each.requirement.project: 1 + each.key % 2 for each in groups}
    credits: dict[CreditKey, int] = {}
    got: Counter[str] = Counter()
    for number in range(passes):
        listed = shortlist(_outlook(number, credits), groups, [Wanted(each.key, 1) for each in groups], limit)
        assert len(listed) == limit
        project, lots = turn("main", {(name := f"p{each.key}"): weights[name] for each in listed}, credits)
        got[project] += 1
        for step in (lot.drawn(credits) for lot in lots):
            credits |= {(step.pool, name): value for name, value in zip(step.members, step.after, strict=True)}
    assert set(got) == set(weights)
    heavy = sum(count for project, count in got.items() if weights[project] == 2)
    assert 0.6 < heavy / passes < 0.72


def test_a_project_with_many_groups_keeps_nobody_out() -> None:
    """Each project's first group comes before anybody's second."""
    groups = _groups(["many"] * 100 + ["few", "one"])
    for number in range(20):
        listed = shortlist(_outlook(number), groups, [Wanted(each.key, 5) for each in groups], 10)
        projects = Counter(groups[each.key].requirement.project for each in listed)
        assert projects == {"many": 8, "few": 1, "one": 1}
        assert sum(each.count for each in listed) <= 10


def test_more_urgent_groups_are_fetched_first() -> None:
    """Turns are taken at equal level only."""
    groups = [*_groups([f"p{number}" for number in range(50)]), replace(_groups(["q"], -1)[0], key=50)]
    listed = shortlist(_outlook(), groups, [Wanted(each.key, 1) for each in groups], 5)
    assert listed[0].key == 50


def test_what_a_pass_can_fetch_is_fetched_whole() -> None:
    """Nothing is left out that need not be."""
    wanted = [Wanted(key, 5) for key in range(10)]
    assert shortlist(_outlook(), _groups(["a", "b"] * 5), wanted, 50) == wanted
