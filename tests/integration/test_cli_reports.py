"""What the command line reports: stable JSON keys, reasons in words, and tables that fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Cli
from tests.support.databases import query
from tests.support.fleet import ROOT
from vibey.services.display import clock
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.commandline import CommandLine

JOB_KEYS = {"job_id", "project", "state", "attempt", "engine", "reason", "result", "runs"}
RUN_KEYS = {"run_id", "engine", "why", "state", "granted_at", "started_at", "ended_at"}
ENGINE_KEYS = {
    "name",
    "tier",
    "slots",
    "in_use",
    "circuit",
    "weight",
    "expected_share",
    "selected_count",
    "share",
    "worker",
    "paused",
    "detail",
    "remark",
    "demoted_until",
    "selected_at",
    "layers",
}
STATUS_KEYS = {"mode", "mode_source", "mode_reason", "queued", "held", "running", "cap", "engines", "as_of"}
SLOT_KEYS = {
    "engine",
    "run_id",
    "job_id",
    "project",
    "holder",
    "host",
    "pid",
    "age_seconds",
    "renewed_at",
    "renewed_seconds",
    "lease_left_seconds",
}


def test_a_job_from_queue_to_end(vibey: CommandLine) -> None:
    """A job's state, reason and runs follow it from the queue to its end, under stable keys."""
    (job,) = vibey.enqueued()
    queued = vibey("job", job, "--json").json
    assert queued.keys() >= JOB_KEYS
    assert (queued["state"], queued["reason"], queued["runs"]) == ("queued", "not looked at yet", [])
    vibey.route()
    granted = vibey("job", job, "--json").json
    assert granted["state"] == "granted"
    assert "waits for its worker" in granted["reason"]
    ((run, token, engine),) = vibey.bench.live()
    carry_out(vibey.bench.installation, run, token)
    ended = vibey("job", job, "--json").json
    assert (ended["state"], ended["engine"]) == ("succeeded", engine)
    assert ended["runs"][0].keys() >= RUN_KEYS
    assert ended["runs"][0]["ended_at"].endswith("Z")


def test_reasons_of_queued_jobs(vibey: CommandLine) -> None:
    """A full fleet, a missing worker, an impossible wish and a backoff are each told in words."""
    vibey.bench.enqueue(3)
    (full,) = vibey.enqueued()
    (lone,) = vibey.enqueued(1, "--exclude", "near", "--exclude", "far", "--exclude", "bought", "--anyway")
    vibey.route()
    assert "full" in vibey("job", full, "--json").json["reason"]
    assert "no configured engine can serve what it asks" in vibey("job", lone, "--json").json["reason"]
    query(vibey.bench.url, "delete from workers")
    query(
        vibey.bench.url,
        f"update jobs set not_before = now() + interval '1 h', reason = 'work: exit 1' where id = {lone}",
    )
    vibey.route()
    assert "no live worker" in vibey("job", full, "--json").json["reason"]
    backing_off = vibey("job", lone, "--json").json["reason"]
    assert backing_off.startswith("backing off until ")
    assert backing_off.endswith("after: work: exit 1")


def test_jobs_are_filtered_and_paged(vibey: CommandLine) -> None:
    """Filters narrow the list, newest first, and `--before` gives the next page."""
    vibey("new", "website")
    ours = vibey.enqueued(3)
    theirs = vibey.enqueued(1, "-p", "website")
    listed = vibey("jobs", "--json", "-p", "default", "-n", "2").json
    assert [job["job_id"] for job in listed["jobs"]] == ours[:0:-1]
    rest = vibey("jobs", "--json", "-p", "default", "--before", listed["next_before"]).json
    assert [job["job_id"] for job in rest["jobs"]] == ours[:1]
    assert [job["job_id"] for job in vibey("jobs", "--json", "-p", "website").json["jobs"]] == theirs
    assert vibey("jobs", "--json", "--state", "failed").json["jobs"] == []
    vibey.route()
    engine = vibey("jobs", "--json", "--state", "granted").json["jobs"][0]["engine"]
    assert vibey("jobs", "--json", "-e", engine).json["jobs"] != []


def test_engines_and_their_shares(vibey: CommandLine) -> None:
    """Picks and offered shares are fractions that sum to one over the fleet."""
    vibey.enqueued(3)
    vibey.route()
    found = vibey("engines", "--json").json["engines"]
    assert [each["name"] for each in found] == ["near", "far", "bought"]
    assert all(each.keys() >= ENGINE_KEYS for each in found)
    assert [each["in_use"] for each in found] == [2, 1, 0]
    assert sum(each["share"] for each in found) == pytest.approx(1)
    assert sum(each["expected_share"] for each in found) == pytest.approx(1)
    assert found[2]["expected_share"] == 0
    assert found[0]["weight"] == 2


def test_slots_and_their_holders(vibey: CommandLine) -> None:
    """Every slot is listed, with the run that holds it or with nothing."""
    (job,) = vibey.enqueued()
    vibey.route()
    found = vibey("slots", "--json").json["slots"]
    assert len(found) == 2 + 1 + 2
    assert all(each.keys() >= SLOT_KEYS for each in found)
    held = [each for each in found if each["run_id"] is not None]
    assert [each["job_id"] for each in held] == [job]
    assert held[0]["lease_left_seconds"] > 0


def test_status_and_the_cap(vibey: CommandLine) -> None:
    """Status counts the queue, names the mode's source, and counts today's cap units that were not given back."""
    vibey.enqueued(5)
    vibey.route()
    for run, kind in ((1, "Selected"), (2, "Selected"), (2, "Released")):
        query(
            vibey.bench.url,
            "insert into ledger (kind, project_id, job_id, run_id, utc_day) "
            f"select 'EngineOverflow{kind}', id, 1, {run}, (now() at time zone 'UTC')::date from projects",
        )
    found = vibey("status", "--json").json
    assert found.keys() >= STATUS_KEYS
    assert (found["mode"], found["mode_source"]) == ("singleton", "declared")
    assert (found["queued"], found["granted"], found["held"]) == (2, 3, 0)
    assert found["cap"].keys() >= {"limit", "used", "remaining", "utc_day"}
    assert (found["cap"]["limit"], found["cap"]["used"], found["cap"]["remaining"]) == (10, 1, 9)
    hybrid = vibey("status", "--json", VIBEY_ENGINES_MODE="hybrid", VIBEY_ENGINES_PAID_DAILY_CAP="0").json
    assert (hybrid["mode"], hybrid["mode_source"], hybrid["cap"]["remaining"]) == ("hybrid", "declared", 0)


def test_a_hybrid_day_in_words(vibey: CommandLine) -> None:
    """Held jobs are counted and say since when and until when; with the cap spent, and with fallback barred, why."""
    vibey.set_default(mode="hybrid", paid_daily_cap=1, overflow_after_seconds=60)
    jobs = vibey.enqueued(5)
    vibey.route()
    assert vibey("status", "--json").json["held"] == 2
    held = vibey("job", jobs[-1], "--json").json
    assert held["reason"].startswith(f"held since {clock(held['held_at'])} UTC: every local slot it may use is in use")
    assert "1 of 1 paid units are left" in held["reason"]
    assert held["reason"] in {job["reason"] for job in vibey("jobs", "--json").json["jobs"]}
    query(vibey.bench.url, "update jobs set held_at = held_at - interval '61 s' where held_at is not null")
    vibey.route()
    found = vibey("status", "--json").json
    assert (found["queued"], found["held"], found["cap"]["used"], found["cap"]["remaining"]) == (1, 0, 1, 0)
    reason = vibey("job", jobs[-1], "--json").json["reason"]
    assert "full" in reason
    assert "cap of 1 for" in reason
    assert "00:00:00 UTC" in reason
    for engine in ("near", "far"):
        vibey("engine", "pause", engine)
    for rule, words in (
        ("count", "only paid engines may serve it now, and the paid cap of 1"),
        ("never", "keeps it from"),
    ):
        vibey.set_default(paid_fallback=rule)
        vibey.route()
        assert words in vibey("job", jobs[-1], "--json").json["reason"]


def test_enqueue_says_that_a_spent_cap_is_waited_for(vibey: CommandLine) -> None:
    """Of a job that only paid engines may run, beside local ones; not while a unit is left, nor of others."""
    vibey.set_default(paid_daily_cap=1)
    paid_alone = ("enqueue", "{}", "--exclude", "near", "--exclude", "far")
    assert vibey(*paid_alone).err == ""
    vibey.route()
    spent = vibey(*paid_alone)
    assert (spent.code, spent.out.count("\n")) == (0, 1)
    assert spent.err.startswith("it waits: only paid engines may serve it now, and the paid cap of 1 for")
    assert vibey("enqueue", "{}").err == ""


def test_cost_by_day_project_and_engine(vibey: CommandLine) -> None:
    """Runs, tokens, dollars and units stand under the UTC day of their grant, today first, with each day's sum."""
    vibey.set_default(mode="hybrid", overflow_after_seconds=0)
    vibey("new", "idle")
    vibey.enqueued(5)
    vibey.route()
    query(
        vibey.bench.url,
        "update runs set started_at = granted_at, tokens_in = 10, tokens_out = 2, cost_usd = 0.25 "
        "where engine <> 'far'",
    )
    query(vibey.bench.url, "update runs set granted_at = granted_at - interval '1 day' where id = 1")
    found = vibey("cost", "--days", "2", "--json").json["days"]
    today, before = found
    assert today["utc_day"] > before["utc_day"]
    rows = {row["engine"]: row for row in today["rows"]}
    assert {name: (row["runs"], row["paid_units"]) for name, row in rows.items()} == {"near": (1, 0), "bought": (2, 2)}
    assert (rows["bought"]["tier"], rows["bought"]["tokens_in"], rows["bought"]["cost_usd"]) == ("paid", 20, 0.5)
    assert (today["runs"], today["tokens_out"], today["cost_usd"], today["paid_units"]) == (3, 6, 0.75, 2)
    assert [(row["engine"], row["runs"]) for row in before["rows"]] == [("near", 1)]
    assert vibey("cost", "-p", "idle", "-d", "1", "--json").json["days"][0]["rows"] == []
    assert "bought" in vibey("cost", COLUMNS="80").out
    assert vibey("cost", "--days", "0").code == 2


def test_an_audit_and_its_exit_code(vibey: CommandLine) -> None:
    """Exit 0 while every invariant holds, 1 with the breach named when one does not."""
    vibey.enqueued(2)
    vibey.route()
    sound = vibey("audit", "--json")
    assert (sound.code, sound.json["ok"], sound.json["violations"]) == (0, True, [])
    assert sound.json["checked"]["runs"] == 2
    assert "every invariant held" in vibey("audit").out
    query(vibey.bench.url, "update credits set credit = credit + 1 where member = 'near'")
    broken = vibey("audit", "--json")
    assert (broken.code, broken.json["ok"]) == (1, False)
    assert {each["invariant"] for each in broken.json["violations"]} == {"I7"}
    assert "I7" in vibey("audit").out


def test_the_ledger_and_its_public_side(vibey: CommandLine) -> None:
    """The ledger is filtered and paged; its public side leaves out how engines were dispatched."""
    (job,) = vibey.enqueued()
    dispatch = (
        "EngineSlotWaitStarted",
        "EngineOverflowSelected",
        "EngineOverflowReleased",
        "PaidFallbackSelected",
        "EngineDispatchMeasured",
    )
    for kind in dispatch:
        query(vibey.bench.url, f"insert into ledger (kind, job_id) values ('{kind}', {job})")
    everything = vibey("ledger", "--job", job, "--json").json["events"]
    assert [event["kind"] for event in everything] == [*reversed(dispatch), "JobEnqueued"]
    public = vibey("ledger", "--job", job, "--public", "--json").json["events"]
    assert [event["kind"] for event in public] == ["JobEnqueued"]
    page = vibey("ledger", "--job", job, "-n", "1", "--json").json
    older = vibey("ledger", "--job", job, "--before", page["next_before"], "--json").json
    assert [event["kind"] for event in older["events"]] == [*reversed(dispatch[:-1]), "JobEnqueued"]


def test_output_of_a_run_elsewhere(vibey: CommandLine) -> None:
    """Of a run on another machine the stored end is shown, and said to be that."""
    (job,) = vibey.enqueued()
    assert vibey("logs", job, "--json").json["source"] == "none"
    vibey.route()
    query(vibey.bench.url, "update runs set host = 'elsewhere', output_tail = E'one\\ntwo\\n'")
    said = vibey("logs", job, "-n", "1")
    assert (said.out, "elsewhere" in said.err) == ("two\n", True)
    assert vibey("logs", job, "--json").json["text"] == "one\ntwo\n"
    assert vibey("logs", job, "-f").code == 3


def test_doctor_finds_what_is_missing(vibey: CommandLine) -> None:
    """Doctor is one line a check; a missing beat fails it, and paid work outside the cap is warned of."""
    vibey.set_default(paid_fallback="allow")
    query(vibey.bench.url, "update installation set last_tick_at = null")
    said = vibey("doctor", "--json")
    found = {check["name"]: check for check in said.json["checks"]}
    assert (said.code, said.json["ok"], found["beat"]["state"]) == (1, False, "fail")
    assert found["cap"]["state"] == "warn"
    assert {found[name]["state"] for name in ("postgres", "redis", "schema", "engine near", "workers")} == {"ok"}
    query(vibey.bench.url, "update installation set last_tick_at = now()")
    vibey.set_default(paid_daily_cap_covers="all")
    mended = vibey("doctor", "--json")
    assert mended.code == 0
    assert "cap" not in {each["name"] for each in mended.json["checks"]}
    vibey.bench.staff("near")
    lacking = vibey("doctor")
    assert lacking.code == 1
    assert "no live worker serves far, bought" in lacking.out


def test_what_is_in_force_and_why(vibey: CommandLine) -> None:
    """`config show` names the source of each key, and hides passwords."""
    rows = vibey("config", "show", "--json", VIBEY_ENGINES_PAID_DAILY_CAP="4").json["settings"]
    cap = next(row for row in rows if row["key"] == "engines.paid_daily_cap")
    assert (cap["value"], cap["source"]) == (4, "environment VIBEY_ENGINES_PAID_DAILY_CAP")
    url = next(row for row in rows if row["key"] == "services.database_url")
    assert "***" in url["value"]
    assert vibey("config", "check").code == 0


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal(vibey: CommandLine, width: int) -> None:
    """No line is wider than the terminal, whatever the names are, and none is coloured."""
    long = "a-project-with-quite-a-name-of-its-own"
    vibey("new", long)
    jobs = vibey.enqueued(4, "-p", long)
    vibey.route()
    for command in (
        ["jobs"],
        ["slots"],
        ["engines"],
        ["status"],
        ["ledger"],
        ["job", jobs[0]],
        ["config", "show"],
        ["cost"],
    ):
        said = vibey(*command, COLUMNS=str(width))
        assert said.code == 0
        assert max(len(line) for line in said.out.splitlines()) <= width
        assert "\x1b" not in said.out


def test_what_a_terminal_would_obey_is_not_passed_on(vibey: CommandLine) -> None:
    """A payload's control characters reach nobody's terminal."""
    job = vibey("enqueue", json.dumps({"a": "\x1b[2J\x07"}), "--json").json["job_id"]
    query(vibey.bench.url, f"update jobs set reason = E'\\x1b[31mred' where id = {job}")
    for command in (["job", job], ["jobs"]):
        assert "\x1b" not in vibey(*command).out


@pytest.mark.parametrize("command", ["", "up", "enqueue", "project", "config show", "ledger", "engine prefer"])
def test_help_ends_with_examples(command: str) -> None:
    """Every help text ends with examples that fit a terminal of 80 columns."""
    said = Cli()(*command.split(), "--help")
    assert said.code == 0
    *_, examples = said.out.partition("Examples:\n")
    assert examples.strip().startswith(("vibey", "producer"))
    assert max(len(line) for line in examples.splitlines()) <= 80


def test_looking_loads_no_broker(vibey: CommandLine, tmp_path: Path) -> None:
    """A command that only looks imports neither Celery nor Redis' client, each a quarter of a second."""
    vibey.enqueued()
    program = (
        "import sys; from vibey.cli.main import cli\n"
        "try: cli.main(['jobs'])\n"
        "except SystemExit: print(*sorted(sys.modules.keys() & {'celery', 'kombu', 'redis', 'alembic'}))"
    )
    environment = {**os.environ, "VIBEY_CONFIG": str(tmp_path / "vibey.toml"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "default" in said.stdout
    assert said.stdout.endswith("\n\n"), said.stdout


@pytest.mark.parametrize("command", [("status",), ("mode",), ("job", "1"), ("explain", "1")])
def test_what_is_said_of_a_label_stands_below_its_beginning(vibey: CommandLine, command: tuple[str, ...]) -> None:
    """On a narrow screen a folded line never begins where the labels do."""
    vibey.enqueued(1, "--title", "a title " * 15)
    said = vibey(*command, COLUMNS="60").out.split("\n\n")[0].splitlines()
    wide = vibey(*command, COLUMNS="1000").out.split("\n\n")[0].splitlines()
    begins = [line for line in said if not line.startswith(" ") and not line.startswith("as of ")]
    assert len(said) > len(wide)
    assert [line.split()[0] for line in begins] == [
        line.split()[0] for line in wide if line[0] != " " and "as of " not in line[:6]
    ]
