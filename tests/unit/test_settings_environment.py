"""The environment laid over the file."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from tests.settings_support import FOLDER, problems_in, settings_from


def test_variables_win_over_the_file() -> None:
    """Each variable replaces its key and nothing else."""
    settings = settings_from(
        '[services]\nredis_url = "redis://a"\n[engines]\npaid_daily_cap = 1\nmax_attempts = 3',
        {
            "VIBEY_DATABASE_URL": "postgres://db/v",
            "VIBEY_DATA_DIR": "elsewhere",
            "VIBEY_ENGINES_MODE": "singleton",
            "VIBEY_ENGINES_OVERFLOW_AFTER_SECONDS": "0",
            "VIBEY_ENGINES_PAID_DAILY_CAP": " 4 ",
            "VIBEY_ENGINES_AUTO_MIN_CONTENTION": "0.5",
            "VIBEY_ENGINES_COST_AWARE": "off",
            "VIBEY_ENGINES_LEASE_SECONDS": "30",
        },
    )
    engines = settings.engines
    assert (settings.services.database_url, settings.services.redis_url) == ("postgres://db/v", "redis://a")
    assert settings.data_dir == FOLDER / "elsewhere"
    assert (engines.mode, engines.overflow_after_seconds, engines.paid_daily_cap) == ("singleton", 0, 4)
    assert (engines.auto_min_contention, engines.cost_aware, engines.lease_seconds) == (
        Decimal("0.5"),
        False,
        30,
    )
    assert engines.max_attempts == 3
    assert (settings.declared.mode, settings.declared.paid_daily_cap) == ("auto", 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VIBEY_ENGINES_MODE", "hybird"),
        ("VIBEY_ENGINES_MODE", ""),
        ("VIBEY_ENGINES_PAID_DAILY_CAP", ""),
        ("VIBEY_ENGINES_PAID_DAILY_CAP", "-1"),
        ("VIBEY_ENGINES_PAID_DAILY_CAP", "1.0"),
        ("VIBEY_ENGINES_PAID_DAILY_CAP", "unlimited"),
        ("VIBEY_ENGINES_PAID_DAILY_CAP", "\u0661"),
        ("VIBEY_ENGINES_PAID_DAILY_CAP", "true"),
        ("VIBEY_ENGINES_OVERFLOW_AFTER_SECONDS", "10m"),
        ("VIBEY_ENGINES_AUTO_MIN_CONTENTION", "25%"),
        ("VIBEY_ENGINES_FAIR_SHARE", "perhaps"),
        ("VIBEY_ENGINES_LEASE_SECONDS", "2"),
        ("VIBEY_DATABASE_URL", "mysql://db/v"),
        ("VIBEY_REDIS_URL", "localhost:6379"),
        ("VIBEY_DATA_DIR", ""),
    ],
)
def test_a_malformed_variable_is_refused_by_its_own_name(name: str, value: str) -> None:
    """The problem names the variable, because that is what has to change."""
    assert list(problems_in("", {name: value})) == [name]


def test_other_variables_are_not_ours_to_judge() -> None:
    """A variable no key answers to is ignored, whatever it holds."""
    assert not problems_in("", {"VIBEY_ENGINES_SLOTS": "many", "VIBEY_ENGINES_": "?", "VIBEY_FLOWER": "\udcff"})


def test_an_override_does_not_excuse_the_file() -> None:
    """A wrong value in the file is reported beside a wrong variable for the same key."""
    problems = problems_in("[engines]\npaid_daily_cap = -1", {"VIBEY_ENGINES_PAID_DAILY_CAP": "x"})
    assert set(problems) == {"engines.paid_daily_cap", "VIBEY_ENGINES_PAID_DAILY_CAP"}
    assert problems_in("[engines]\npaid_daily_cap = -1", {"VIBEY_ENGINES_PAID_DAILY_CAP": "1"})


def test_an_empty_address_means_embedded() -> None:
    """An empty variable takes the file's address away."""
    settings = settings_from('[services]\ndatabase_url = "postgres://db/v"', {"VIBEY_DATABASE_URL": ""})
    assert not settings.services.database_url


def test_a_password_in_a_refused_variable_is_not_repeated() -> None:
    """Problems end up in logs."""
    problem = problems_in("", {"VIBEY_DATABASE_URL": "mysql://root:hunter2@db/v"})["VIBEY_DATABASE_URL"]
    assert problem.value == "mysql://root:***@db/v"


def test_the_home_folder_can_be_written_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading ~ is the home folder."""
    monkeypatch.setenv("HOME", "/home/somebody")
    assert settings_from("", {"VIBEY_DATA_DIR": "~/vibey"}).data_dir == Path("/home/somebody/vibey")
