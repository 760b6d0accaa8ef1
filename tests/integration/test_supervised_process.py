"""One supervised process, seen from its holder: its output, its end, its stops, its freezing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.holder import ROOT
from tests.support.trees import living, state, supervisors
from tests.support.wait import until
from vibey.engines.contract import StopReason
from vibey.engines.marks import Marks
from vibey.engines.moment import Moment
from vibey.engines.output import OutputLog, read_text
from vibey.engines.process import Order, SupervisedProcess
from vibey.engines.processes import kill_leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Spawn = Callable[..., SupervisedProcess]

# States of a stopped tree. Besides stopped processes there may be a zombie, whose parent is stopped and cannot collect
# it, and a parent that waits in vfork (D) for a child that was stopped before its exec.
STILL = {"T", "Z", "D"}


@pytest.fixture
def installation() -> str:
    """A mark no other test has."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[OutputLog]:
    """The run's log."""
    log = OutputLog(tmp_path / "output.log")
    yield log
    log.close()


@pytest.fixture
def spawn(tmp_path: Path, installation: str, log: OutputLog) -> Iterator[Spawn]:
    """Starts supervised shell scripts; all are closed at the end."""
    started: list[SupervisedProcess] = []

    def begin(*argv: str, lease_end: Moment | None = None, secrets: tuple[str, ...] = ()) -> SupervisedProcess:
        order = Order(
            argv if len(argv) > 1 else ("sh", "-c", *argv), {"PATH": os.environ["PATH"]}, tmp_path, None, secrets
        )
        marks = Marks(installation, 1, 2, 3)
        process = SupervisedProcess(order, marks=marks, lease_end=lease_end or Moment.now().plus(60), log=log)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.close()
    assert not living(installation, without_supervisor=False)
    kill_leftovers(installation, live=lambda _job, _run: False)


def test_lines_come_as_they_are_printed(spawn: Spawn, tmp_path: Path) -> None:
    """A line is given out while the program still runs, and both streams arrive merged."""
    os.mkfifo(tmp_path / "gate")
    process = spawn("echo one; echo two >&2; read word < gate; echo $word")
    lines = process.lines()
    assert [next(lines), next(lines)] == ["one", "two"]
    assert process.exit is None
    (tmp_path / "gate").write_text("three\n")
    assert list(lines) == ["three"]


@pytest.mark.parametrize("code", [0, 1, 2, 69, 75, 78, 124, 137, 255])
def test_exit_code_is_reported(spawn: Spawn, code: int) -> None:
    """Every exit code arrives as it is."""
    assert spawn(f"exit {code}").wait().code == code


def test_death_by_signal_is_reported(spawn: Spawn) -> None:
    """A program killed by a signal has that signal's negative number."""
    assert spawn("kill -SEGV $$").wait().code == -11


def test_missing_program_is_told_from_a_failing_one(spawn: Spawn, tmp_path: Path) -> None:
    """No program, no permission and no program format are errors of the start."""
    assert spawn("nosuchprogram", "x").wait().errno == errno.ENOENT
    assert spawn("./here", "x").wait().errno == errno.ENOENT
    broken = tmp_path / "broken"
    broken.write_text("not a program")
    broken.chmod(0o700)
    assert spawn(str(broken), "x").wait().errno == errno.ENOEXEC
    broken.write_text("#!/nosuchinterpreter\n")
    assert spawn(str(broken), "x").wait().errno == errno.ENOENT


def test_background_child_ends_with_the_program(spawn: Spawn, installation: str) -> None:
    """A child that keeps the output open neither delays the end nor survives it."""
    ending = spawn("sleep 600 & setsid sleep 600 & (setsid sleep 600 &) ; echo done").wait()
    assert (ending.code, ending.stopped, ending.unreachable) == (0, None, 0)
    assert not living(installation)


def test_hundred_megabytes_pass_through_bounded(spawn: Spawn, tmp_path: Path) -> None:
    """100 MB of lines arrive complete, and the log keeps its bound and its two ends."""
    process = spawn("echo first; yes 0123456789012345678901234567890123456789 | head -c 100000000; echo; echo last")
    total = sum(len(line) + 1 for line in process.lines())
    assert total == len("first\n") + 100_000_000 + len("\nlast\n")
    kept = sum(file.stat().st_size for file in tmp_path.glob("output.log*"))
    assert kept <= 4 * 1024 * 1024
    text = read_text(tmp_path / "output.log")
    assert text.startswith("first\n")
    assert text.endswith("\nlast\n")
    assert "bytes left out" in text


def test_line_without_end_comes_in_parts(spawn: Spawn) -> None:
    """A line longer than the bound is cut, not gathered."""
    process = spawn("head -c 20000000 /dev/zero | tr '\\0' a")
    lengths = [len(line) for line in process.lines()]
    assert sum(lengths) == 20_000_000
    assert max(lengths) <= 4 * 1024 * 1024 + 64 * 1024


def test_stop_ends_a_program_politely(spawn: Spawn) -> None:
    """TERM comes first, and a program that obeys it says so in its own words."""
    process = spawn("trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.02; done")
    lines = process.lines()
    assert next(lines) == "ready"
    process.stop(StopReason.CANCEL, 10)
    assert list(lines)[-1] == "bye"
    ending = process.wait()
    assert (ending.code, ending.stopped) == (9, StopReason.CANCEL)


def test_grace_ends(spawn: Spawn) -> None:
    """A program that ignores TERM is killed when the grace is over."""
    process = spawn("trap '' TERM; echo ready; while :; do sleep 0.02; done")
    next(process.lines())
    process.stop(StopReason.TIMEOUT, 0.3)
    ending = process.wait()
    assert (ending.code, ending.stopped) == (-9, StopReason.TIMEOUT)


def test_grace_does_not_outlast_the_lease(spawn: Spawn) -> None:
    """A lease that ends within the grace ends the tree."""
    process = spawn("trap '' TERM; echo ready; while :; do sleep 0.02; done", lease_end=Moment.now().plus(1))
    next(process.lines())
    process.stop(StopReason.CANCEL, 60)
    assert process.wait().stopped is StopReason.LEASE_LOST


def test_stop_after_the_end_changes_nothing(spawn: Spawn, installation: str, tmp_path: Path) -> None:
    """Work that ended by itself stays so, whatever was asked a moment later."""
    go = tmp_path / "go"
    process = spawn(f"until [ -e '{go}' ]; do sleep 0.02; done; exit 3")
    # A process that is just being started carries no mark yet, and would be taken for one that has ended.
    until(lambda: living(installation), what="the work")
    go.touch()
    until(lambda: not living(installation, without_supervisor=False), what="the end")
    process.stop(StopReason.CANCEL, 0)
    ending = process.wait()
    assert (ending.code, ending.stopped) == (3, None)


def test_extended_lease_keeps_the_tree(spawn: Spawn) -> None:
    """Each extension moves the end, and an earlier one moves nothing."""
    began = Moment.now()
    process = spawn("sleep 1; echo done", lease_end=began.plus(0.5))
    process.extend(began.plus(30))
    process.extend(began.plus(0.6))
    assert process.wait().code == 0


def states_of(installation: str) -> set[str]:
    """The states the processes of an installation are in."""
    return {state(pid) for pid in living(installation)}


def test_tree_is_frozen_while_the_lease_is_in_doubt(spawn: Spawn, installation: str) -> None:
    """After a sleep of the machine the tree stands still until the lease is known to hold, then goes on."""
    now = Moment.now()
    slept = Moment(now.plus(30).monotonic_ns, now.boot_ns)
    process = spawn("while :; do sleep 0.01; [ -e go ] && exit 0; done", lease_end=slept)
    until(lambda: "T" in (states := states_of(installation)) and states <= STILL, what="a standstill")
    process.extend(Moment.now().plus(30))
    until(lambda: states_of(installation) - STILL, what="the tree's waking")
    process.stop(StopReason.CANCEL, 5)
    assert process.wait().stopped is StopReason.CANCEL


def test_frozen_tree_dies_at_the_lease_end(spawn: Spawn) -> None:
    """A doubt that nobody clears ends like any lost lease."""
    now = Moment.now()
    process = spawn("sleep 600", lease_end=Moment(now.plus(1).monotonic_ns, now.boot_ns))
    assert process.wait().stopped is StopReason.LEASE_LOST


def test_secrets_do_not_reach_log_or_lines(spawn: Spawn, tmp_path: Path) -> None:
    """A secret is masked, also when it is printed in two pieces."""
    process = spawn("printf 'key=hunter2-'; sleep 0.1; echo 'and-more.'", secrets=("hunter2-and-more",))
    assert list(process.lines()) == ["key=********."]
    assert "hunter2" not in read_text(tmp_path / "output.log")


COPIED_HOLDER = """
import os, sys
from pathlib import Path
from tests.support.holder import ROOT
from tests.support.trees import living
from tests.support.wait import until
from vibey.engines.marks import Marks
from vibey.engines.moment import Moment
from vibey.engines.output import OutputLog
from vibey.engines.process import Order, SupervisedProcess

folder, installation = Path(sys.argv[1]), sys.argv[2]
process = SupervisedProcess(
    Order(("sleep", "600"), {"PATH": os.environ["PATH"]}, folder),
    marks=Marks(installation, 1, 2, 3), lease_end=Moment.now().plus(600), log=OutputLog(folder / "copied.log"),
)
until(lambda: living(installation), what="the tree")
if os.fork() == 0:
    until(lambda: not living(installation), what="the death of the tree")
os._exit(0)
"""


def test_copy_of_the_socket_keeps_nothing_alive(installation: str, tmp_path: Path) -> None:
    """The supervisor watches the holder itself: a forked stranger with the same descriptors does not stand for it."""
    arguments = [sys.executable, "-c", COPIED_HOLDER, str(tmp_path), installation]
    subprocess.run(arguments, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    until(lambda: not living(installation, without_supervisor=False), what="the death of the tree")


def test_a_supervisor_loads_nothing_installed(spawn: Spawn, installation: str) -> None:
    """The supervisor of a run imports no more of Vibey than it needs, and nothing that is installed."""
    process = spawn("sleep 600")
    (guard,) = supervisors(installation)
    libraries = Path(f"/proc/{guard}/maps").read_text(encoding="utf-8")
    assert "site-packages" not in libraries
    process.stop(StopReason.CANCEL, 0)
    process.wait()


def test_many_at_once(spawn: Spawn) -> None:
    """Runs of one holder do not disturb each other."""
    processes = [spawn(f"echo {number}; exit {number}") for number in range(8)]
    codes: dict[int, int | None] = {}

    def finish(number: int, process: SupervisedProcess) -> None:
        codes[number] = process.wait().code

    threads = [threading.Thread(target=finish, args=pair) for pair in enumerate(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {number: number for number in range(8)}


def test_only_the_given_environment_and_the_marks_arrive(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's own variables and descriptors stay with the worker."""
    monkeypatch.setenv("VIBEY_DATABASE_URL", "postgresql://user:password@localhost/vibey")
    code = "import os; print(sorted(os.environ)); print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])"
    process = spawn(sys.executable, "-I", "-c", code)
    names, descriptors = process.lines()
    assert "VIBEY_DATABASE_URL" not in names
    assert "VIBEY_TOKEN" in names
    assert descriptors == "[0, 1, 2, 3]"


def test_signals_reach_the_program_with_their_usual_meaning(spawn: Spawn) -> None:
    """What Python ignores for itself is not ignored in the program."""
    process = spawn("grep SigIgn /proc/self/status")
    (line,) = process.lines()
    ignored = int(line.split()[1], 16)
    assert not ignored & sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
