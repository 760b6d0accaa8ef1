"""`vibey init` and `vibey doctor` on the real clients, in a home where nobody is logged in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import clients
from tests.support.cli import Cli
from tests.support.recordings import CLIENTS as CLIENT_KINDS
from vibey.services import discovery
from vibey.services.discovery import CLIENTS
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    SettleIn = Callable[[Mapping[str, str]], None]


@pytest.mark.clients
@pytest.mark.parametrize("versions", [clients.pinned(), clients.newest()], ids=[clients.PINNED, clients.NEWEST])
def test_every_client_is_found_as_it_is(
    versions: Mapping[str, str],
    settle_in: SettleIn,
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each with its version and its missing login; the file is good, and the doctor says the same, with what to do."""
    if set(versions) != set(CLIENT_KINDS):
        pytest.skip("; ".join(clients.left_out()) or "nothing newer is installed; run: make test-clients")
    settle_in(versions)
    monkeypatch.setattr(discovery, "SERVERS", {})
    for name in {name for vendor in CLIENTS.values() for name in vendor.keys}:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "vibey.toml"
    vibey = Cli(path, VIBEY_DATABASE_URL=database_url, VIBEY_REDIS_URL=redis_url)
    found = {each["name"]: each for each in vibey("init", "--json").json["engines"]}
    assert {name: each["version"] for name, each in found.items()} == {
        client.binary: versions[kind] for kind, client in CLIENT_KINDS.items()
    }
    logins = {name: each["logged_in"] for name, each in found.items()}
    assert logins == {**dict.fromkeys(found, False), "opencode": None}
    assert sorted(load(path, {}).engine) == sorted(found)
    assert vibey("config", "check").code == 0
    checks = {each["name"]: each for each in vibey("doctor", "--json").json["checks"]}
    for name, each in found.items():
        told = checks[f"engine {name}"]
        assert told["state"] == ("ok" if name == "opencode" else "fail"), told
        assert told["detail"].startswith(f"{each['version']}, "), told
        # init knows more: which variable it would take a key from.
        assert each["needs"].startswith(told["fix"])
        assert bool(each["needs"]) == bool(told["fix"])
        assert "}" not in told["detail"]


@pytest.mark.clients
def test_a_key_stands_in_for_a_login(settle_in: SettleIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is logged in, a key of the environment makes a client ready, and the file names its variable."""
    settle_in(clients.pinned())
    monkeypatch.setattr(discovery, "SERVERS", {})
    for name in {name for vendor in CLIENTS.values() for name in vendor.keys}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", "sk-test-key-of-nobody-0123456789")
    path = tmp_path / "vibey.toml"
    found = {each["name"]: each for each in Cli(path)("init", "--json").json["engines"]}
    assert (found["gemini"]["logged_in"], found["gemini"]["needs"]) == (True, "")
    engines = load(path, {}).engine
    assert {name: engine.api_key_env for name, engine in engines.items() if engine.api_key_env} == {
        "gemini": "GEMINI_API_KEY"
    }
    assert "0123456789" not in path.read_text(encoding="utf-8")
