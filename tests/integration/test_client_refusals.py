"""A coding client that refuses in words alone, run by a real installation: circuit, reset, cap and attempts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from vibey.services import views
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.installation import Bench

BEGIN = {"type": "system", "subtype": "init", "session_id": "s", "model": "x", "tools": []}
FREE = {"input_tokens": 0, "output_tokens": 0}
NEXT_WEEK = datetime.now(ZoneInfo("America/Bogota")) + timedelta(days=5)
EPOCH = int(datetime.now(UTC).timestamp()) + 7200


def _result(said: str, **more: object) -> dict[str, object]:
    return {"type": "result", "subtype": "success", "is_error": True, "result": said, **more}


@pytest.mark.parametrize(
    ("result", "exit_code", "reason", "hours", "attempts", "units"),
    [
        (_result(f"Claude AI usage limit reached|{EPOCH}"), 1, "window_exhausted", 2, 0, 0),
        (
            _result(
                f"You've hit your weekly limit \u00b7 resets {NEXT_WEEK:%b %-d, %-I%p} (America/Bogota)", usage=FREE
            ),
            1,
            "window_exhausted",
            5 * 24,
            0,
            0,
        ),
        (_result("API Error: Rate limit reached", duration_api_ms=0), 0, "window_exhausted", None, 0, 0),
        (_result("You've hit your limit", is_error=False, usage=FREE), 0, "window_exhausted", None, 0, 0),
        (_result("Credit balance is too low"), 1, "credits_exhausted", None, 0, 0),
        (_result("Prompt is too long"), 1, None, None, 1, 1),
        (_result("API Error: Claude's response exceeded the 32000 output token maximum."), 1, None, None, 1, 1),
    ],
)
def test_what_follows_from_a_sentence(
    open_bench: Callable[..., Bench],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    result: dict[str, object],
    exit_code: int,
    reason: str | None,
    hours: int | None,
    attempts: int,
    units: int,
) -> None:
    """A limit opens the account until its reset, at no cost to the job; the job's own fault opens nothing."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "lines").write_text(f"{json.dumps(BEGIN)}\n{json.dumps(result)}\n", encoding="utf-8")
    (programs / "claude").write_text(f"#!/bin/sh\ncat >/dev/null\ncat '{programs}/lines'\nexit {exit_code}\n")
    (programs / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("TEAM_KEY", "sk-planted-secret-key-0123456789")
    engine = {"kind": "claude-code", "tier": "paid", "account": "x", "api_key_env": "TEAM_KEY"}
    bench = open_bench(engine={"c": engine}, engines={"paid_daily_cap": 5, "paid_daily_cap_covers": "all"})
    bench.enqueue(1, payload={"prompt": "hi"})
    assert route(bench.installation, "main") == 1
    run, token, _ = bench.live()[0]
    assert carry_out(bench.installation, run, token) == "failed"
    assert bench.rows("select state, attempt from jobs") == [("queued", attempts)]
    opened = bench.rows("select open_reason from accounts where name = 'x' and open_reason is not null")
    assert opened == ([] if reason is None else [(reason,)])
    left = "extract(epoch from resets_at - clock_timestamp())::float / 3600"
    found = bench.rows(f"select {left} from accounts where name = 'x' and resets_at is not null")
    assert bool(found) is (hours is not None)
    assert hours is None or abs(found[0][0] - hours) < 1.1
    assert views.status(bench.installation, environ={})["cap"]["used"] == units
