"""Record: a pass as it is kept, so that each of its decisions can be explained and replayed.

What decisions of one pass have in common is kept once: the world they were made on, the requirements they are about,
and the classes of pools they drew from. Of the projects that had jobs only those that a decision is about are kept: a
pass looks at all, and grants few. A decision names its requirement and its classes by their places in those
lists. A step of a stored trace is [class, credits before, chosen, turn]; with its class it is one of `trace_json`'s.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vibey.domain.snapshot import brought_json, choices, class_json, draw_json, requirement_json, world_json
from vibey.domain.turn import is_turn
from vibey.services.wording import HELD
from vibey.store.decisions import Recorded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.domain.decide import Assign, World
    from vibey.domain.requirement import Requirement
    from vibey.domain.selection import CreditKey, Step

    Waits = Sequence[tuple[Requirement, str]]

HOLD, WAIT = "hold", "wait"


class Record:
    """The decisions of a pass, gathered as JSON rows with what they have in common aside."""

    def __init__(self, world: World, waits: Waits = ()) -> None:
        """Begin with the world the pass decides on, and why groups wait."""
        self._world = world
        self._rows: list[dict[str, Any]] = []
        self._asked: dict[str, int] = {}
        self._classes: dict[str, int] = {}
        self._known: dict[tuple[Any, ...], int] = {}
        self._projects: set[str] = set()
        self._rivals: set[CreditKey] = set()
        # The same object comes again and again, and its text is dear.
        self._places: dict[int, int] = {}
        for requirement, reason in waits:
            self._waiting(requirement, reason)

    def assignment(self, decision: Assign, row: Mapping[str, Any]) -> None:
        """Add an assignment, with what else is to be written for it."""
        self._rivals.update((step.pool, name) for step in decision.turn for name in step.members)
        steps = [[self._class(step), *draw_json(step)] for step in choices(decision)]
        trace = {"steps": steps} | brought_json(decision)
        self._rows.append({**row, "asked": self._place(decision.request.requirement), "trace": trace})

    def kept(self) -> Recorded:
        """The record as the store writes it."""
        return Recorded(
            pool=self._world.pool.key,
            world=json.dumps(world_json(self._concerned())),
            asked=f"[{','.join(self._asked)}]",
            classes=f"[{','.join(self._classes)}]",
            rows=json.dumps(self._rows),
        )

    def _concerned(self) -> World:
        """The world, as far as the decisions depend on it."""
        world, projects = self._world, self._projects
        drawn_on = {world.purse(name) for name in projects}
        return replace(
            world,
            credits={key: value for key, value in world.credits.items() if not is_turn(key[0]) or key in self._rivals},
            policies={name: each for name, each in world.policies.items() if name in projects},
            purses={name: each for name, each in world.purses.items() if name in projects},
            caps={name: left for name, left in world.caps.items() if name in drawn_on},
        )

    def _waiting(self, requirement: Requirement, reason: str) -> None:
        place, trace = self._place(requirement), {"reason": reason}
        self._rows.append({"key": requirement.key, "asked": place, "outcome": outcome_of(reason), "trace": trace})

    def _place(self, requirement: Requirement) -> int:
        place = self._places.get(id(requirement))
        if place is None:
            self._projects.add(requirement.project)
            text = json.dumps(requirement_json(requirement))
            place = self._places[id(requirement)] = self._asked.setdefault(text, len(self._asked))
        return place

    def _class(self, step: Step) -> int:
        # By what it is made of, since its text is dear.
        made_of = step.pool, step.skipped, step.label, step.members, step.shares
        found = self._known.get(made_of)
        if found is None:
            found = self._known[made_of] = self._classes.setdefault(json.dumps(class_json(step)), len(self._classes))
        return found


def outcome_of(reason: str | None) -> str:
    """The outcome that goes with the word for why a group waits: `held` is a hold."""
    return HOLD if reason == HELD else WAIT


def unfolded(trace: Mapping[str, Any], classes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A stored trace as `trace_json` made it. LookupError or TypeError when it names no class of its pass."""
    if "steps" not in trace:
        return dict(trace)
    return {**trace, "steps": [[*classes[place], *rest] for place, *rest in trace["steps"]]}
