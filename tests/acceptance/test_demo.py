"""`vibey demo` as a newcomer runs it: real servers, workers and jobs, in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.databases import query
from tests.support.json_output import described
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
JOBS = 20
CROWDED = """
    select r.id, r.engine, count(*) from runs r join runs other on other.engine = r.engine
      and other.granted_at <= r.granted_at and coalesce(other.ended_at, 'infinity') > r.granted_at
    join engines e on e.name = r.engine group by r.id, r.engine, e.slots having count(*) > e.slots
"""


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo that has run: its folder, what it printed, and the object it reported."""

    folder: Path
    errors: str
    report: dict[str, Any]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the demo's database, whose server it left running."""
        return query(embedded.ensure(self.folder / "data").database_url, statement)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One demo of twenty jobs."""
    folder = tmp_path_factory.mktemp("acceptance") / "demo"
    options = ["--json", "--jobs", str(JOBS), "--directory", str(folder)]
    command = [sys.executable, "-m", "vibey.cli.main", "demo", *options]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == 1, done.stdout
        yield Demo(folder, done.stderr, described("demo", json.loads(lines[0])))
    finally:
        embedded.destroy(folder / "data")


# The demo's own limit is three minutes; whichever of these tests comes first waits for it.
pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def test_report(demo: Demo) -> None:
    """One JSON object says that every job succeeded, and how the engines shared them."""
    report = demo.report
    assert (report["jobs"], report["succeeded"]) == (JOBS, JOBS)
    assert report["seconds"] > report["work_seconds"] > 0
    assert [engine["name"] for engine in report["engines"]] == ["workstation", "laptop", "subscription", "metered"]
    assert sum(engine["picks"] for engine in report["engines"]) == report["runs"]


def test_picks_follow_expected_shares(demo: Demo) -> None:
    """Every engine was picked as often as the shares it was offered say, to within one pick."""
    for engine in demo.report["engines"]:
        assert abs(engine["picks"] - engine["expected"]) < 1, engine


def test_progress_goes_to_standard_error(demo: Demo) -> None:
    """What the demo is doing is told beside the report, not in it."""
    assert f"{JOBS} of {JOBS} jobs ended" in demo.errors


def test_slots_never_exceeded(demo: Demo) -> None:
    """At no grant did an engine hold more runs than it has slots."""
    assert demo.rows(CROWDED) == []


def test_stumbles_were_tried_again(demo: Demo) -> None:
    """Two jobs failed their tests at first, one was handed over to another engine, and all succeeded in the end."""
    failed = demo.rows("select r.failure_class, r.job_id, r.engine from runs r where r.state = 'failed' order by 1")
    assert [row[0] for row in failed] == ["handoff", "work", "work"]
    last = dict(demo.rows("select job_id, engine from runs where state = 'succeeded'"))
    handed_over = failed[0]
    assert last[handed_over[1]] != handed_over[2]


def test_results_are_commits(demo: Demo) -> None:
    """Every job's result names a commit that is on the job's branch, and no unfinished branch is left."""
    repository = demo.folder / "repositories" / "shop"
    listing = ["git", "-C", str(repository), "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"]
    branches = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    results = demo.rows("select id, result->>'commit', (result->>'tests')::int from jobs order by id")
    expected = {f"vibey/{job} {commit}" for job, commit, _ in results}
    assert expected <= set(branches)
    assert len(branches) == JOBS + 2
    assert all(tests == 10 for _, _, tests in results)


def test_jobs_were_held_and_the_cap_was_kept(demo: Demo) -> None:
    """More jobs than local slots were held; what overflowed took its units, and no more than there are."""
    report = demo.report
    assert report["holds"] > 0
    assert (report["overflows"], report["cap"]["remaining"]) == (report["cap"]["used"], 4 - report["cap"]["used"])
    assert report["overflows"] <= report["cap"]["limit"] == 4
    assert report["cap"]["utc_day"] == demo.rows("select (now() at time zone 'utc')::date::text")[0][0]


def test_paid_runs_were_overflows_of_held_jobs(demo: Demo) -> None:
    """A job ran on a paid engine only after it had been held for two seconds, and none that is private ever did."""
    paid = """select r.why, 'private' = any(j.capabilities), (l.data->>'waited_seconds')::float >= 2
              from runs r join engines e on e.name = r.engine join jobs j on j.id = r.job_id
              left join ledger l on l.run_id = r.id and l.kind = 'EngineOverflowSelected' where e.tier = 'paid'"""
    assert demo.rows(paid) == [("overflow", False, True)] * demo.report["overflows"]


def test_the_demo_ends_with_an_audit(demo: Demo) -> None:
    """Every invariant held, of everything the demo's database has on record."""
    audit = demo.report["audit"]
    assert (audit["ok"], audit["violations"]) == (True, [])
    assert audit["checked"]["runs"] == demo.report["runs"]


def test_no_process_is_left(demo: Demo) -> None:
    """Workers, beat and engines are gone; the two servers stay until they are stopped."""
    folder = str(demo.folder)
    left = [process for process in psutil.process_iter() if _belongs(process, folder)]
    assert left == []
    assert not (demo.folder / "processes.json").exists()
    assert all(server.running for server in embedded.status(demo.folder / "data"))


def _belongs(process: psutil.Process, folder: str) -> bool:
    """Whether a process was started for this demo, its servers aside."""
    try:
        is_server = process.name().startswith(("postgres", "valkey"))
        words = [process.environ().get("VIBEY_CONFIG", ""), *process.cmdline()]
    except psutil.Error:
        return False
    return not is_server and any(word.startswith(folder) for word in words)
