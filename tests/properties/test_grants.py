"""What a pass adds to the counts: told by the credits before and after it, and the same as its steps tell."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import event, given

from tests.support.worlds import batches, worlds
from vibey.domain.decide import Assign, evolve
from vibey.domain.turn import turns_key
from vibey.services import grants

if TYPE_CHECKING:
    from vibey.domain.decide import Request, World


@given(worlds(smallest=2), batches())
def test_each_engine_was_offered_what_the_steps_say(world: World, requests: list[Request]) -> None:
    """By every step an engine is offered its share of one pick; sessions and full engines change nothing in that."""
    after, assigned = world, []
    for decision, left in evolve(requests, world):
        after = left
        if isinstance(decision, Assign):
            assigned.append(decision)
    offered: Counter[str] = Counter()
    for decision in assigned:
        for step in decision.selection.steps:
            offered.update(dict(zip(step.members, step.shares, strict=True)))
    names = {engine.name for engine in world.engines}
    picks = Counter((decision.engine.name, decision.why) for decision in assigned)
    found = grants.expected(picks, grants.moved(world, after))
    event(f"{len({name for name, _ in picks})} engines picked")
    assert {name: found.get(name, 0) for name in names} == {name: offered[name] for name in names}


def test_turns_of_projects_are_no_engine_s() -> None:
    """A project may have an engine's name."""
    assert grants.expected({}, {(turns_key("main"), "a"): 5, ("main.local", "b"): 7}) == {"b": 7}
