"""Decisions recorded by an earlier version, put to this one: the same outcomes and traces, and the same bytes.

`tests/data/decisions-a3b2d99.jsonl` was written by the recorder of revision a3b2d99, before the key
`paid_daily_cap_covers` existed, one pass a line: every outcome, with each of the fallback rules.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from vibey.domain.offer import Covers
from vibey.domain.snapshot import requirement_json, requirement_of, world_json, world_of
from vibey.services.replay import replayed
from vibey.store.decisions import Pass

if TYPE_CHECKING:
    from vibey.store.statement import Row

PASSES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "decisions-a3b2d99.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
COLUMNS = ("job_id", "run_id", "engine", "tier", "attempt")


def _stored(kept: dict[str, str]) -> Pass:
    """A pass as the database gives it back."""
    decisions = [
        SimpleNamespace(
            id=number,
            pass_id=1,
            requirement_key=row.get("key"),
            asked=row["asked"],
            outcome=row["outcome"],
            trace=row["trace"],
            **{name: row.get(name) for name in COLUMNS},
        )
        for number, row in enumerate(json.loads(kept["rows"]))
    ]
    row = SimpleNamespace(
        id=1, world=json.loads(kept["world"]), asked=json.loads(kept["asked"]), classes=json.loads(kept["classes"])
    )
    return Pass(cast("Row[Any]", row), cast("list[Row[Any]]", decisions))


def test_every_recorded_decision_is_made_again() -> None:
    """To the byte, whatever its outcome; the record has all of them."""
    outcomes: Counter[str] = Counter()
    for kept in PASSES:
        for found in replayed(_stored(kept)):
            assert found.is_same, (found.recorded, found.replayed)
            outcomes[found.row.outcome] += 1
    assert set(outcomes) == {"assign", "overflow", "fallback", "hold", "wait"}
    reasons = {row["trace"]["reason"] for kept in PASSES for row in json.loads(kept["rows"]) if "key" in row}
    assert {"held", "cap_spent", "fallback_not_allowed", "slots_full", "no_eligible_engine"} <= reasons


def test_worlds_and_requirements_are_written_as_they_were() -> None:
    """The text of each is what that version wrote, and every policy in them covers exceptions only."""
    for kept in PASSES:
        world = world_of(json.loads(kept["world"]))
        assert json.dumps(world_json(world)) == kept["world"]
        assert {policy.covers for policy in world.policies.values()} <= {Covers.EXCEPTIONS}
        for asked in json.loads(kept["asked"]):
            assert requirement_json(requirement_of(asked)) == asked
