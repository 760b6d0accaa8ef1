"""Strategies for the domain's values: fleets, pools, requirements, worlds, batches."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from vibey.domain.assessment import Assessment
from vibey.domain.decide import SHARED_PURSE, Request, World
from vibey.domain.effort import Effort
from vibey.domain.engine import EngineFacts, Phase, Tier, Usage
from vibey.domain.layer import Layer, LayerKind
from vibey.domain.offer import Covers, Fallback, Mode, Policy
from vibey.domain.pool import Member, Pool, Select, default_pool
from vibey.domain.requirement import Requirement
from vibey.domain.selection import Field, Session
from vibey.domain.weight import Factors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

UNIT = 10**12
NAMES = tuple(f"e{number}" for number in range(8))
ACCOUNTS = ("a0", "a1", "a2")


def _chosen(bits: int) -> frozenset[str]:
    return frozenset(name for place, name in enumerate(NAMES) if bits >> place & 1)


# Whole combinations are drawn at once, because each draw costs far more than a decision.
FLAGS = {
    "enabled": False,
    "installed": False,
    "conformant": False,
    "login_ok": False,
    "staffed": False,
    "busy": True,
    "demoted": True,
    "calls_only": True,
}
# Most engines are sound, most requirements plain: a decision is a choice only where several engines are free.
FLAWS: list[tuple[str, ...]] = [*[()] * 160, *combinations(FLAGS, 1), *combinations(FLAGS, 2)]
ABILITIES = [frozenset[str](), frozenset({"web"}), frozenset({"vision"}), frozenset({"web", "vision"})]
LEVELS = [*[()] * 16, *(levels for size in (1, 2, 3) for levels in combinations(Effort, size))]

phases = st.sampled_from([*[Phase.CLOSED] * 8, Phase.HALF_OPEN, Phase.OPEN])
weights = st.sampled_from([1_000_000, 2_000_000, 3_000_000, 333_333, 7_654_321, 1, 10**12, 1_000_000, 2_000_000, 0])
failures = st.sampled_from([0, 0, 100_000, 999_999, 1_000_000])
prices = st.sampled_from([0, 0, 1, 900_000, 3_000_000, 20_000_000])
efforts = st.sampled_from(list(Effort))
few_names = st.sampled_from([0, 0, 0, 0, 0, 1]).flatmap(
    lambda some: st.integers(0, 2 ** len(NAMES) - 1).map(_chosen) if some else st.just(frozenset[str]())
)
credits_of_members = st.just(0) | st.integers(-3 * UNIT, 3 * UNIT)

requirements = st.builds(
    Requirement,
    pool=st.just("main"),
    project=st.sampled_from(["p", "q"]),
    effort=efforts,
    capabilities=st.sampled_from([*[ABILITIES[0]] * 12, *ABILITIES]),
    excluded=few_names,
    avoided=few_names,
    affinity=st.none() | st.sampled_from(NAMES),
    handed_off=few_names,
    pinned=few_names,
    workspace=st.sampled_from([None, None, None, None, None, 1]).flatmap(
        lambda some: st.none() if some is None else st.integers(0, 2 ** len(NAMES) - 1).map(_chosen)
    ),
)
waits = st.sampled_from([0, 0, 999, 1000, 700_000])
sessions = st.none() | st.sampled_from(["p/s", "p/t"])
layers = st.lists(
    st.builds(Layer, st.sampled_from(LayerKind), st.sampled_from([1, 100_000, 300_000, 500_000, 2_000_000])), max_size=2
).map(tuple)


engines = st.tuples(
    st.sampled_from(Tier),
    st.sampled_from([1, 2, 3, 1, 2, 0]),
    st.sampled_from(ACCOUNTS),
    weights,
    st.sampled_from(FLAWS),
    st.sampled_from(ABILITIES),
    st.sampled_from(LEVELS),
    prices,
)


@st.composite
def fleets(draw: st.DrawFn, *, smallest: int = 0) -> tuple[EngineFacts, ...]:
    """Engines in declared order; those of one account share its phase and failure average."""
    guards = {account: (draw(phases), draw(failures)) for account in ACCOUNTS}
    size = draw(st.sampled_from([each for each in (4, 6, 8, 5, 3, 7, 2, 1, 0) if each >= smallest]))
    drawn = [draw(engines) for _ in range(size)]
    return tuple(
        EngineFacts(
            name=NAMES[number],
            tier=tier,
            ordinal=number,
            slots=slots,
            account=account,
            weight=weight,
            phase=guards[account][0],
            failure=guards[account][1],
            capabilities=abilities,
            efforts=levels,
            price=price,
            **{flag: FLAGS[flag] for flag in flaws},
        )
        for number, (tier, slots, account, weight, flaws, abilities, levels, price) in enumerate(drawn)
    )


@st.composite
def trees(draw: st.DrawFn, names: Sequence[str], key: str = "main", depth: int = 2, *, patient: bool = False) -> Pool:
    """A pool tree in which each of these engines occurs once; its pools wait for full classes only if `patient`."""
    members: list[Member] = []
    rest = list(names)
    while rest:
        size = draw(st.integers(1, len(rest)))
        group, rest = rest[:size], rest[size:]
        nested = depth > 0 and draw(st.booleans())
        below = draw(trees(group, f"{key}.{len(members)}", depth - 1, patient=patient)) if nested else None
        for name in [below.key] if below else group:
            weight = draw(st.none() | st.sampled_from([1, 500_000, 1_000_000, 7_000_000]))
            members.append(Member(name, below, weight, draw(st.none() | st.integers(-1, 2)), draw(layers)))
    waits = patient and draw(st.booleans())
    return Pool(key, draw(st.sampled_from(Select)), tuple(members), draw(st.booleans()), waits)


def credit_keys(pool: Pool) -> Iterator[tuple[str, str]]:
    """Every key under which this tree keeps a credit."""
    for member in pool.members:
        yield pool.key, member.key
        if member.pool is not None:
            yield from credit_keys(member.pool)


@st.composite
def worlds(draw: st.DrawFn, *, smallest: int = 0, with_credits: bool = True, patient: bool = False) -> World:
    """Any valid world: a fleet, a tree over it (default or configured), how full it is, live rotation state."""
    fleet = draw(fleets(smallest=smallest))
    names = [engine.name for engine in fleet]
    configured = trees(draw(st.permutations(names)), patient=patient)
    pool = default_pool("main", fleet) if draw(st.booleans()) else draw(configured)
    in_use = dict(zip(names, draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), max_size=len(names))), strict=False))
    probing = draw(st.sampled_from([*[frozenset[str]()] * 4, frozenset({"a0"}), frozenset({"a1", "a2"})]))
    live = {}
    if with_credits and draw(st.booleans()):
        live = {key: draw(credits_of_members) for key in credit_keys(pool)}
    memory = {
        (each.key, label.label, "p/s"): draw(st.sampled_from(label.members)).key
        for each in pool.nested()
        for label in each.classes
        if len(label.members) > 1 and draw(st.booleans())
    }
    return World(pool, fleet, Usage(in_use, probing), live, draw(st.booleans()), sessions=memory)


policies = st.builds(
    Policy,
    mode=st.sampled_from([Mode.HYBRID, Mode.SINGLETON]),
    overflow_after_ms=st.sampled_from([0, 1000, 600_000]),
    poll_ms=st.sampled_from([1000, 30_000]),
    cap=st.integers(0, 3),
    fallback=st.sampled_from(Fallback),
    weight=st.integers(1, 3),
    covers=st.sampled_from(Covers),
)


@st.composite
def ruled_worlds(draw: st.DrawFn, *, patient: bool = False) -> World:
    """A world with rules for its projects, who draw on a cap each or on one they share, and with busy local engines."""
    world = draw(worlds(smallest=2, patient=patient))
    busy = draw(st.booleans())
    full = {each.name: each.slots for each in world.engines if busy and each.tier is Tier.LOCAL}
    shared = draw(st.booleans())
    purses = {"p": SHARED_PURSE, "q": SHARED_PURSE} if shared else {}
    caps = {name: draw(st.integers(0, 3)) for name in ([SHARED_PURSE] if shared else ["p", "q"])}
    return World(
        world.pool,
        world.engines,
        Usage({**world.usage.in_use, **full}, world.usage.probing),
        world.credits,
        world.cost_aware,
        {name: draw(policies) for name in ("p", "q")},
        purses,
        caps,
        world.sessions,
    )


@st.composite
def batches(draw: st.DrawFn, *, largest: int = 12) -> list[Request]:
    """Queued jobs in order, of a few groups."""
    groups = draw(st.lists(requirements, min_size=1, max_size=3))
    size = draw(st.integers(1, largest))
    return [
        Request(number, draw(st.integers(1, 7)), draw(st.sampled_from(groups)), draw(waits), draw(sessions))
        for number in range(1, size + 1)
    ]


def plain_engine(number: int, **changes: object) -> EngineFacts:
    """A healthy, free local engine of weight 1, but for the changes."""
    facts: dict[str, object] = {
        "name": f"e{number}",
        "tier": Tier.LOCAL,
        "ordinal": number,
        "slots": 1,
        "account": f"a{number}",
    }
    return EngineFacts(**(facts | changes))  # type: ignore[arg-type]


def plain_request(job_id: int = 1, **changes: object) -> Request:
    """A job that asks for nothing in particular, but for the changes to its requirement."""
    asked: dict[str, object] = {"pool": "main", "project": "p", "effort": Effort.LOW}
    return Request(job_id, 1, Requirement(**(asked | changes)))  # type: ignore[arg-type]


def seen(
    weights: Mapping[str, int],
    *,
    demoted: Collection[str] = (),
    full: Collection[str] = (),
    session: Session | None = None,
) -> Field:
    """What a walk sees of engines with these effective weights, and no factor beside them."""
    offered = {
        name: Assessment(
            plain_engine(0, name=name, weight=weight, demoted=name in demoted),
            Factors(weight, *(1_000_000,) * 4),
            weight,
            None,
        )
        for name, weight in weights.items()
    }
    return Field(offered, frozenset(full), frozenset(demoted), session)
