"""What tables say about one another: pools about engines and pools, slot counts about engines.

A pool tree must be a tree an engine appears in once: a cycle would never end, and an engine met twice would
draw from two credits for one share. Both are judged on the names alone, from the file as it is, so a wrong
weight beside a wrong name hides neither. The walks keep their own stack, because the depth of a file's pools
is the file's choice and Python's stack is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vibey.domain.errors import Problem
from vibey.settings.problems import dotted, presentable
from vibey.settings.values import nearest_name


@dataclass(frozen=True, slots=True)
class Reference:
    """One member of a pool: where it stands, and the one engine or pool it names."""

    owner: str
    index: int
    kind: str
    name: str

    @property
    def key(self) -> str:
        """The member's place, as problems spell it."""
        return dotted(("pool", self.owner, "members", self.index))


def slot_problems(slots: Iterable[str], engines: Sequence[str]) -> list[Problem]:
    """Slot counts for engines that do not exist."""
    return [
        Problem(dotted(("engines", "slots", name)), name, _unknown("engine", engines), nearest_name(name, engines))
        for name in slots
        if name not in engines
    ]


def schedule_problems(schedules: Mapping[str, Mapping[str, object]], members: Sequence[str]) -> list[Problem]:
    """Schedules of engines and pools that do not exist."""
    named = {dotted(("schedule", name, "member")): table.get("member") for name, table in schedules.items()}
    return [
        Problem(key, name, _unknown("engine or pool", members), nearest_name(name, members))
        for key, name in named.items()
        if isinstance(name, str) and name not in members
    ]


def pool_problems(pools: Mapping[str, Mapping[str, object]], engines: Sequence[str]) -> list[Problem]:
    """Everything wrong between pools and what they name."""
    references = {name: list(_references(name, table)) for name, table in pools.items()}
    found = [
        Problem(dotted(("pool", name)), name, "an engine has this name already; pools and engines share names")
        for name in pools
        if name in engines
    ]
    for name, table in pools.items():
        found += _member_problems(name, table)
        found += [problem for each in references[name] for problem in _unknown_name(each, pools, engines)]
    return [*found, *_cycles(references), *_repeats(references)]


def _members(table: Mapping[str, object]) -> list[object]:
    members = table.get("members")
    return members if isinstance(members, list) else []


def _references(owner: str, table: Mapping[str, object]) -> Iterator[Reference]:
    for index, member in enumerate(_members(table)):
        named = {"engine": member} if isinstance(member, str) else member
        if not isinstance(named, Mapping):
            continue
        for kind in ("engine", "pool"):
            name = named.get(kind)
            if isinstance(name, str):
                yield Reference(owner, index, kind, name)


def _member_problems(owner: str, table: Mapping[str, object]) -> Iterator[Problem]:
    if table.get("members") == []:
        yield Problem(dotted(("pool", owner, "members")), [], "a pool needs at least one member")
    tiered = table.get("select") == "tiered"
    for index, member in enumerate(_members(table)):
        at = ("pool", owner, "members", index)
        if not isinstance(member, str | Mapping):
            continue
        keys: Mapping[str, object] = member if isinstance(member, Mapping) else {"engine": member}
        if ("engine" in keys) == ("pool" in keys):
            yield Problem(dotted(at), presentable(member), "a member names one engine or one pool")
        if tiered and table.get("tier_by") == "weight" and "tier" in keys:
            sentence = 'tiers follow from weights here (tier_by = "weight"); leave it out'
            yield Problem(dotted((*at, "tier")), presentable(keys["tier"]), sentence)
        if tiered and table.get("tier_by", "tier") == "tier" and "tier" not in keys:
            yield Problem(dotted((*at, "tier")), None, "every member of a pool tiered by tier needs its tier")


def _unknown_name(reference: Reference, pools: Mapping[str, object], engines: Sequence[str]) -> Iterator[Problem]:
    known = list(pools) if reference.kind == "pool" else list(engines)
    if reference.name in known:
        return
    sentence = _unknown(reference.kind, known)
    if reference.kind == "engine" and reference.name in pools:
        sentence = f'this is a pool; write {{ pool = "{reference.name}" }}'
    if reference.kind == "pool" and reference.name in engines:
        sentence = f'this is an engine; write {{ engine = "{reference.name}" }}'
    yield Problem(reference.key, reference.name, sentence, nearest_name(reference.name, known))


def _unknown(kind: str, known: Sequence[str]) -> str:
    return f"unknown {kind}; known: {', '.join(known)}" if known else f"unknown {kind}; none is configured"


def _cycles(references: Mapping[str, Sequence[Reference]]) -> Iterator[Problem]:
    done: set[str] = set()
    for root in references:
        path, stack = [root], [iter(_nested(root, references))]
        while stack and root not in done:
            reference = next(stack[-1], None)
            if reference is None:
                stack.pop()
                done.add(path.pop())
            elif reference.name in path:
                ring = [*path[path.index(reference.name) :], reference.name]
                yield Problem(reference.key, reference.name, f"pools form a cycle: {' → '.join(ring)}")
            elif reference.name not in done:
                path.append(reference.name)
                stack.append(iter(_nested(reference.name, references)))


def _nested(owner: str, references: Mapping[str, Sequence[Reference]]) -> list[Reference]:
    return [each for each in references[owner] if each.kind == "pool" and each.name in references]


def _repeats(references: Mapping[str, Sequence[Reference]]) -> Iterator[Problem]:
    nested = {each.name for owner in references for each in _nested(owner, references)}
    reported: set[Reference] = set()
    walked: set[str] = set()
    # From the roots down each tree is seen whole; pools that only a cycle reaches have no root and come last.
    for root in sorted(references, key=lambda name: name in nested):
        if root in nested and root in walked:
            continue
        for reference, first in _met_again(root, references, walked):
            if reference not in reported:
                reported.add(reference)
                sentence = f"this {reference.kind} stands in the tree of pool {root} already, at {first.key}"
                yield Problem(reference.key, reference.name, sentence)


def _met_again(
    root: str, references: Mapping[str, Sequence[Reference]], walked: set[str]
) -> Iterator[tuple[Reference, Reference]]:
    """Each reference in the tree of `root` to what the tree held before, and where; pools go to `walked`."""
    first: dict[tuple[str, str], Reference] = {}
    path, stack = [root], [iter(references[root])]
    walked.add(root)
    while stack:
        reference = next(stack[-1], None)
        if reference is None:
            stack.pop()
            path.pop()
            continue
        met = first.setdefault((reference.kind, reference.name), reference)
        if reference.kind == "pool" and reference.name in path:
            continue
        if met is not reference:
            yield reference, met
        elif reference.kind == "pool" and reference.name in references:
            walked.add(reference.name)
            path.append(reference.name)
            stack.append(iter(references[reference.name]))
