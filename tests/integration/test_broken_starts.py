"""Whatever goes wrong between a run's start and its settlement ends the run at once, and as what it is.

A run is started by one commit, and then holds its slot. Each case breaks another step after that commit; the run is
then settled by the very call that was to carry it out, not by the end of its lease, and where no process of its engine
was started its unit of the cap is given back.
"""

from __future__ import annotations

import resource
import socket
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.depth import MOST_LEVELS
from vibey.services import views
from vibey.services.audit import audit
from vibey.services.outputs import runs_root
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

CAPPED = {"paid_daily_cap": 20, "paid_daily_cap_covers": "all", "retry_backoff_seconds": 600, "max_attempts": 3}
SHELL = {"kind": "command", "tier": "paid", "argv": ["/bin/sh", "-c", "cat > /dev/null; exit 3"]}
ODD = '''
from vibey.engines.kit import CapacityKind, Failure, FailureClass, Health, Progress, Success
from vibey.engines.contract import Description


def looped():
    found = {}
    found["self"] = found
    return found


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


class Odd:
    """Does what the payload says, in no process."""

    asked = 0

    def __init__(self, config):
        self._model = config.model

    def describe(self):
        Odd.asked += 1
        if self._model == "describe" and Odd.asked > 1:
            raise KeyError("no such part")
        return Description("odd")

    def doctor(self):
        return Health(installed=True)

    def run(self, job, context):
        yield from ()
        return ENDS[job.payload["does"]]()


def no_memory():
    return bytes(2**62)


ENDS = {
    "memory": no_memory,
    "own error": lambda: 1 // 0,
    "no outcome": lambda: 5,
    "not JSON": lambda: Success({"x": object()}),
    "endless": lambda: Success(looped()),
    "too deep": lambda: Success({"x": nested(MOST + 1)}),
    "no number": lambda: Success({"x": float("nan")}),
    "quota": lambda: Success(near_quota_ms=10**30),
    "reset": lambda: Failure(FailureClass.CAPACITY, "x", CapacityKind.WINDOW, resets_at_ms=10**30),
}
'''.replace("MOST", str(MOST_LEVELS))


def _capped(open_bench: Callable[..., Bench], engine: Mapping[str, Any] = SHELL) -> Bench:
    return open_bench(engine={"p": dict(engine)}, engines=dict(CAPPED))


def _carried_out(bench: Bench) -> str:
    """Start and carry out the one job's one grant; the word for how it ended."""
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    return carry_out(bench.installation, run, token)


def _ended(bench: Bench) -> tuple[Any, ...]:
    """The newest run's class, its job's state and attempt; the run has ended within its lease, and its slot is free."""
    assert bench.live() == []
    ((*found, in_time),) = bench.rows(
        "select r.failure_class, j.state, j.attempt, r.ended_at < r.lease_expires_at from runs r "
        "join jobs j on j.id = r.job_id order by r.id desc limit 1"
    )
    assert in_time
    assert audit(bench.installation).violations == ()
    return tuple(found)


def _used(bench: Bench) -> int:
    used: int = views.status(bench.installation, environ={})["cap"]["used"]
    return used


def _words(bench: Bench) -> str:
    words: str = bench.value("select detail from runs order by id desc limit 1")
    return words


UNREADABLE = {
    "too deep for any reader": '{"x": ' + "[" * 3000 + "]" * 3000 + "}",
    "too deep for some readers": '{"x": ' + "[" * 900 + "]" * 900 + "}",
    "a level too deep": '{"x": ' + "[" * MOST_LEVELS + "]" * MOST_LEVELS + "}",
    "a list": "[1, 2]",
    "a number": "5",
    "nothing": "null",
}


def test_a_payload_that_cannot_be_read_is_the_jobs_own_failure(open_bench: Callable[..., Bench]) -> None:
    """It fails at its first run, as every other would end so; the unit is given back."""
    bench = _capped(open_bench)
    for name, payload in UNREADABLE.items():
        (job,) = bench.enqueue(1)
        query(bench.url, f"update jobs set payload = '{payload}' where id = {job}")
        assert _carried_out(bench) == "failed", name
        assert _ended(bench) == ("work", "failed", 1), name
        assert "the payload cannot be read: " in _words(bench), name
    assert _used(bench) == 0


def test_a_payload_at_the_bound_runs(open_bench: Callable[..., Bench]) -> None:
    """One level less than too many is no failure of the payload."""
    bench = _capped(open_bench, noop("paid"))
    (job,) = bench.enqueue(1)
    levels = MOST_LEVELS - 1
    query(bench.url, f"""update jobs set payload = '{{"x": {"[" * levels + "]" * levels}}}' where id = {job}""")
    assert _carried_out(bench) == "succeeded"


def test_a_generation_that_is_not_there(open_bench: Callable[..., Bench]) -> None:
    """The run was started under one whose content is lost: our own fault, tried again, and nothing was used.

    The pass that is to use the freed slot fails for the same reason, once the run has been settled.
    """
    bench = _capped(open_bench)
    bench.enqueue(1)
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    query(bench.url, "update installation set generation = 77")
    with pytest.raises(LookupError):
        carry_out(bench.installation, run, token)
    query(bench.url, "update installation set generation = 1")
    assert _ended(bench) == ("vibey", "queued", 1)
    assert _used(bench) == 0


def test_a_file_that_cannot_be_followed(open_bench: Callable[..., Bench]) -> None:
    """What reads the worker's file anew fails as it likes."""
    bench = _capped(open_bench)
    bench.enqueue(1)
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()

    def follow(generation: int | None) -> Any:
        raise PermissionError(13, f"the file of generation {generation}")

    assert carry_out(bench.installation, run, token, follow) == "failed"
    assert _ended(bench) == ("vibey", "queued", 1)
    assert _used(bench) == 0


def test_a_folder_of_runs_that_cannot_be_written(open_bench: Callable[..., Bench]) -> None:
    """No folder and no log can be made: the machine's fault, tried again, and the unit is given back."""
    bench = _capped(open_bench)
    bench.enqueue(1)
    root = runs_root(bench.installation)
    root.parent.mkdir(parents=True, exist_ok=True)
    root.write_text("in the way of a folder")
    assert _carried_out(bench) == "failed"
    assert _ended(bench) == ("vibey", "queued", 1)
    assert "File" in _words(bench) or "directory" in _words(bench)
    assert _used(bench) == 0


@contextmanager
def _no_thread() -> Iterator[None]:
    """No thread can be started here: a stack of this size has no room in any address space."""
    before = threading.stack_size(2**60)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextmanager
def _no_file() -> Iterator[None]:
    """No file, socket or pipe can be opened in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as last:
        lowest = last.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("want", [_no_thread, _no_file])
def test_a_machine_that_can_start_nothing_more(open_bench: Callable[..., Bench], want: Callable[[], Any]) -> None:
    """Without a thread to watch it no process is started, and without pipes none can be."""
    bench = _capped(open_bench)
    bench.enqueue(1)
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    # Granting the freed slot needs files as well, and is done once the run has been settled.
    with want(), suppress(OSError):
        carry_out(bench.installation, run, token)
    assert _ended(bench) == ("vibey", "queued", 1)
    assert _used(bench) == 0


@pytest.mark.parametrize(
    ("argv", "expected", "units"),
    [
        (["/nonexistent/agent"], ("misconfigured", "queued", 0), 0),
        (["/bin/sh", "-c", "cat > /dev/null; exit 78"], ("misconfigured", "queued", 0), 1),
        (["/bin/sh", "-c", "cat > /dev/null; exit 3"], ("work", "queued", 1), 1),
    ],
    ids=["no such program", "a program that says so", "a program that failed"],
)
def test_only_a_program_that_was_started_uses_a_unit(
    open_bench: Callable[..., Bench], argv: list[str], expected: tuple[Any, ...], units: int
) -> None:
    """By the program that ran or did not, whatever the class of the failure."""
    bench = _capped(open_bench, {**SHELL, "argv": argv})
    bench.enqueue(1)
    assert _carried_out(bench) == "failed"
    assert _ended(bench) == expected
    assert _used(bench) == units


@pytest.fixture
def odd(open_bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """An installation with an engine of an installed kind that does what its model and its payload say."""
    (tmp_path / "vibey_odd_ends.py").write_text(ODD, encoding="utf-8")
    metadata = tmp_path / "vibey_odd_ends-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vibey-odd-ends\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[vibey.engines]\nodd = vibey_odd_ends:Odd\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vibey_odd_ends", raising=False)
    return lambda **more: _capped(open_bench, {"kind": "odd", "tier": "paid", **more})


def test_an_adapter_that_cannot_describe_itself(odd: Callable[..., Bench]) -> None:
    """It was never asked to run, so the unit is given back."""
    bench = odd(model="describe")
    bench.enqueue(1)
    assert _carried_out(bench) == "failed"
    assert _ended(bench) == ("vibey", "queued", 1)
    assert "KeyError" in _words(bench)
    assert _used(bench) == 0


def test_an_adapter_that_fails_or_answers_what_cannot_be_stored(odd: Callable[..., Bench]) -> None:
    """The adapter's bug: tried again. It may have worked in its own thread, so the unit stays used."""
    bench = odd()
    ways = [line.split('"')[1] for line in ODD.splitlines() if line.startswith('    "')]
    for number, way in enumerate(ways, 1):
        bench.enqueue(1, payload={"does": way})
        assert _carried_out(bench) == "failed", way
        assert _ended(bench)[1:] == ("queued", 1), way
        assert _used(bench) == number, way
    assert bench.value("select count(distinct failure_class) from runs") == 1
