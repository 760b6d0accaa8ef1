"""Replay: each recorded draw made again by the rule as written (I7, I9), and each overflow's world looked at (I5).

Smooth weighted round robin, from its description: of the free members of a class each gains its share, the one with
most is chosen, an earlier one among equals, and pays a whole unit. Equal is what differs by less than half a millionth.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.checker.facts import Facts

UNIT = 10**12
ALIKE = UNIT // 2_000_000
STICKY = 1
SECOND = 1_000_000_000
UNSEEN_SECONDS = 10


def draws(facts: Facts) -> Iterator[tuple[str, str]]:
    """I7 and I9, in the order the draws were made in: each begins where the one before it ended, and is as the rule."""
    credits: dict[tuple[str, str], int] = defaultdict(int)
    for number, engine, trace, classes in facts.rows(
        "select d.id, d.engine, d.trace, p.classes from decisions d join passes p on p.id = d.pass_id "
        "where d.run_id is not null order by d.pass_id, d.ordinal"
    ):
        steps = [(*classes[place], *rest) for place, *rest in trace["steps"]]
        for step in steps:
            for said in _drawn(step, credits):
                invariant, words = said
                yield invariant, f"decision {number}: {words}"
        # The last step may be a pool's, or a project's turn, where a single engine was left to choose.
        if steps and steps[-1][6] in facts.slots and steps[-1][6] != engine:
            yield "I9", f"decision {number} chose {steps[-1][6]} and was carried out on {engine}"
    stored = {(pool, member): credit for pool, member, credit in facts.rows("select pool, member, credit from credits")}
    for key in sorted({*stored, *credits}):
        if stored.get(key, 0) != credits.get(key, 0):
            yield "I7", f"the credit of {key} is {stored.get(key, 0)}, its draws leave {credits.get(key, 0)}"


def _drawn(step: tuple[Any, ...], credits: dict[tuple[str, str], int]) -> Iterator[tuple[str, str]]:
    pool, _, _, members, shares, before, chosen, turn = step
    if sum(shares) != UNIT:
        yield "I7", f"the shares of {members} in {pool} sum to {sum(shares)}"
    for member, credit in zip(members, before, strict=True):
        if credits[pool, member] != credit:
            yield "I7", f"{member} in {pool} began with {credit}, {credits[pool, member]} were left"
    gained = [credit + share for credit, share in zip(before, shares, strict=True)]
    best = next(member for member, has in zip(members, gained, strict=True) if has > max(gained) - ALIKE)
    if turn != STICKY and chosen != best:
        yield "I9", f"{chosen} was drawn in {pool}, it was the turn of {best}"
    for member, has in zip(members, gained, strict=True):
        credits[pool, member] = has - (UNIT if member == chosen else 0)


def exceptions(facts: Facts) -> Iterator[str]:
    """I5: paid exceptions beside a local engine that could have served: open, and with a slot free.

    Free by the count the pass wrote down, less what it had granted itself by then; or free by the rows of runs, over
    the whole time of the pass and a while before: a run's end is seen by others only when it is committed, which a
    stopped process or server can put off.
    """
    live: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for span in facts.spans.values():
        live[span.engine].append((span.granted, span.ended))
    granted_in: dict[tuple[int, str], list[int]] = defaultdict(list)
    for run, number, engine in facts.rows("select run_id, pass_id, engine from decisions where run_id is not null"):
        granted_in[number, engine].append(run)
    nanoseconds = "(extract(epoch from {}) * 1000000000)::bigint"
    rows = facts.rows(
        f"select r.id, r.why, {nanoseconds.format('p.began_at')}, {nanoseconds.format('r.granted_at')}, p.world, "
        f"p.asked -> d.asked, p.id from {facts.tables['runs']} r join decisions d on d.run_id = r.id "
        f"join {facts.tables['passes']} p on p.id = d.pass_id "
        "join engines e on e.name = r.engine where e.tier = 'paid'"
    )
    for run, why, began, granted, world, asked, number in rows:
        for engine in (engine for engine in world["engines"] if _able(engine, asked, world)):
            name, slots = engine["name"], engine["slots"]
            if why == "fallback":
                yield f"run {run} fell back to paid while {name} was a candidate"
            before = sum(other < run for other in granted_in[number, name])
            held = sum(first <= granted and last >= began - UNSEEN_SECONDS * SECOND for first, last in live[name])
            if engine["in_use"] + before < slots or held < slots:
                yield f"run {run} ({why}) went to paid while {name} had a free slot"


def _able(engine: dict[str, Any], asked: dict[str, Any], world: dict[str, Any]) -> bool:
    """Whether a local engine was surely a candidate, and not full for another reason than its slots."""
    flags = ("enabled", "installed", "conformant", "login_ok", "staffed")
    return (
        engine["tier"] == "local"
        and engine["phase"] == "closed"
        and all(engine.get(flag, True) for flag in flags)
        and not engine.get("busy", False)
        and engine["account"] not in world["probing"]
        and engine["weight"] > 0
        and engine["name"] not in {*asked.get("excluded", ()), *asked.get("avoided", ()), *asked.get("handed_off", ())}
        and engine["name"] in (asked.get("pinned") or [engine["name"]])
        and engine["name"] in asked.get("workspace", [engine["name"]])
        and not engine.get("calls_only", False)
        and set(asked.get("capabilities", ())) <= set(engine.get("capabilities", ()))
    )
