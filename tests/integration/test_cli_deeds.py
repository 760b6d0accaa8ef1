"""What the command line does: jobs enqueued, cancelled and retried, engines paused, projects set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.json_output import described
from vibey.services import control
from vibey.services.display import clock
from vibey.services.run import _start

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.commandline import CommandLine


def test_enqueue_for_some_engines_and_later(vibey: CommandLine) -> None:
    """The engines named are kept, and no other, and the job says when it will be due."""
    made = vibey("enqueue", "--engine", "near", "--engine", "far", "--delay", "1h", "--json").json
    job = vibey("job", made["job_id"], "--json").json
    assert (job["engines"], job["exclude"]) == (["far", "near"], [])
    assert job["reason"] == f"asked not to start before {clock(job['not_before'])} UTC"


def test_what_nothing_can_serve_is_refused_unless_it_is_to_wait(vibey: CommandLine) -> None:
    """The refusal names each engine; `--anyway` enqueues it, and the job and its explanation say what it waits for."""
    wishes = ("enqueue", '{"n": 1}', *(part for name in ("near", "far", "bought") for part in ("--exclude", name)))
    refused = vibey(*wishes)
    assert refused.code == 3
    assert "near, far, bought: excluded by the job" in refused.err
    assert "--anyway" in refused.err
    job = vibey(*wishes, "--anyway", "--engine", "elsewhere", "--json").json["job_id"]
    assert "elsewhere, and no other" in vibey("job", job).out
    told = vibey("explain", job, "--json").json["waiting"]["engines"]
    assert {each["engine"]: each["ground"] for each in told} == dict.fromkeys(
        ("near", "far", "bought"), "excluded_by_job"
    )


def test_enqueue_and_its_duplicate(vibey: CommandLine) -> None:
    """A second job with the same key is the first one, and says so."""
    first = vibey("enqueue", '{"n": 1}', "--key", "once", "--json").json
    again = vibey("enqueue", '{"n": 2}', "--key", "once", "--json").json
    assert first == {"job_id": first["job_id"], "created": True}
    assert again == {"job_id": first["job_id"], "created": False}


def test_payloads_from_a_file_and_a_pipe(vibey: CommandLine, tmp_path: Path) -> None:
    """The payload may come from a file or standard input, a byte order mark included."""
    file = tmp_path / "payload.json"
    file.write_bytes(b'\xef\xbb\xbf{"from": "file"}')
    of_file = vibey("enqueue", "--payload-file", file, "--json").json["job_id"]
    of_pipe = vibey("enqueue", "--payload-file", "-", "--json", stdin='{"from": "pipe"}').json["job_id"]
    payloads = [vibey("job", job, "--json").json["payload"] for job in (of_file, of_pipe)]
    assert payloads == [{"from": "file"}, {"from": "pipe"}]


def test_a_batch_counts_new_and_known_jobs(vibey: CommandLine) -> None:
    """A batch reports what is new and what was known, in the file's order; options stand in for missing keys."""
    lines = ['{"idempotency_key": "a"}', "", '{"idempotency_key": "b", "priority": 3}', '{"idempotency_key": "a"}']
    said = vibey("enqueue", "--batch", "-", "--priority", "9", "--json", stdin="\n".join(lines)).json
    assert (said["created"], said["duplicates"]) == (2, 1)
    first, second, third = said["job_ids"]
    assert first == third
    assert [vibey("job", job, "--json").json["priority"] for job in (first, second)] == [9, 3]


def test_cancel_and_retry(vibey: CommandLine) -> None:
    """Each job is tried on its own; one refusal makes the exit code and undoes nothing."""
    first, second = vibey.enqueued(2)
    said = vibey("cancel", first, 999, second, "--json")
    assert said.code == 3
    described("cancel", said.json)
    assert [each["job_id"] for each in said.json["cancelled"]] == [first, second]
    assert [each["job_id"] for each in said.json["refused"]] == [999]
    again = vibey("retry", first, "--json")
    assert (again.code, again.json["retried"]) == (0, [first])
    assert vibey("retry", first).code == 3


def test_cancelling_all_that_fit(vibey: CommandLine) -> None:
    """Jobs chosen by state and project are counted, shown and confirmed first; others stay; an audit finds no fault."""
    assert vibey("new", "web").code == 0
    vibey.enqueued(4, "--exclude", "far", "--exclude", "bought")
    vibey.route()
    (run, token, _), *_ = vibey.bench.live()
    started = _start(vibey.bench.installation, run, token).job_id
    web = vibey.enqueued(7, "--project", "web")
    refused = vibey("cancel", "--project", "web")
    assert refused.code == 3
    assert "7 jobs: 7 queued" in refused.out
    assert "and 2 more" in refused.out
    assert "--yes" in refused.err
    assert vibey("jobs", "-s", "cancelled", "--json").json["jobs"] == []
    assert vibey("cancel", "--state", "granted", "--project", "web", "--yes").out == "no such job\n"
    said = described("cancel", vibey("cancel", "--project", "web", "--state", "queued", "--yes", "--json").json)
    assert said == {"matched": {"queued": 7}, "cancelled_jobs": 7, "stopping_runs": 0}
    ended = [job["job_id"] for job in vibey("jobs", "-s", "cancelled", "--json").json["jobs"]]
    assert sorted(ended) == web
    rest = described("cancel", vibey("cancel", "--all", "--yes", "--json").json)
    assert rest == {
        "matched": {"queued": 2, "granted": 1, "running": 1},
        "cancelled_jobs": 3,
        "stopping_runs": 1,
    }
    assert vibey("job", started, "--json").json["state"] == "running"
    assert vibey("cancel", "--all", "--yes").out == "no such job\n"
    assert vibey("audit").code == 0


def test_cancelling_by_label_shows_titles(vibey: CommandLine) -> None:
    """All labels have to be there; what is about to be cancelled can be recognised; others stay."""
    titled = ("--title", "mend the index", "--label", "team=web", "--label", "kind=fix")
    (wanted,) = vibey.enqueued(1, *titled)
    others = vibey.enqueued(1, "--label", "team=web") + vibey.enqueued(1)
    both = ("--label", "team=web", "-l", "kind=fix")
    shown = vibey("cancel", *both)
    assert (shown.code, "1 job: 1 queued" in shown.out, "mend the index" in shown.out) == (3, True, True)
    assert vibey("cancel", *both, "--yes", "--json").json["cancelled_jobs"] == 1
    left = {job["job_id"]: job["state"] for job in vibey("jobs", "--json").json["jobs"]}
    assert left == {wanted: "cancelled", **dict.fromkeys(others, "queued")}
    assert vibey("cancel", "--label", "team", "--yes").code == 2


def test_cancelling_many_takes_pages(vibey: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many fit, each transaction takes a page, and together they take all of them once."""
    monkeypatch.setattr(control, "PAGE_JOBS", 3)
    lines = "\n".join("{}" for _ in range(10))
    assert vibey("enqueue", "--batch", "-", stdin=lines).code == 0
    assert vibey("cancel", "--all", "--yes", "--json").json["cancelled_jobs"] == 10
    assert vibey.bench.value("select count(*) from ledger where kind = 'JobCancelled'") == 10


@pytest.mark.parametrize(
    "arguments",
    [(), ("17", "--all"), ("17", "--state", "queued"), ("--state", "failed", "--yes"), ("--yes",)],
)
def test_cancelling_needs_one_way_to_choose(vibey: CommandLine, arguments: tuple[str, ...]) -> None:
    """Numbers or options, and only states a job can still be cancelled in."""
    said = vibey("cancel", *arguments)
    assert said.code == 2
    assert said.complaint


def test_waiting_for_the_end(vibey: CommandLine) -> None:
    """`--wait` of a job that has ended returns at once, with 1 unless it succeeded."""
    (job,) = vibey.enqueued(1, "--key", "done")
    vibey("cancel", job)
    said = vibey("enqueue", "{}", "--key", "done", "--wait", "--json")
    assert said.code == 1
    assert said.json["state"] == "cancelled"
    batch = vibey("enqueue", "--batch", "-", "--wait", "--json", stdin='{"idempotency_key": "done"}')
    assert (batch.code, batch.json["cancelled"]) == (1, 1)


@pytest.mark.parametrize("how", [(), ("--wait",), ("--json",)])
def test_a_batch_without_a_job_says_so_and_is_no_mistake(vibey: CommandLine, how: tuple[str, ...]) -> None:
    """A producer may have nothing to do today; one that has failed is noticed."""
    said = vibey("enqueue", "--batch", "-", *how, stdin="\n\n")
    assert (said.code, said.err) == (0, "standard input has no line with a job\n")


def test_pausing_and_resuming_an_engine(vibey: CommandLine) -> None:
    """A paused engine says so and how to go on; reset and resume are plain."""
    assert vibey("engine", "pause", "near", "--json").json == {"engine": "near", "done": "paused"}
    paused = vibey("engines", "--json").json["engines"][0]
    assert paused["paused"] is True
    assert "vibey engine resume near" in paused["detail"]
    assert vibey("engine", "resume", "near").code == 0
    assert vibey("engine", "reset", "near").code == 0
    assert vibey("engines", "--json").json["engines"][0]["paused"] is False


def test_projects_and_their_policy(vibey: CommandLine) -> None:
    """A project's settings are its own; all changes of a command are made, or none."""
    assert vibey("new", "website", "--json").json["policy"]["mode"] == "singleton"
    assert vibey("project", "set", "website", "paid_daily_cap=3", "mode=never").code == 2
    assert vibey("project", "set", "website", "paid_daily_cap=3", "paid_fallback=never").code == 0
    shown = vibey("project", "show", "website", "--json").json
    assert (shown["policy"]["paid_daily_cap"], shown["policy"]["paid_fallback"]) == (3, "never")
    listed = vibey("project", "list", "--json").json["projects"]
    assert [each["project"] for each in listed] == ["default", "website"]
