"""Fixtures for real clients: where there are none, the tests say what is missing; what was tried is kept."""

from __future__ import annotations

import datetime as dt
import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.support import clients
from tests.support.clients import Installed
from vibey.engines import looking
from vibey.engines.clients import tried
from vibey.services import discovery, fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

RECORD_VARIABLE = "VIBEY_RECORD_CLIENTS"
"""With this variable set, what was tried is written down for `vibey doctor` and the reference."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how each run ended and how soon its slot was free, what was tried, and what was left out."""
    reports = [each for state in ("passed", "failed") for each in terminalreporter.getreports(state)]
    properties = [[(name, str(value)) for name, value in report.user_properties] for report in reports]
    for name, line in (pair for listed in properties for pair in listed):
        if name == "end":
            terminalreporter.write_line(line)
    found: dict[str, set[str]] = {}
    for listed in properties:
        for client in (value for name, value in listed if name == "client"):
            found.setdefault(client, set()).update(value for name, value in listed if name == "failed")
    for client, failed in sorted(found.items()):
        terminalreporter.write_line(f"tried: {client}: {', '.join(sorted(failed)) or 'all well'}")
    for line in clients.left_out():
        terminalreporter.write_line(f"left out: {line}")
    if os.environ.get(RECORD_VARIABLE):
        _record(found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterable[None]:
    """Note the client that a test tries, and a failure that no scenario of it has noted."""
    report = yield
    client = getattr(item, "callspec", None) and item.callspec.params.get("client")  # type: ignore[attr-defined]
    if report.when == "call" and isinstance(client, Installed):  # type: ignore[attr-defined]
        report.user_properties.append(("client", str(client)))  # type: ignore[attr-defined]
        if report.failed and all(name != "failed" for name, _ in report.user_properties):  # type: ignore[attr-defined]
            report.user_properties.append(("failed", item.originalname))  # type: ignore[attr-defined]
    return report


@pytest.fixture
def settle_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], None]:
    """Gives a test these versions of clients, an empty home and a key; skips where one is not installed."""

    def begin(versions: Mapping[str, str]) -> None:
        for kind, version in versions.items():
            if reason := Installed(kind, version).missing:
                pytest.skip(reason)
        # The clients lie below the home that is left.
        monkeypatch.setenv("VIBEY_CLIENTS_DIR", str(clients.folder()))
        # A loaded machine takes long to start five clients at once, and that is not what is tested.
        monkeypatch.setattr(looking, "PATIENCE_SECONDS", 60.0)
        monkeypatch.setattr(discovery, "LOOK_SECONDS", 90.0)
        monkeypatch.setattr(fleet, "LOOK_SECONDS", 90.0)
        home = tmp_path / "home"
        home.mkdir()
        monkeypatch.setenv("PATH", clients.path(versions))
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("CLIENTS_TEST_KEY", "sk-test-key-of-nobody-0123456789")
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)

    return begin


def _record(found: Mapping[str, set[str]]) -> None:
    """Write what was tried today beside what was tried before."""
    day = dt.datetime.now(dt.UTC).date().isoformat()
    kept = {kind: {trial.version: trial for trial in listed} for kind, listed in tried.trials().items()}
    for client, failed in found.items():
        kind, _, version = client.partition(" ")
        kept.setdefault(kind, {})[version] = tried.Trial(version, day, tuple(sorted(failed)))
    lines = [
        f'  "{kind}": [\n'
        + ",\n".join(
            f"    {json.dumps({'version': each.version, 'day': each.day, 'failed': list(each.failed)})}"
            for each in sorted(listed.values(), key=tried.Trial.order)
        )
        + "\n  ]"
        for kind, listed in sorted(kept.items())
    ]
    tried.RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
