"""The tables of engines and of checks."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.settings_support import FOLDER, problems_in, settings_from
from vibey.settings import EngineSettings

if TYPE_CHECKING:
    from vibey.domain.errors import Problem


def engine_from(text: str) -> EngineSettings:
    """The engine `a` of kind noop with the keys in `text`."""
    return settings_from(f'[engine.a]\nkind = "noop"\n{text}').engine["a"]


def engine_problems(text: str) -> dict[str, Problem]:
    """Problems of the engine `a`, by key without the table's name."""
    return {key.removeprefix("engine.a."): problem for key, problem in problems_in(f"[engine.a]\n{text}").items()}


def test_defaults_of_an_engine() -> None:
    """Weight 1, tier paid, its own name as account, enabled."""
    engine = engine_from("")
    assert (engine.name, engine.account, engine.tier, engine.weight_millionths) == (
        "a",
        "a",
        "paid",
        1_000_000,
    )
    assert engine.enabled
    assert (engine.stall_seconds, engine.price_in, engine.argv) == (None, None, ())


@pytest.mark.parametrize(
    ("written", "millionths"),
    [
        ("0.1", 100_000),
        ("3", 3_000_000),
        ("1.000001", 1_000_001),
        ("1e-6", 1),
        ("1e6", 10**12),
        ("0.10000000", 100_000),
    ],
)
def test_weights_are_exact(written: str, millionths: int) -> None:
    """A weight means its decimal text, to the millionth."""
    assert engine_from(f"weight = {written}").weight_millionths == millionths


@pytest.mark.parametrize("written", ["0", "-1", "0.0", "1e-7", "1000001", "true", '"1"', "nan", "inf", "1e999999"])
def test_weights_are_positive_and_bounded(written: str) -> None:
    """Zero, negative, too fine, too large and anything but a number are refused."""
    assert set(engine_problems(f'kind = "noop"\nweight = {written}')) == {"weight"}


def test_floats_count_as_their_shortest_text() -> None:
    """A float from another reader than the file's is exact too."""
    raw = {"name": "a", "account": "a", "kind": "noop", "weight": 0.1, "price_in": 0.3}
    engine = EngineSettings.model_validate(raw)
    assert (engine.weight_millionths, engine.price_in) == (100_000, Decimal("0.3"))


def test_every_other_key_of_an_engine() -> None:
    """Values arrive unchanged, in immutable form, paths absolute."""
    engine = engine_from("""
        tier = "local"
        account = "shared"
        price_in = 3.0
        price_out = 15
        run_cost_limit_usd = 0.5
        capabilities = ["web", "vision"]
        efforts = { high = ["--model", "opus"], low = [] }
        enabled = false
        base_url = "http://127.0.0.1:11434/v1"
        model = "qwen3-coder"
        api_key_file = "keys/a"
        env = ["LANG"]
        stall_seconds = 30
        workspace_roots = ["repos", "/srv/repos"]
    """)
    assert (engine.tier, engine.account, engine.enabled) == ("local", "shared", False)
    assert (engine.price_in, engine.price_out) == (Decimal(3), Decimal(15))
    assert engine.run_cost_limit_usd == Decimal("0.5")
    assert (engine.capabilities, engine.env) == (("web", "vision"), ("LANG",))
    assert dict(engine.efforts) == {"high": ("--model", "opus"), "low": ()}
    assert engine.api_key_file == FOLDER / "keys/a"
    assert [str(root) for root in engine.workspace_roots] == [str(FOLDER / "repos"), "/srv/repos"]


@pytest.mark.parametrize(
    "text",
    [
        'tier = "free"',
        "price_in = -1",
        "run_cost_limit_usd = 0",
        'capabilities = ["web", "web"]',
        'capabilities = "web"',
        'efforts = ["high"]',
        'base_url = "ollama:11434"',
        'base_url = "http://"',
        'base_url = "http://host:port"',
        'model = ""',
        'account = "two\\nlines"',
        'api_key_env = "not a name"',
        'env = ["A=B"]',
        "stall_seconds = 0",
        'workspace_roots = "repos"',
        'api_key_file = ""',
    ],
)
def test_unusable_values_are_refused_at_their_key(text: str) -> None:
    """One wrong value, one problem, at its own key."""
    assert list(engine_problems(f'kind = "noop"\n{text}')) == [text.partition(" ")[0]]


def test_effort_names_are_known_words() -> None:
    """A misspelt effort is reported with the nearest one."""
    problem = engine_problems('kind = "noop"\nefforts = { hgh = [] }')["efforts.hgh"]
    assert problem.nearest == "high"


@pytest.mark.parametrize("name", ["Big", "-a", "a b", "ä", "a" * 64, ""])
def test_engine_names_follow_one_rule(name: str) -> None:
    """A name outside the rule is refused, and quoted where the file must quote it."""
    problems = problems_in(f'[engine."{name}"]\nkind = "noop"')
    assert name in [problem.value for problem in problems.values() if "1 to 63" in problem.expected]


def test_the_kind_is_required_and_left_to_the_engines() -> None:
    """Any lowercase word may name a kind, for third parties register their own."""
    assert engine_problems("")["kind"].expected == "this key is required"
    assert not engine_problems('kind = "acme-agent"')
    assert "kind" in engine_problems('kind = "Acme Agent"')


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('kind = "command"', "argv"),
        ('kind = "command"\nargv = []', "argv"),
        ('kind = "command"\nargv = [""]', "argv"),
        ('kind = "command"\nargv = "make test"', "argv"),
        ('kind = "command"\nargv = ["a\\u0000b"]', "argv"),
        ('kind = "noop"\nargv = ["make"]', "argv"),
        ('kind = "python"', "callable"),
        ('kind = "python"\ncallable = "module"', "callable"),
        ('kind = "command"\nargv = ["make"]\ncallable = "a.b:c"', "callable"),
        ('kind = "codex"\napi_key_env = "K"\napi_key_file = "k"', "api_key_file"),
        ('kind = "openai"\nbase_url = "http://127.0.0.1:11434/v1"', "model"),
        ('kind = "openai"\nmodel = "m"', "base_url"),
        ('kind = "celery"', "app"),
        ('kind = "noop"\napp = "project"', "app"),
    ],
)
def test_keys_that_contradict_the_kind_or_each_other(text: str, key: str) -> None:
    """Only command has argv, only python a callable, and a secret has one place."""
    assert set(engine_problems(text)) == {key}


@pytest.mark.parametrize("key", ["api_key", "token", "password", "API-KEY", "auth_token"])
def test_a_secret_in_the_open_is_refused_and_not_repeated(key: str) -> None:
    """The problem says where secrets go, without showing this one."""
    problem = engine_problems(f'kind = "openai"\n{key} = "hunter2"')[key]
    assert "api_key_env" in problem.expected
    assert "hunter2" not in str(problem)


def test_an_engine_cannot_name_itself() -> None:
    """The table's name is the engine's; a key `name` is as unknown as any."""
    assert set(engine_problems('kind = "noop"\nname = "b"')) == {"name"}


@pytest.mark.parametrize("count", ["0", "-1", "1000001", "1.0", "true", '"1"'])
def test_slot_counts_are_bounded(count: str) -> None:
    """At least one slot, as a whole number."""
    problems = problems_in(f'engines.slots.a = {count}\nengine.a = {{ kind = "noop" }}')
    assert set(problems) == {"engines.slots.a"}


def test_checks_have_a_program_and_a_time_limit() -> None:
    """A check is an argument list the operator wrote."""
    assert settings_from('[verify.unit]\nargv = ["make", "test"]').verify["unit"].argv == ("make", "test")
    assert set(problems_in('[verify.unit]\nargs = ["make"]')) == {"verify.unit.argv", "verify.unit.args"}
