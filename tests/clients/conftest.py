"""Fixtures for real clients: where there are none, the tests say what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import clients

if TYPE_CHECKING:
    from pathlib import Path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how each run ended and how soon its slot was free; nothing is decided by it."""
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == "end":
                terminalreporter.write_line(str(line))


@pytest.fixture
def client_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home for the clients; a PATH and a key for the workers. Skips where the clients are not installed."""
    reason = clients.missing()
    if reason:
        pytest.skip(reason)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("PATH", clients.path())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLIENTS_TEST_KEY", "sk-test-key-of-nobody-0123456789")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
