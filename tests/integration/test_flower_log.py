"""The live tail of a run's output: its end first, then what it adds, as text."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.support.databases import query
from tests.support.site import Site
from vibey.engines.output import OutputLog
from vibey.services.outputs import output_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def site(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Site]:
    """Flower on this test's own installation."""
    with closing(Site(database_url, redis_url, tmp_path / "site")) as opened:
        yield opened.start()


def _running(site: Site) -> tuple[int, int, OutputLog]:
    """A job whose run is at work on this machine: job, run, and the log to write to."""
    (job,) = site.bench.enqueue(1)
    site.route()
    ((run, _, _),) = site.bench.live()
    query(site.bench.url, f"update runs set host = '{socket.gethostname()}', started_at = now(), state = 'running'")
    query(site.bench.url, "update jobs set state = 'running'")
    path = output_of(site.bench.installation, run)
    path.parent.mkdir(parents=True)
    return job, run, OutputLog(path)


def test_the_tail_follows_a_run_as_text(site: Site) -> None:
    """What is there comes first, then each addition, without escapes, markup untouched, and the end is told."""
    job, run, log = _running(site)
    log.write(b"cloning\n\x1b[32mgreen\x1b[0m <script>alert(1)</script>\n")
    stream = site.stream(f"/live/log/{job}")
    try:
        _, whole = stream.next("whole")
        assert whole == {"run_id": run, "engine": "near", "text": "cloning\ngreen <script>alert(1)</script>\n"}
        assert stream.next("note")[1] == f"Run {run} on near, running: following."
        log.write(b"half a word \xc3")
        assert stream.next("more")[1] == "half a word "
        log.write(b"\xa9 and the rest\n")
        assert stream.next("more")[1] == "é and the rest\n"
        query(site.bench.url, "update jobs set state = 'succeeded', run_id = null, ended_at = now()")
        query(site.bench.url, "update runs set state = 'succeeded', ended_at = now()")
        assert stream.next("note")[1] == f"Run {run} on near, succeeded."
    finally:
        stream.close()
        log.close()


def test_a_long_output_begins_near_its_end(site: Site) -> None:
    """Of megabytes only the last lines are sent, whole lines, and everything after them."""
    job, _, log = _running(site)
    lines = [f"line {number} {'x' * 80}\n" for number in range(60_000)]
    log.write("".join(lines).encode())
    stream = site.stream(f"/live/log/{job}")
    try:
        _, whole = stream.next("whole")
        shown = whole["text"].splitlines(keepends=True)
        assert shown == lines[-len(shown) :]
        assert 100 < len(shown) < 1000
        log.write(b"the end\n")
        assert stream.next("more")[1] == "the end\n"
    finally:
        stream.close()
        log.close()


def test_output_from_another_machine_is_shown_as_stored(site: Site) -> None:
    """A run elsewhere shows the end that was reported, and says so; a job without a run says that."""
    job, run, log = _running(site)
    log.close()
    query(
        site.bench.url,
        "update runs set host = 'elsewhere', state = 'failed', ended_at = now(), "
        "output_tail = E'\\x1b[1mlast\\x1b[0m words'",
    )
    stream = site.stream(f"/live/log/{job}")
    assert stream.next("whole")[1] == {"run_id": run, "engine": "near", "text": "last words"}
    assert "ran on elsewhere" in stream.next("note")[1]
    stream.close()
    (waiting,) = site.bench.enqueue(1, exclude=("near", "far", "bought"), anyway=True)
    stream = site.stream(f"/live/log/{waiting}")
    assert "has had no run yet" in stream.next("note")[1]
    assert site.vibey("cancel", waiting).code == 0
    assert "ended without a run" in stream.next("note")[1]
    stream.close()
    page = site.look(f"/job/{waiting}")
    assert "The job ended without a run" in page.text
    assert "yet" not in page.text
    stream = site.stream("/live/log/9999")
    assert "unknown job" in stream.next("note")[1]
    stream.close()


def test_a_new_run_takes_the_place_of_the_old_one(site: Site) -> None:
    """Who follows a job without naming a run is led on to its next run; who named one stays."""
    job, run, log = _running(site)
    log.write(b"first\n")
    follows, stays = site.stream(f"/live/log/{job}"), site.stream(f"/live/log/{job}?run={run}")
    try:
        assert follows.next("whole")[1]["text"] == stays.next("whole")[1]["text"] == "first\n"
        query(site.bench.url, "update runs set state = 'failed', ended_at = now()")
        query(
            site.bench.url,
            f"""insert into runs (job_id, engine, account, attempt, lease_expires_at, host, output_tail)
                values ({job}, 'far', 'far', 2, now() + interval '1 h', 'elsewhere', 'second')""",
        )
        assert follows.next("whole")[1]["text"] == "second"
        assert stays.next("note", "whole")[1] == f"Run {run} on near, running: following."
        assert stays.next("note", "whole")[1] == f"Run {run} on near, failed."
    finally:
        follows.close()
        stays.close()
        log.close()


def test_the_events_of_a_client_are_sent_as_rows(site: Site) -> None:
    """A client's events come as rows with a style, live, without escapes; asked for raw, as text."""
    job, run, log = _running(site)
    query(site.bench.url, "update engines set kind = 'codex'")
    said = {"type": "item.completed", "item": {"type": "agent_message", "text": "<b>hi</b>\x1b[2J"}}
    log.write(b"plain \x1b[31mred\x1b[0m\n" + json.dumps(said).encode() + b"\n")
    stream, raw = site.stream(f"/live/log/{job}"), site.stream(f"/live/log/{job}?raw=1")
    try:
        _, whole = stream.next("whole")
        rows = [["line", "", "plain red"], ["said", "", "<b>hi</b>"]]
        assert whole == {"run_id": run, "engine": "near", "text": "", "rows": rows}
        assert raw.next("whole")[1]["text"].startswith('plain red\n{"type": "item.completed"')
        log.write(b'{"type": "turn.')
        log.write(b'failed", "error": {"message": "no"}}\nhalf')
        assert stream.next("rows")[1] == [["error", "! ", "no"]]
        query(site.bench.url, "update runs set state = 'failed', ended_at = now(), tokens_in = 7, cost_usd = 1")
        assert stream.next("rows")[1] == [["line", "", "half"], ["usage", "= ", "7 tokens in, $1.0000"]]
    finally:
        stream.close()
        raw.close()
        log.close()


def test_the_end_of_a_long_transcript(site: Site) -> None:
    """Of megabytes of events only the last are read, from the beginning of one."""
    job, _, log = _running(site)
    query(site.bench.url, "update engines set kind = 'codex'")
    for number in range(6000):
        said = {"type": "item.completed", "item": {"type": "agent_message", "text": f"{number} {'x' * 300}"}}
        log.write(json.dumps(said).encode() + b"\n")
    stream = site.stream(f"/live/log/{job}")
    try:
        rows = stream.next("whole")[1]["rows"]
        assert 100 < len(rows) <= 2000
        assert rows[-1][2].startswith("5999 ")
        assert {style for style, _, _ in rows} == {"said"}
    finally:
        stream.close()
        log.close()
