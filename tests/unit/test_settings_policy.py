"""A project's own copy of the dispatch keys."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from tests.settings_support import settings_from
from vibey.domain.errors import InvalidInput, SettingsError
from vibey.settings import ProjectPolicy

KEYS = {
    "mode",
    "overflow_after_seconds",
    "paid_daily_cap",
    "paid_daily_cap_covers",
    "paid_fallback",
    "auto_window_hours",
    "auto_min_sessions",
    "auto_min_contention",
    "auto_max_age_hours",
}


def test_a_new_project_copies_the_file_not_the_environment() -> None:
    """The environment overlays a policy in use; it is never stored in one."""
    environ = {"VIBEY_ENGINES_MODE": "hybrid"}
    settings = settings_from("[engines]\npaid_daily_cap = 3\nlease_seconds = 5", environ)
    policy = ProjectPolicy.of(settings)
    assert (policy.mode, policy.paid_daily_cap) == ("auto", 3)
    assert policy.overlaid(environ).mode == "hybrid"
    assert policy.overlaid({"VIBEY_ENGINES_LEASE_SECONDS": "no concern of a project"}) == policy


def test_json_and_back() -> None:
    """What is stored is plain JSON and comes back equal."""
    policy = ProjectPolicy(auto_min_contention=Decimal("0.1"), mode="hybrid")
    stored = policy.to_json()
    assert set(stored) == KEYS
    assert ProjectPolicy.from_json(json.loads(json.dumps(stored))) == policy


def test_json_of_other_versions() -> None:
    """Keys added later are ignored and missing ones mean what they did then; a known key stays checked."""
    stored = {"later": [1], "paid_daily_cap": 2}
    assert ProjectPolicy.from_json(stored) == ProjectPolicy(paid_daily_cap=2, paid_fallback="allow")
    with pytest.raises(SettingsError, match="paid_daily_cap"):
        ProjectPolicy.from_json({"paid_daily_cap": -2})


def test_a_stored_policy_keeps_the_meaning_of_its_time() -> None:
    """Without the newer keys it allows fallbacks and covers exceptions, whatever a new project would get."""
    stored = ProjectPolicy().to_json()
    del stored["paid_fallback"], stored["paid_daily_cap_covers"]
    policy = ProjectPolicy.from_json(stored)
    assert (policy.paid_fallback, policy.paid_daily_cap_covers) == ("allow", "exceptions")
    assert ProjectPolicy().paid_fallback == "count"
    assert ProjectPolicy.from_json({"paid_daily_cap_covers": "all"}).paid_daily_cap_covers == "all"


def test_one_key_changed_from_text() -> None:
    """The command line's text becomes a checked value; the old policy stays."""
    policy = ProjectPolicy()
    changed = policy.changed("paid_daily_cap", "0").changed("auto_min_contention", "0.5").changed("mode", "hybrid")
    assert (changed.paid_daily_cap, changed.auto_min_contention, changed.mode) == (
        0,
        Decimal("0.5"),
        "hybrid",
    )
    assert policy == ProjectPolicy()


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("paid_daily_cap", "unlimited", "no uncapped value"),
        ("paid_daily_cap", "-1", "no uncapped value"),
        ("mode", "both", "one of singleton, hybrid, auto"),
        ("overflow_after_seconds", "1.5", "whole number of seconds"),
        ("lease_seconds", "60", "one of mode"),
        ("paid_dayly_cap", "1", "did you mean 'paid_daily_cap'"),
    ],
)
def test_a_change_that_cannot_be(key: str, text: str, words: str) -> None:
    """The refusal names the key and what it takes."""
    with pytest.raises(InvalidInput, match=words) as caught:
        ProjectPolicy().changed(key, text)
    assert key in str(caught.value)


def test_a_malformed_overlay_names_its_variable() -> None:
    """Only the variables of a project's keys are judged, each by name and all at once."""
    environ = {
        "VIBEY_ENGINES_MODE": "?",
        "VIBEY_ENGINES_PAID_DAILY_CAP": "?",
        "VIBEY_ENGINES_LEASE_SECONDS": "?",
    }
    with pytest.raises(SettingsError) as caught:
        ProjectPolicy().overlaid(environ)
    names = {problem.key for problem in caught.value.problems}
    assert names == {"VIBEY_ENGINES_MODE", "VIBEY_ENGINES_PAID_DAILY_CAP"}
