"""Real clients whose requests the tap does not see: what still ends a refused run, and who is told.

A program in the client's place takes the tap's variables away, so that the client is as one that the tap cannot watch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support import clients
from tests.support.provider import Provider, Refuse, Say
from tests.support.recordings import CLIENTS
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.engines.registry import equipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.clients import Installed

    SettleIn = Callable[[Mapping[str, str]], None]

TAPPED = [client for client in clients.every() if CLIENTS[client.kind].taps]
STALL_SECONDS = 20.0
HIDES = "this version hides its requests"


def blind(client: Installed, folder: Path) -> str:
    """A PATH on which the client comes without a tap."""
    program = folder / "blind" / CLIENTS[client.kind].binary
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nunset VIBEY_TAP NODE_OPTIONS\nexec "{client.programs / program.name}" "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.clients
@pytest.mark.timeout(400)
@pytest.mark.parametrize("client", TAPPED, ids=str)
def test_a_refusal_that_nobody_shows_is_a_stall(
    client: Installed, settle_in: SettleIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client would wait for an hour; what it does meanwhile is too little to pass for work."""
    settle_in({client.kind: client.version})
    monkeypatch.setenv("PATH", blind(client, tmp_path))
    with Provider(Refuse("rate_limited", 3600)) as provider:
        outcome = clients.run(client.kind, provider, tmp_path, {"prompt": "go"}, STALL_SECONDS)
        assert provider.refusals()
    assert isinstance(outcome, Failure)
    # gemini alone prints it.
    shown = client.kind == "gemini"
    assert outcome.failure_class is (FailureClass.CAPACITY if shown else FailureClass.ENGINE), outcome
    assert outcome.detail.startswith("stall: no output") != shown, outcome


@pytest.mark.clients
@pytest.mark.timeout(400)
@pytest.mark.parametrize("client", TAPPED, ids=str)
def test_it_is_told_that_requests_are_hidden(
    client: Installed, settle_in: SettleIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the run's log and by the doctor, and no longer once the tap has seen a request of the client's."""
    settle_in({client.kind: client.version})
    with Provider(Say("BUILD OK")) as provider:
        doctor = equipped(clients.engine(client.kind, provider, tmp_path)).doctor

        def logged() -> bool:
            outcome = clients.run(client.kind, provider, tmp_path, {"prompt": "go"})
            assert isinstance(outcome, Success), outcome
            log = max(tmp_path.glob("*/run-70/output.log"), key=lambda path: path.stat().st_mtime_ns)
            return HIDES in log.read_text()

        with monkeypatch.context() as patched:
            patched.setenv("PATH", blind(client, tmp_path))
            assert logged()
        health = doctor()
        assert (health.good, HIDES in health.detail, bool(health.fix)) == (True, True, True), health
        assert not logged()
        assert HIDES not in doctor().detail
