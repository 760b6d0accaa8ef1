"""What holds of settings for every file there could be."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.settings_support import FOLDER
from vibey.domain.errors import Problem, SettingsError
from vibey.settings import EngineDefaults, ProjectPolicy, Settings, Source, settings_of
from vibey.settings.problems import known_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = st.sampled_from(
    [
        *(
            "services",
            "engines",
            "engine",
            "pool",
            "verify",
            "slots",
            "members",
            "select",
            "tier_by",
            "when_full",
        ),
        *(
            "tier",
            "weight",
            "kind",
            "argv",
            "callable",
            "efforts",
            "high",
            "capabilities",
            "env",
            "database_url",
        ),
        *(
            "data_dir",
            "mode",
            "paid_daily_cap",
            "auto_min_contention",
            "base_url",
            "workspace_roots",
            "name",
            "a",
            "b",
        ),
    ]
)
KEYS = NAMES | st.text(max_size=6)
SCALARS = (
    st.booleans()
    | st.integers()
    | st.decimals(allow_nan=True, allow_infinity=True)
    | st.floats()
    | st.dates()
    | KEYS
    | st.sampled_from(["command", "noop", "tiered", "weight", "http://[", "redis://h:x", "~nobody/x", "", "\0"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MEMBERS = st.lists(
    st.sampled_from(["a", "b", "c"]) | st.dictionaries(st.sampled_from(["engine", "pool", "tier", "weight"]), VALUES)
)
POOLS = st.dictionaries(st.sampled_from(["a", "p", "q", "r"]), st.fixed_dictionaries({"members": MEMBERS}))
FILES = st.dictionaries(KEYS, VALUES, max_size=5) | st.fixed_dictionaries(
    {},
    optional={"engine": st.dictionaries(KEYS, VALUES), "engines": VALUES, "pool": POOLS, "services": VALUES},
)
VARIABLES = st.sampled_from(["VIBEY_DATABASE_URL", "VIBEY_DATA_DIR", "VIBEY_ENGINES_MODE", "VIBEY_ENGINES_SLOTS"])
ENVIRONMENTS = st.dictionaries(VARIABLES | st.text(max_size=4), st.text(max_size=8))


def judged(tables: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings | tuple[Problem, ...]:
    """The settings, or every problem."""
    try:
        return settings_of(Source(None, FOLDER, tables), environ or {})
    except SettingsError as error:
        return error.problems


@given(FILES, ENVIRONMENTS)
def test_every_file_gives_settings_or_problems(tables: dict[str, object], environ: dict[str, str]) -> None:
    """Nothing a file or an environment holds raises anything but a settings error, which has problems."""
    outcome = judged(tables, environ)
    if isinstance(outcome, Settings):
        assert len(outcome.effective()) == len(outcome.sources)
    else:
        assert outcome
        assert all(str(problem) for problem in outcome)


@given(st.sets(st.from_regex(r"[a-z]{1,8}_zz", fullmatch=True), min_size=1, max_size=6))
def test_every_unknown_key_is_reported(names: set[str]) -> None:
    """Unknown keys are reported in every table at once, each exactly once."""
    odd: dict[str, object] = dict.fromkeys(names, 1)
    outcome = judged(
        {
            **odd,
            "services": odd,
            "engines": odd,
            "engine": {"a": {"kind": "noop", **odd}},
            "pool": {"main": {"members": [{"engine": "a", **odd}], **odd}},
            "verify": {"unit": {"argv": ["make"], **odd}},
        }
    )
    assert not isinstance(outcome, Settings)
    places = ("", "services.", "engines.", "engine.a.", "pool.main.", "pool.main.members[0].", "verify.unit.")
    assert sorted(problem.key for problem in outcome) == sorted(f"{at}{name}" for at in places for name in names)


@given(st.sets(st.sampled_from(known_keys(EngineDefaults)), min_size=1))
def test_problems_come_all_at_once(keys: set[str]) -> None:
    """However many keys of one table are wrong, each is reported, and no other."""
    outcome = judged({"engines": dict.fromkeys(keys, "?")})
    assert not isinstance(outcome, Settings)
    assert {problem.key for problem in outcome} == {f"engines.{key}" for key in keys}


@given(st.integers(min_value=1, max_value=10**12))
def test_weights_keep_every_millionth(millionths: int) -> None:
    """A weight written with six places comes back as the same count of millionths."""
    outcome = judged({"engine": {"a": {"kind": "noop", "weight": Decimal(millionths) / 10**6}}})
    assert isinstance(outcome, Settings)
    assert outcome.engine["a"].weight_millionths == millionths


@given(
    st.builds(
        ProjectPolicy,
        mode=st.sampled_from(["singleton", "hybrid", "auto"]),
        paid_daily_cap=st.integers(0, 2**31 - 1),
        auto_min_contention=st.decimals(0, 1, places=6),
    )
)
def test_policies_survive_storage(policy: ProjectPolicy) -> None:
    """Whatever a policy says, its stored form says the same."""
    assert ProjectPolicy.from_json(policy.to_json()) == policy
