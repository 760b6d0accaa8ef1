"""What is written of a decision is enough to make it again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support.worlds import batches, efforts, requirements, ruled_worlds, sessions, worlds
from vibey.domain.decide import Assign, Hold, Request, decide, decide_all, prospect
from vibey.domain.requirement import Requirement
from vibey.domain.selection import Turn
from vibey.domain.snapshot import requirement_json, requirement_of, trace_json, world_json, world_of

if TYPE_CHECKING:
    from vibey.domain.decide import Decision, World

RECORDED = Path(__file__).parents[1] / "data" / "decisions_0002.jsonl"
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
    handed_off=sets,
    pinned=sets,
    workspace=st.none() | sets,
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
    one, other = data.draw(st.permutations(["excluded", "avoided", "handed_off", "pinned", "workspace"]))[:2]
    if parts[one] is not None and parts[other] is not None:
        swapped = Requirement(**(parts | {one: parts[other], other: parts[one]}))
        assert (swapped.key == requirement.key) == (parts[one] == parts[other])


@given(any_requirements)
def test_empty_later_parts_leave_the_key_of_the_first_release(requirement: Requirement) -> None:
    """The digest of the six parts there were then, whatever order sets are built in; it is what old rows carry."""
    plain = replace(requirement, handed_off=frozenset(), pinned=frozenset(), workspace=None)
    six = [
        plain.pool,
        plain.project,
        int(plain.effort),
        *map(sorted, (plain.capabilities, plain.excluded, plain.avoided)),
    ]
    digest = hashlib.blake2b(json.dumps(six, separators=(",", ":")).encode(), digest_size=8).digest()
    assert plain.key == int.from_bytes(digest, "big", signed=True)
    assert not {"handed_off", "pinned", "workspace"} & requirement_json(plain).keys()


def test_recorded_decisions_are_made_again_to_the_same_bytes() -> None:
    """Decisions of the release before pins, waived exclusions among them: keys, outcomes, traces and worlds."""
    waived = 0
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        recorded = json.loads(line)
        world = began = world_of(recorded["world"])
        assert _bytes(world_json(world)) == _bytes(recorded["world"])
        for each in recorded["decisions"]:
            asked = requirement_of(each["asked"])
            assert (_bytes(requirement_json(asked)), asked.key) == (_bytes(each["asked"]), each["key"])
            request = Request(each["job"], each["attempt"], asked, each["waited_ms"], each["session"])
            decision = decide(request, world)
            assert _bytes(_told(decision)) == _bytes({name: each[name] for name in ("outcome", "engine", "trace")})
            assert prospect(began.survey(asked), began, Request(0, 1, asked)).waiting == each["group"]
            world = world.after(decision)
            waived += isinstance(decision, Assign) and decision.waived
    assert waived > 20


def _told(decision: Decision) -> dict[str, object]:
    if isinstance(decision, Assign):
        return {"outcome": decision.outcome, "engine": decision.engine.name, "trace": trace_json(decision)}
    trace = {"retry_ms": decision.retry_ms} if isinstance(decision, Hold) else {"reason": decision.reason.value}
    return {"outcome": decision.outcome, "engine": None, "trace": trace}


def _bytes(value: object) -> str:
    return json.dumps(value, sort_keys=True)
