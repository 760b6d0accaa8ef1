"""`vibey init` and `vibey doctor` on the real clients, in a home where nobody is logged in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support import clients
from tests.support.cli import Cli
from vibey.services import discovery
from vibey.services.discovery import CLIENTS
from vibey.settings import load

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "gemini": "@google/gemini-cli",
    "qwen": "@qwen-code/qwen-code",
}


@pytest.mark.clients
@pytest.mark.usefixtures("client_home")
def test_every_client_is_found_as_it_is(
    database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its version and its missing login; the file is good, and the doctor says the same, with what to do."""
    monkeypatch.setattr(discovery, "SERVERS", {})
    for name in {name for vendor in CLIENTS.values() for name in vendor.keys}:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "vibey.toml"
    vibey = Cli(path, VIBEY_DATABASE_URL=database_url, VIBEY_REDIS_URL=redis_url)
    found = {each["name"]: each for each in vibey("init", "--json").json["engines"]}
    wanted = json.loads(clients.PACKAGES.read_text(encoding="utf-8"))["dependencies"]
    assert {name: each["version"] for name, each in found.items()} == {
        name: wanted[package] for name, package in PACKAGES.items()
    }
    logins = {name: each["logged_in"] for name, each in found.items()}
    assert logins == {**dict.fromkeys(PACKAGES, False), "opencode": None}
    assert sorted(load(path, {}).engine) == sorted(PACKAGES)
    assert vibey("config", "check").code == 0
    checks = {each["name"]: each for each in vibey("doctor", "--json").json["checks"]}
    for name, each in found.items():
        told = checks[f"engine {name}"]
        assert told["state"] == ("ok" if name == "opencode" else "fail"), told
        assert told["detail"].startswith(f"{each['version']}, "), told
        assert told["fix"] == each["needs"]
        assert "}" not in told["detail"]


@pytest.mark.clients
@pytest.mark.usefixtures("client_home")
def test_a_key_stands_in_for_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is logged in, a key of the environment makes a client ready, and the file names its variable."""
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
