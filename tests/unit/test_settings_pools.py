"""Pools: what they name, and that they form trees."""

from __future__ import annotations

import pytest

from tests.settings_support import problems_in, settings_from

ENGINES = """
engine.ollama = { kind = "noop", tier = "local", weight = 5 }
engine.claude = { kind = "noop" }
engine.codex = { kind = "noop" }
"""


def pool_problems(text: str) -> dict[str, str]:
    """What is wrong with pools over the three engines above: key → sentence."""
    return {key: problem.expected for key, problem in problems_in(ENGINES + text).items()}


def test_members_are_engines_by_name_or_tables() -> None:
    """A bare word is an engine; weight is left open unless written, so the engine's own can count."""
    pools = settings_from(f"""{ENGINES}
        [pool.main]
        members = ["ollama", {{ pool = "paid", tier = 1, weight = 0.5 }}]
        [pool.paid]
        select = "tiered"
        tier_by = "weight"
        when_full = "wait"
        members = [{{ engine = "claude", weight = 2 }}, "codex"]
    """).pool
    first, second = pools["main"].members
    assert (first.engine, first.pool, first.weight_millionths) == ("ollama", None, None)
    assert (second.engine, second.pool, second.tier, second.weight_millionths) == (None, "paid", 1, 500_000)
    assert (pools["main"].select, pools["main"].when_full) == ("ordered", "next")
    assert (pools["paid"].tier_by, pools["paid"].when_full) == ("weight", "wait")


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("[pool.main]", "pool.main.members", "required"),
        ("[pool.main]\nmembers = []", "pool.main.members", "at least one member"),
        ('[pool.main]\nmembers = "ollama"', "pool.main.members", "expected a list"),
        ("[pool.main]\nmembers = [3]", "pool.main.members[0]", "expected a table"),
        ("[pool.main]\nmembers = [{}]", "pool.main.members[0]", "one engine or one pool"),
        ('[pool.main]\nmembers = ["calude"]', "pool.main.members[0]", "unknown engine"),
        ('[pool.main]\nmembers = [{ pool = "x" }]', "pool.main.members[0]", "unknown pool"),
        ('[pool.main]\nmembers = [{ pool = "codex" }]', "pool.main.members[0]", 'write { engine = "codex" }'),
        ('[pool.main]\nmembers = ["ollama", "ollama"]', "pool.main.members[1]", "already"),
        ('[pool.main]\nmembers = [{ pool = "main" }]', "pool.main.members[0]", "main → main"),
        ('[pool.codex]\nmembers = ["ollama"]', "pool.codex", "an engine has this name"),
        (
            '[pool.main]\nmembers = [{ engine = "codex", weight = 0 }]',
            "pool.main.members[0].weight",
            "above 0",
        ),
        (
            '[pool.main]\nmembers = [{ engine = "codex", tier = 1.5 }]',
            "pool.main.members[0].tier",
            "pool tier",
        ),
        ('[pool.main]\nselect = "random"\nmembers = ["codex"]', "pool.main.select", "one of ordered"),
        ('[pool.main]\nmembers = ["codex"]\nmode = "x"', "pool.main.mode", "unknown key"),
    ],
)
def test_one_mistake_is_one_problem(text: str, key: str, words: str) -> None:
    """Each rule of a pool is reported at the place that breaks it."""
    problems = pool_problems(text)
    assert list(problems) == [key]
    assert words in problems[key]


def test_a_member_is_not_two_things() -> None:
    """Engine and pool in one member contradict each other."""
    text = '[pool.main]\nmembers = [{ engine = "codex", pool = "b" }]\n[pool.b]\nmembers = ["claude"]'
    assert pool_problems(text) == {"pool.main.members[0]": "a member names one engine or one pool"}


def test_a_pool_named_as_an_engine_gets_the_right_spelling() -> None:
    """A bare word is always an engine, and the problem shows how to name a pool."""
    text = '[pool.main]\nmembers = ["spare"]\n[pool.spare]\nmembers = ["codex"]'
    assert pool_problems(text) == {"pool.main.members[0]": 'this is a pool; write { pool = "spare" }'}


def test_unknown_member_keys_have_near_names() -> None:
    """A misspelt key in a member is met with the member's own keys."""
    problems = problems_in(f'{ENGINES}[pool.main]\nmembers = [{{ engin = "codex", engine = "codex" }}]')
    assert problems["pool.main.members[0].engin"].nearest == "engine"


def test_cycles_are_reported_once_each() -> None:
    """A ring of pools is one problem that spells the ring."""
    problems = pool_problems("""
        [pool.a]
        members = ["ollama", { pool = "b" }]
        [pool.b]
        members = ["claude", { pool = "c" }]
        [pool.c]
        members = ["codex", { pool = "a" }]
    """)
    assert problems == {"pool.c.members[1]": "pools form a cycle: a → b → c → a"}


def test_an_engine_met_twice_in_a_tree() -> None:
    """Both ways to one engine are named, however deep; two trees may share it."""
    nested = '[pool.main]\nmembers = ["codex", { pool = "b" }]\n[pool.b]\nmembers = ["ollama", "codex"]'
    problems = pool_problems(nested)
    assert list(problems) == ["pool.b.members[1]"]
    assert "pool.main.members[0]" in problems["pool.b.members[1]"]
    assert not pool_problems('[pool.main]\nmembers = ["codex"]\n[pool.images]\nmembers = ["codex"]')


def test_a_pool_met_twice_in_a_tree() -> None:
    """A shared branch makes a tree no tree; it is reported once, not once for each engine in it."""
    problems = pool_problems("""
        [pool.main]
        members = [{ pool = "l" }, { pool = "r" }]
        [pool.l]
        members = [{ pool = "shared" }]
        [pool.r]
        members = [{ pool = "shared" }]
        [pool.shared]
        members = ["codex", "claude"]
    """)
    assert list(problems) == ["pool.r.members[0]"]


def test_tiers_are_all_explicit_or_all_from_weights() -> None:
    """A tiered pool never mixes written and derived tiers."""
    by_tier = '[pool.main]\nselect = "tiered"\nmembers = [{ engine = "codex", tier = 1 }, "claude"]'
    assert list(pool_problems(by_tier)) == ["pool.main.members[1].tier"]
    by_weight = by_tier.replace("members", 'tier_by = "weight"\nmembers', 1)
    assert list(pool_problems(by_weight)) == ["pool.main.members[0].tier"]


def test_wrong_values_do_not_hide_wrong_names() -> None:
    """A pool that fails its own check still has its members looked up."""
    text = '[pool.main]\nselect = 1\nmembers = ["nobody", { engine = "codex", weight = -1 }]'
    assert set(pool_problems(text)) == {
        "pool.main.select",
        "pool.main.members[0]",
        "pool.main.members[1].weight",
    }


def test_depth_and_breadth_are_no_danger() -> None:
    """Thousands of nested and doubly shared pools are judged without recursion or explosion."""
    chain = "".join(f'[pool.p{i}]\nmembers = [{{ pool = "p{i + 1}" }}]\n' for i in range(1500))
    assert not pool_problems(f'{chain}[pool.p1500]\nmembers = ["codex"]')
    link = '[pool.q{0}]\nmembers = [{{ pool = "q{1}" }}, {{ pool = "q{1}" }}]\n'
    doubled = "".join(link.format(i, i + 1) for i in range(60))
    assert len(pool_problems(f'{doubled}[pool.q60]\nmembers = ["codex"]')) == 60
