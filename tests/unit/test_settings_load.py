"""Finding, reading and judging the configuration file as a whole."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.settings_support import FOLDER, problems_in, settings_from
from vibey.domain.errors import SettingsError, UnknownName
from vibey.settings import load

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_file_everything_has_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without vibey.toml gives built-in defaults and no engines."""
    monkeypatch.chdir(tmp_path)
    settings = load(None, {})
    assert settings.path is None
    assert settings.data_dir == tmp_path / ".vibey"
    assert (settings.engines.mode, settings.engines.paid_daily_cap) == ("auto", 10)
    assert settings.engines.auto_min_contention == Decimal("0.25")
    assert not settings.engine
    assert not settings.pool


def test_the_default_file_is_the_working_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """./vibey.toml is read when nothing else is named."""
    (tmp_path / "vibey.toml").write_text('[engines]\nmode = "hybrid"\n')
    monkeypatch.chdir(tmp_path)
    assert load(None, {}).engines.mode == "hybrid"


def test_a_named_file_wins_over_the_variable(tmp_path: Path) -> None:
    """The path given comes first, then $VIBEY_CONFIG."""
    (tmp_path / "a.toml").write_text("[engines]\npaid_daily_cap = 1\n")
    (tmp_path / "b.toml").write_text("[engines]\npaid_daily_cap = 2\n")
    environ = {"VIBEY_CONFIG": str(tmp_path / "b.toml")}
    assert load(tmp_path / "a.toml", environ).engines.paid_daily_cap == 1
    assert load(None, environ).path == tmp_path / "b.toml"


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_missing_named_file_is_an_error(tmp_path: Path, *, by_variable: bool) -> None:
    """A file somebody named must exist."""
    missing = tmp_path / "gone.toml"
    with pytest.raises(SettingsError, match="no such file"):
        load(None if by_variable else missing, {"VIBEY_CONFIG": str(missing)} if by_variable else {})


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    """What cannot be read is reported as a settings error, not as a fault of Vibey."""
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'[engines]\nmode = "auto\n', "line 2"),
        (b"[engines]\nmode\n", "line 2"),
        (b"[engines]\n# \xff\n", "line 2"),
        (b"x = " + b"9" * 5000, "file"),
        (b"x = " + b"[" * 5000, "file"),
    ],
)
def test_broken_toml_names_file_and_line(tmp_path: Path, content: bytes, place: str) -> None:
    """A file that is not TOML is reported with its path, the line where known, and the reason."""
    file = tmp_path / "vibey.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert caught.value.source == str(file)
    assert caught.value.problems[0].key.startswith(place)


def test_numbers_beyond_every_type_are_refused(tmp_path: Path) -> None:
    """Absurd numbers are problems like any other, and can be printed."""
    file = tmp_path / "vibey.toml"
    file.write_text(f"[engines]\npaid_daily_cap = 0x{'F' * 9000}\nauto_min_contention = 1e-{'9' * 30}\n")
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert {problem.key for problem in caught.value.problems} == {
        "engines.paid_daily_cap",
        "engines.auto_min_contention",
    }


def test_all_problems_come_at_once() -> None:
    """Tables do not hide one another's mistakes, nor do wrong values hide wrong references."""
    problems = problems_in("""
        surprise = 1
        [services]
        redis_url = "http://localhost"
        [engines]
        mode = "hybird"
        [engines.slots]
        olama = 1
        ollama = 0
        [engine.ollama]
        kind = "noop"
        tear = "local"
        [pool.main]
        select = "orderd"
        members = ["ollama", "claude"]
        [verify.unit]
        argv = []
    """)
    assert set(problems) == {
        "surprise",
        "services.redis_url",
        "engines.mode",
        "engines.slots.olama",
        "engines.slots.ollama",
        "engine.ollama.tear",
        "pool.main.select",
        "pool.main.members[1]",
        "verify.unit.argv",
    }
    assert problems["engines.mode"].nearest == "hybrid"
    assert problems["engines.slots.olama"].nearest == "ollama"
    assert problems["engine.ollama.tear"].nearest == "tier"


def test_an_engines_key_under_engine_is_pointed_home() -> None:
    """`[engine] mode` is almost surely meant for `[engines]`."""
    assert problems_in('[engine]\nmode = "auto"')["engine.mode"].nearest == "engines.mode"


@pytest.mark.parametrize("table", ["services", "engines", "engine", "pool", "verify"])
def test_a_value_where_a_table_belongs(table: str) -> None:
    """A table that is not one is named."""
    assert "table" in problems_in(f"{table} = 3")[table].expected


@pytest.mark.parametrize("value", ["-1", "true", "10.0", '"10"', '"unlimited"', '"none"', "inf", "2147483648"])
def test_the_cap_has_no_uncapped_value(value: str) -> None:
    """Anything but a whole number from 0 is refused, with the reason."""
    problem = problems_in(f"[engines]\npaid_daily_cap = {value}")["engines.paid_daily_cap"]
    assert "there is no uncapped value" in problem.expected


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("mode", ['"singleton"', '"hybrid"', '"auto"'], ['"multiplexer"', "1"]),
        ("overflow_after_seconds", ["0", "86400"], ["-1", "0.5", "true"]),
        ("paid_daily_cap", ["0", "1"], ["-1"]),
        ("paid_daily_cap_scope", ['"installation"'], ['"job"']),
        ("paid_fallback", ['"allow"', '"count"', '"never"'], ["false"]),
        ("slot_poll_seconds", ["1"], ["0"]),
        ("auto_window_hours", ["1"], ["0", "8761"]),
        ("auto_min_sessions", ["1"], ["0"]),
        (
            "auto_min_contention",
            ["0", "0.6", "1", "1.0"],
            ["-0.1", "1.01", "true", "nan", "0.1234567", '"0.5"'],
        ),
        ("auto_max_age_hours", ["1"], ["0"]),
        ("cost_aware", ["false"], ["0", '"false"']),
        ("health_half_life_seconds", ["1"], ["0"]),
        ("recheck_seconds", ["0", "1800"], ["-1", "0.5", "true"]),
        ("lease_seconds", ["3", "3600"], ["2", "3601"]),
        ("run_timeout_seconds", ["1"], ["0"]),
        ("max_attempts", ["1", "100"], ["0", "101"]),
        ("retry_backoff_seconds", ["0"], ["-1"]),
        ("paid_rerun_after_loss", ["false"], ["1"]),
        ("session_ttl_seconds", ["1"], ["0"]),
        ("priority_age_seconds", ["0"], ["-1"]),
        ("fair_share", ["true"], ["1979-05-27"]),
        ("learn", ["true", "false"], ["1", '"yes"']),
    ],
)
def test_bounds_of_engines_keys(key: str, good: list[str], bad: list[str]) -> None:
    """Every key of [engines] takes its range and nothing beside it."""
    for value in good:
        assert not problems_in(f"[engines]\n{key} = {value}")
    for value in bad:
        assert set(problems_in(f"[engines]\n{key} = {value}")) == {f"engines.{key}"}


def test_paths_start_at_the_files_folder() -> None:
    """A relative data folder belongs to the file, not to whoever runs a command."""
    assert settings_from("").data_dir == FOLDER / ".vibey"
    assert settings_from('[services]\ndata_dir = "a/../b"').data_dir == FOLDER / "b"
    assert str(settings_from('[services]\ndata_dir = "/srv/vibey"').data_dir) == "/srv/vibey"


def test_slots_default_by_tier() -> None:
    """One slot for a local engine, two for a paid one, unless counted; an unknown engine has none."""
    settings = settings_from("""
        engines.slots.c = 5
        engine.a = { kind = "noop", tier = "local" }
        engine.b = { kind = "noop" }
        engine.c = { kind = "noop" }
    """)
    assert [settings.slots_of(name) for name in settings.engine] == [1, 2, 5]
    with pytest.raises(UnknownName):
        settings.slots_of("d")


def test_effective_settings_name_their_source_and_hide_passwords() -> None:
    """Every value says whether it came from the file, the environment or the defaults."""
    settings = settings_from(
        """
        [services]
        redis_url = "redis://:hunter2@cache/0"
        [engine.token]
        kind = "noop"
        weight = 2.5
        """,
        {"VIBEY_DATABASE_URL": "postgresql://u:hunter2@db/v", "VIBEY_ENGINES_MODE": "hybrid"},
    )
    rows = {key: (value, source) for key, value, source in settings.effective()}
    assert rows["services.database_url"] == ("postgresql://u:***@db/v", "environment VIBEY_DATABASE_URL")
    assert rows["services.redis_url"] == ("redis://:***@cache/0", "file")
    assert rows["engines.mode"] == ("hybrid", "environment VIBEY_ENGINES_MODE")
    assert rows["engines.slots.token"] == (2, "default")
    assert rows["engine.token.weight"] == (2.5, "file")
    assert rows["engine.token.account"] == ("token", "default")
    assert set(rows) == set(settings.sources)
    assert "hunter2" not in repr(settings.effective())


def test_settings_cannot_be_changed() -> None:
    """Neither the object, nor a table, nor a mapping in it."""
    settings = settings_from('engine.a = { kind = "noop" }')
    with pytest.raises(AttributeError):
        settings.path = None  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        settings.engines.mode = "hybrid"
    with pytest.raises(TypeError):
        settings.engine["b"] = settings.engine["a"]  # type: ignore[index]
    with pytest.raises(TypeError):
        settings.engines.slots["a"] = 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("table", "key", "place"),
    [
        ("engine.desk", "slots = 3", "[engines.slots], as desk = N"),
        ("engine.desk", "run_timeout_seconds = 60", "[engines]"),
        ("engine.desk", "flower_port = 5556", "[services]"),
        ("services", "paid_daily_cap = 1", "[engines]"),
        ("engines", 'redis_url = ""', "[services]"),
    ],
)
def test_a_key_of_another_table_is_answered_with_that_table(table: str, key: str, place: str) -> None:
    """A list of the keys that are known here would hide that the key exists."""
    desk = '[engine.desk]\nkind = "noop"\n'
    text = f"{desk}{key}" if table == "engine.desk" else f"{desk}[{table}]\n{key}"
    at = f"{table}.{key.partition(' ')[0]}"
    assert problems_in(text)[at].expected == f"unknown key here; it stands under {place}"


@pytest.mark.parametrize(
    "value", ['["workers"]', '["metrics", "metrics"]', '"metrics"', "true", '["/metrics"]', '["*"]']
)
def test_only_metrics_and_healthcheck_can_be_opened(value: str) -> None:
    """Nothing that shows a job is ever given without the login."""
    found = problems_in(f"[services]\nflower_open = {value}")["services.flower_open"]
    assert found.expected == "expected a list of pages out of metrics, healthcheck, each once"
