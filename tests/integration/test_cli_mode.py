"""What `vibey mode` and `vibey measure` say, to programs and to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.commandline import CommandLine


MODE_KEYS = {
    "project",
    "setting",
    "mode",
    "mode_source",
    "mode_reason",
    "since",
    "measured_at",
    "next_measurement",
    "evidence",
}


def test_mode_and_measure_tell_programs(vibey: CommandLine) -> None:
    """Setting, mode, source, evidence and instants, under stable keys, before and after a measurement."""
    declared = vibey("mode", "--json").json
    assert declared.keys() >= MODE_KEYS
    assert (declared["setting"], declared["mode"], declared["mode_source"]) == ("singleton", "singleton", "declared")
    assert (declared["measured_at"], declared["next_measurement"], declared["evidence"]) == (None, None, None)
    vibey.set_default(mode="auto")
    waiting = vibey("mode", "--json").json
    assert (waiting["mode_source"], waiting["next_measurement"]) == ("fallback", waiting["as_of"])
    first = vibey("measure", "default", "--json").json
    assert first.keys() >= MODE_KEYS | {"recorded"}
    assert (first["recorded"], first["mode_source"], first["evidence"]["winner"]) == (True, "measured", "singleton")
    assert first["since"] == first["measured_at"]
    assert first["next_measurement"] > first["as_of"]
    assert not vibey("measure", "--json").json["recorded"]
    forced = vibey("measure", "--force", "--json").json
    assert forced["recorded"]
    assert forced["measured_at"] > forced["since"] == first["since"]
    status = vibey("status", "--json").json
    assert (status["mode"], status["mode_source"], status["mode_reason"]) == (
        "singleton",
        "measured",
        forced["mode_reason"],
    )
    assert vibey("mode", "nobody").code == 3


def test_mode_and_measure_tell_people(vibey: CommandLine) -> None:
    """The same in a few lines."""
    vibey.set_default(mode="auto")
    before = vibey("mode").out
    assert "before the next job is routed" in before
    after = vibey("measure").out
    assert after.startswith("measured now\n")
    assert "hybrid needs 20" in after
    assert "(measured)" in vibey("mode").out


def test_public_pages_leave_measurements_out(vibey: CommandLine) -> None:
    """A measurement names the operator's engines and slots."""
    vibey("measure")
    kinds = [vibey("ledger", *more, "--json").json["events"] for more in ((), ("--public",))]
    everything, public = ([event["kind"] for event in page] for page in kinds)
    assert "EngineDispatchMeasured" in everything
    assert "EngineDispatchMeasured" not in public


def test_a_spent_cap_is_said_by_mode_and_doctor(vibey: CommandLine) -> None:
    """Also one that was lowered below what had been used; while something is left, doctor is silent."""
    spending = {"mode": "hybrid", "paid_daily_cap_covers": "all"}
    vibey.set_default(**spending, paid_daily_cap=3)
    vibey.enqueued(2, "--engine", "bought")
    vibey.route()
    caps = [each for each in vibey("doctor", "--json").json["checks"] if each["name"] == "cap"]
    assert caps == []
    assert "2 of 3 paid units of the project used on" in vibey("mode").out
    vibey.set_default(**spending, paid_daily_cap=1)
    said = vibey("mode", COLUMNS="60").out
    assert max(map(len, said.splitlines())) <= 60
    assert "2 paid units of the project used on" in " ".join(said.split())
    assert "cap 1: spent" in " ".join(said.split())
    assert "cap 1: spent" in vibey("status").out
    [check] = [each for each in vibey("doctor", "--json").json["checks"] if each["name"] == "cap"]
    assert check["state"] == "warn"
    assert check["detail"].endswith("cap 1: spent; jobs that need a unit wait")
    assert "vibey apply" in check["fix"]
