"""What a configuration changes, in words, and what a generation holds of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vibey.domain.errors import SettingsError
from vibey.settings import Settings, Source, settings_of
from vibey.settings.applied import content_of, disagreement, followed, policy_in
from vibey.settings.difference import differences, removed_pools, replaced_engines, rerun_engines

BASE: dict[str, Any] = {
    "engines": {"paid_daily_cap": 10, "slots": {"near": 2}},
    "engine": {
        "near": {"kind": "command", "tier": "local", "argv": ["job", "--fast"]},
        "claude": {"kind": "claude-code", "account": "anthropic", "price_in": 3, "workspace_roots": ["/src"]},
    },
    "pool": {"main": {"members": ["near", "claude"]}},
    "schedule": {"night": {"member": "near", "factor": 2, "from": "22:00", "to": "06:00"}},
    "verify": {"unit": {"argv": ["make", "test"]}},
}


def _settings(tables: dict[str, Any], environ: dict[str, str] | None = None) -> Settings:
    return settings_of(Source(None, Path("/etc/vibey"), tables), environ or {})


def _with(table: str, **changes: Any) -> dict[str, Any]:
    return {**BASE, table: {**BASE[table], **changes}}


def _engine(name: str, **changes: Any) -> dict[str, Any]:
    return _with("engine", **{name: {**BASE["engine"][name], **changes}})


def _words(tables: dict[str, Any]) -> list[str]:
    return [str(change) for change in differences(content_of(_settings(BASE)), content_of(_settings(tables)))]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (BASE, []),
        (_with("engines", slots={"near": 4}), ["~ engine near: slots 2 → 4"]),
        (_engine("near", weight=2.5), ["~ engine near: weight 1 → 2.5"]),
        (_engine("claude", price_out=15), ["~ engine claude: price 3 dollars → 18 dollars"]),
        (_engine("claude", account="other"), ["~ engine claude: account anthropic → other"]),
        (_engine("near", argv=["job", "--slow"]), ["~ engine near: another argv"]),
        (_engine("claude", capabilities=["web"]), ["~ engine claude: capabilities none → web"]),
        (_engine("claude", efforts={"high": ["-x"]}), ["~ engine claude: efforts none → high; another efforts"]),
        (
            _with("engine", extra={"kind": "noop", "account": "spare"}),
            ["+ engine extra: paid, noop, 2 slots, account spare"],
        ),
        (_with("pool", main={"members": ["claude", "near"]}), ["~ pool main: members near, claude → claude, near"]),
        (
            _with("pool", spare={"select": "weighted", "members": [{"engine": "near", "weight": 2}]}),
            ["+ pool spare: weighted: near (weight 2)"],
        ),
        ({**BASE, "pool": {}}, ["- pool main"]),
        (
            _with("schedule", night={"member": "near", "factor": 0.5, "from": "22:00", "to": "06:00"}),
            ["~ schedule night: factor 2 → 0.5"],
        ),
        ({**BASE, "schedule": {}}, ["- schedule night"]),
        (_with("verify", lint={"argv": ["lint"]}), ["~ engine claude: another checks", "+ check lint"]),
        (
            _with("engines", paid_daily_cap=2),
            ["~ paid_daily_cap: 10 → 2 (project default; other projects keep theirs)"],
        ),
        (_with("engines", lease_seconds=30), ["~ lease_seconds: 60 → 30"]),
    ],
)
def test_a_difference_is_told_as_the_file_writes_it(tables: dict[str, Any], expected: list[str]) -> None:
    """Each thing that differs is one line, with the value before and the value after where they can be known."""
    assert _words(tables) == expected


def test_removed_engines_and_other_engines_of_the_same_name_are_told_apart_from_changed_ones() -> None:
    """Grants are withdrawn where kind or account changed; only what runs an engine makes workers read their file."""
    before = content_of(_settings(BASE))
    moved = content_of(_settings(_engine("claude", account="other")))
    rerun = content_of(_settings(_engine("near", argv=["other"])))
    heavier = content_of(_settings(_engine("near", weight=2)))
    gone = content_of(_settings({"engine": {"claude": BASE["engine"]["claude"]}}))
    assert (replaced_engines(before, moved), rerun_engines(before, moved)) == (("claude",), ("claude",))
    assert (replaced_engines(before, rerun), rerun_engines(before, rerun)) == ((), ("near",))
    assert (replaced_engines(before, heavier), rerun_engines(before, heavier)) == ((), ())
    assert (replaced_engines(before, gone), removed_pools(before, gone)) == (("near",), ("main",))


def test_the_first_generation_lists_engines_and_not_every_key() -> None:
    """Before the first there is nothing to compare the keys of `[engines]` with."""
    assert [str(change) for change in differences(None, content_of(_settings(BASE)))][:2] == [
        "+ engine near: local, command, 2 slots",
        "+ engine claude: paid, claude-code, 2 slots, account anthropic",
    ]
    assert not any("cap" in str(change) for change in differences(None, content_of(_settings(BASE))))


def test_of_the_environment_three_keys_are_not_stored_and_the_others_are() -> None:
    """What a router lays over at each pass is not applied twice; the other variables count as they were at `apply`."""
    environ = {"VIBEY_ENGINES_PAID_DAILY_CAP": "3", "VIBEY_ENGINES_LEASE_SECONDS": "9"}
    stored = content_of(_settings(BASE, environ))["engines"]
    assert (stored["paid_daily_cap"], stored["lease_seconds"]) == (10, 9)


def test_settings_follow_a_generation_but_for_what_runs_engines() -> None:
    """Keys, slots and schedules are the generation's; the program is this file's; three variables are laid over."""
    content = content_of(_settings(_with("engines", lease_seconds=30, slots={"near": 7})))
    own = _settings(_engine("near", argv=["mine"]), {"VIBEY_ENGINES_PAID_DAILY_CAP": "3"})
    found = followed(own, content)
    assert (found.engines.lease_seconds, found.slots_of("near"), found.engine["near"].argv) == (30, 7, ("mine",))
    assert (found.engines.paid_daily_cap, found.declared.paid_daily_cap) == (3, 10)
    assert followed(_settings({"engine": BASE["engine"]}), content).windows() == own.windows()


def test_keys_that_a_generation_does_not_hold_stay_as_the_file_says() -> None:
    """The first generation of a database of an earlier version knows policy, engines and pools, and no more."""
    content = content_of(_settings(BASE))
    old = {**content, "engines": policy_in(content)}
    del old["schedule"]
    found = followed(_settings(_with("engines", lease_seconds=30)), old)
    assert (found.engines.lease_seconds, found.windows()) == (30, _settings(BASE).windows())


def test_a_process_knows_which_engines_its_file_would_run_in_another_way() -> None:
    """Kind and every key that says what runs an engine count; weights, slots and prices do not."""
    content = content_of(_settings(BASE))
    assert disagreement(_settings(_engine("near", weight=9)), content, "near") == ""
    assert disagreement(_settings(_engine("near", argv=["mine"])), content, "near") == "another argv for near"
    other = _engine("near", kind="noop")
    del other["engine"]["near"]["argv"]
    assert disagreement(_settings(other), content, "near") == "another kind for near (noop instead of command)"
    assert disagreement(_settings({}), content, "near") == "no engine near in its file"


def test_paths_of_one_machine_are_no_disagreement() -> None:
    """A `[host.NAME]` table changes the program and the folders here; the digest is of the words of all machines."""
    hosts = {"desk": {"near": {"argv": ["/opt/job"]}, "claude": {"workspace_roots": ["/home/me/src"]}}}
    tables = {**BASE, "host": hosts}
    desk, elsewhere = _settings(tables, {"VIBEY_HOST": "desk"}), _settings(tables, {"VIBEY_HOST": "attic"})
    assert desk.engine["near"].argv == ("/opt/job", "--fast")
    assert desk.engine["claude"].workspace_roots == (Path("/home/me/src"),)
    assert {key: source for key, _, source in desk.effective()}["engine.near.argv"] == "host desk"
    assert elsewhere.engine["near"].argv == ("job", "--fast")
    assert content_of(desk) == content_of(elsewhere)
    assert content_of(desk)["engine"]["claude"]["workspace_roots"] == ["/src", "/home/me/src"]
    assert [disagreement(each, content_of(_settings(BASE)), "near") for each in (desk, elsewhere)] == ["", ""]


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ({"desk": {"nearer": {"argv": ["x"]}}}, "host.desk.nearer"),
        ({"desk": {"near": {"model": "x"}}}, "host.desk.near.model"),
        ({"desk": {"near": {"argv": ["x", "y"]}}}, "host.desk.near.argv"),
        ({"desk": {"claude": {"argv": ["x"]}}}, "host.desk.claude.argv"),
        ({"desk": 1}, "host.desk"),
    ],
)
def test_every_host_table_is_checked_on_every_machine(host: dict[str, Any], key: str) -> None:
    """A mistake in another machine's table is told here, where the file is checked."""
    with pytest.raises(SettingsError) as found:
        _settings({**BASE, "host": host}, {"VIBEY_HOST": "attic"})
    assert [problem.key for problem in found.value.problems] == [key]
