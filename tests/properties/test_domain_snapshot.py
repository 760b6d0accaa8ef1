"""What is written of a decision is enough to make it again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support.worlds import batches, efforts, requirements, ruled_worlds, sessions, worlds
from vibey.domain.decide import Assign, Request, decide, decide_all
from vibey.domain.requirement import Requirement
from vibey.domain.selection import Turn
from vibey.domain.snapshot import requirement_json, requirement_of, trace_json, world_json, world_of

if TYPE_CHECKING:
    from vibey.domain.decide import World

NAMES = ["a", "b", "ab", "é", "日本", '"', "\\", ",", "null", "\x00", "[]"]
names = st.sampled_from(NAMES)
sets = st.just(frozenset[str]()) | st.sets(names, max_size=2).map(frozenset)
any_requirements = st.builds(
    Requirement,
    pool=names,
    project=names,
    effort=efforts,
    capabilities=sets,
    excluded=sets,
    avoided=sets,
    affinity=st.none() | names,
)


def through_json(value: object) -> object:
    """A value as it is after being stored as strict JSON and read again."""
    return json.loads(json.dumps(value, allow_nan=False))


@given(worlds(patient=True) | ruled_worlds(patient=True), batches())
def test_a_world_read_back_decides_the_same(world: World, requests: list[Request]) -> None:
    """The world is plain JSON, and a batch replayed on what is read back makes equal decisions."""
    stored = through_json(world_json(world))
    assert isinstance(stored, dict)
    again = world_of(stored)
    assert replace(again, usage=world.usage) == world
    assert all(again.usage.in_use.get(each.name, 0) == world.usage.in_use.get(each.name, 0) for each in world.engines)
    assert list(decide_all(requests, again)) == list(decide_all(requests, world))
    assert world_json(again) == stored


@given(any_requirements)
def test_a_requirement_is_read_back_equal(requirement: Requirement) -> None:
    """A requirement survives JSON, and its key with it."""
    stored = through_json(requirement_json(requirement))
    assert isinstance(stored, dict)
    again = requirement_of(stored)
    assert again == requirement
    assert again.key == requirement.key


@given(worlds(), requirements, sessions)
def test_a_trace_says_how_the_choice_was_made(world: World, requirement: Requirement, session: str | None) -> None:
    """Shares and credits of the trace's steps suffice to see why the winner won."""
    decision = decide(Request(1, 1, requirement, session=session), world)
    if not isinstance(decision, Assign):
        return
    trace = through_json(trace_json(decision))
    assert isinstance(trace, dict)
    assert trace.get("waived", False) == decision.waived
    for _, _, _, members, offered, before, chosen, turn in trace["steps"]:
        after = [credit + share for credit, share in zip(before, offered, strict=True)]
        assert turn == Turn.STICKY or after[members.index(chosen)] > max(after) - 500_000
    chosen = {step.pool: step.chosen for step in decision.selection.steps if len(step.members) > 1}
    assert {step[0]: step[-2] for step in trace["steps"]} == chosen


@given(any_requirements, any_requirements)
def test_keys_are_equal_exactly_for_equal_requirements(one: Requirement, other: Requirement) -> None:
    """Jobs share a group's key exactly when the same engines may serve them; it fits a signed 64-bit column."""
    same = replace(one, affinity=None) == replace(other, affinity=None)
    assert (one.key == other.key) == same
    assert -(2**63) <= one.key < 2**63


@given(any_requirements, st.data())
def test_changing_any_one_part_changes_the_key(requirement: Requirement, data: st.DataObject) -> None:
    """Every field but what only moves weight takes part in the key, and so does which field holds a name."""
    parts = {name: getattr(requirement, name) for name in Requirement.__slots__}
    field = data.draw(st.sampled_from(sorted(parts)))
    changed = Requirement(**(parts | {field: getattr(data.draw(any_requirements), field)}))
    unchanged = parts[field] == getattr(changed, field)
    assert (changed.key == requirement.key) == (unchanged or field == "affinity")
    swapped = Requirement(**(parts | {"excluded": requirement.avoided, "avoided": requirement.excluded}))
    assert (swapped.key == requirement.key) == (requirement.excluded == requirement.avoided)
