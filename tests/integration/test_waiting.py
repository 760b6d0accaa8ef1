"""What `enqueue --wait` and `job --wait` show meanwhile, on a terminal and elsewhere, and what Ctrl-C leaves behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pytest

from tests.support.fleet import ROOT
from tests.support.installation import Bench, noop
from tests.support.wait import until
from vibey.cli.waiting import progress_of
from vibey.services import queue
from vibey.services.enqueue import Order, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.commandline import CommandLine


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration that the fixture `vibey` has written."""
    return tmp_path / "vibey.toml"


@contextmanager
def started(config: Path, *arguments: str, stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """A command at work; it is ended with the test."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VIBEY_CONFIG": str(config),
        "TERM": "xterm",
        "COLUMNS": "200",
    }
    command = (sys.executable, "-m", "vibey.cli.main", *arguments)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=stderr, env=environment, cwd=ROOT, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_with(stream: IO[str] | None, words: str) -> str:
    """The next line that holds these words; the test's own time-out ends a wait for one that never comes."""
    assert stream is not None
    for line in stream:
        if words in line:
            return line
    raise AssertionError(words)


def is_waiting(vibey: CommandLine, process: subprocess.Popen[str]) -> None:
    """Return once the process has looked how far its jobs are."""
    looked = (
        "select count(*) from pg_stat_activity "
        f"where application_name = 'vibey-{process.pid}' and query like '%vibey:view-progress%'"
    )
    until(lambda: vibey.bench.value(looked) > 0, what="the wait for the job")


def test_plain_lines_name_state_position_and_reason(vibey: CommandLine, config: Path) -> None:
    """Without a terminal each change of state is one line on standard error; the end is on standard output."""
    vibey.enqueued(2, "--priority", "1")
    with started(config, "enqueue", "fix it", "--wait") as process:
        assert process.stdout is not None
        job = process.stdout.readline().split()[1]
        line = line_with(process.stderr, "queued")
        assert line.startswith(f"job {job}: queued, position 3 in pool main: ")
        vibey("cancel", job)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert out.splitlines() == ["cancelled in attempt 0: cancelled", f"see: vibey job {job}, vibey logs {job}"]


def test_live_line_on_a_terminal(vibey: CommandLine, config: Path) -> None:
    """The same words, written over one another."""
    ours, theirs = os.openpty()
    (job,) = vibey.enqueued(1)
    with started(config, "job", str(job), "--wait", stderr=theirs) as process:
        os.close(theirs)
        heard: list[bytes] = []
        listener = threading.Thread(target=_listen, args=(ours, heard))
        listener.start()
        until(lambda: b"queued, position 1 in pool main" in b"".join(heard), what="the live line")
        vibey("cancel", job)
        out, _ = process.communicate(timeout=300)
        listener.join()
    os.close(ours)
    assert process.returncode == 1
    assert "cancelled in attempt 0" in out
    # The line is taken away at its end, and the cursor is shown again.
    assert b"\x1b[?25h" in b"".join(heard)


def _listen(descriptor: int, heard: list[bytes]) -> None:
    try:
        while piece := os.read(descriptor, 65536):
            heard.append(piece)
    except OSError:
        return  # the other side is closed


def test_interrupt_leaves_the_job_queued(vibey: CommandLine, config: Path) -> None:
    """Ctrl-C: exit 130, the job stays as it is, and how to cancel it and to wait again is said."""
    with started(config, "enqueue", "fix it", "--wait") as process:
        line_with(process.stderr, "queued")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    job = out.split()[1]
    assert (process.returncode, out) == (130, f"job {job}\n")
    assert f"vibey: no longer waiting; job {job} stays as it is" in err
    assert f"vibey cancel {job}" in err
    assert f"vibey job {job} --wait" in err
    assert vibey.bench.rows("select state from jobs") == [("queued",)]


def test_json_is_all_that_is_printed(vibey: CommandLine, config: Path) -> None:
    """With --json nothing is shown meanwhile, and an interrupted wait still leaves its one object."""
    with started(config, "enqueue", "fix it", "--wait", "--json") as process:
        is_waiting(vibey, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err.startswith("vibey: no longer waiting")
    answer = json.loads(out)
    assert (answer["state"], answer["created"]) == ("queued", True)
    with started(config, "job", str(answer["job_id"]), "--wait", "--json") as process:
        is_waiting(vibey, process)
        vibey("cancel", answer["job_id"])
        out, err = process.communicate(timeout=300)
    assert (process.returncode, err, json.loads(out)["state"]) == (1, "", "cancelled")


def test_interrupted_batch_names_its_jobs(vibey: CommandLine, config: Path, tmp_path: Path) -> None:
    """All of them stay; with --json their numbers are printed."""
    (tmp_path / "jobs.jsonl").write_text('{"payload": "a"}\n{"payload": "b"}\n', encoding="utf-8")
    batch = str(tmp_path / "jobs.jsonl")
    with started(config, "enqueue", "--batch", batch, "--wait", "--json") as process:
        is_waiting(vibey, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "the 2 jobs stay as they are" in err
    assert len(json.loads(out)["job_ids"]) == 2


def test_ended_job_is_shown_at_once(vibey: CommandLine) -> None:
    """Nothing is waited for, and the exit code is that of the end."""
    (job,) = vibey.enqueued(1)
    vibey.bench.rows(f"update jobs set state = 'succeeded', ended_at = clock_timestamp() where id = {job} returning id")
    said = vibey("job", job, "--wait")
    assert (said.code, said.err) == (0, "")
    assert "succeeded in attempt 0" in said.out


def test_position_is_the_place_in_queue_order(
    open_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all groups, by priority and then by number; None for what is not due; bounded."""
    bench = open_bench(engine={"a": noop(), "b": noop()})
    chance = random.Random(7)
    orders = [
        Order(priority=chance.randrange(3), exclude=chance.choice([(), ("a",)]), effort=chance.choice(["low", "high"]))
        for _ in range(40)
    ]
    ids = [placed.job_id for placed in place(bench.installation, orders)]
    by_order = sorted(zip(ids, orders, strict=True), key=lambda pair: (-pair[1].priority, pair[0]))
    expected = {job: place for place, (job, _) in enumerate(by_order, start=1)}
    assert {job: queue.position(bench.installation, job) for job in ids} == expected
    (later,) = bench.enqueue(1, delay_seconds=3600)
    assert queue.position(bench.installation, later) is None
    assert queue.position(bench.installation, later + 1) is None
    monkeypatch.setattr(queue, "POSITION_LIMIT", 10)
    last = by_order[-1][0]
    assert queue.position(bench.installation, last) == 11
    job = {"job_id": last, "state": "queued", "pool": "main", "reason": "waits"}
    assert progress_of(job, 11) == f"job {last}: queued, position over 10 in pool main: waits"
