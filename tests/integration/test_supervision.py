"""Holders and supervisors really killed and really stopped: the tree of a run never outlives its lease."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support import holder
from tests.support.restless import restless
from tests.support.trees import STUBBORN, TREE, TREE_SIZE, ended, living, state, supervisors
from tests.support.wait import until
from vibey.domain.errors import Refused
from vibey.engines import processes
from vibey.engines.marks import Marks
from vibey.engines.processes import kill_leftovers
from vibey.services import supervised
from vibey.services.programs import OWNER_VARIABLE, Layout

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    Start = Callable[..., subprocess.Popen[bytes]]

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes by /proc")  # noqa: PTH112


@pytest.fixture
def installation() -> Iterator[str]:
    """A mark no other test has; whatever still carries it at the end is killed."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    kill_leftovers(name, live=lambda _job, _run: False)


@pytest.fixture
def start(tmp_path: Path, installation: str) -> Iterator[Start]:
    """Starts a holder whose whole tree is up; it is reaped at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(script: str = TREE, *, lease_seconds: float = 60, size: int = TREE_SIZE) -> subprocess.Popen[bytes]:
        process = holder.start(tmp_path, installation, ("sh", "-c", script), lease_seconds=lease_seconds)
        started.append(process)
        until(lambda: len(living(installation)) >= size, what="the whole tree")
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def gone(installation: str) -> None:
    """Wait until nothing of the run lives, its supervisor included."""
    until(lambda: not living(installation, without_supervisor=False), what="the death of the tree")


def sleeping(seconds: str) -> list[int]:
    """Processes of `sleep` with this argument that can still do something."""
    return running("sleep", seconds)


def running(*arguments: object) -> list[int]:
    """Processes whose command line ends with these arguments and that can still do something."""
    words = b"".join(os.fsencode(str(argument)) + b"\0" for argument in arguments)
    return [pid for pid in psutil.pids() if not ended(pid) and _line(pid).endswith(words)]


def _line(pid: int) -> bytes:
    with suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes()
    return b""


def outcome(folder: Path) -> str:
    """What the holder says at last."""
    until(lambda: (folder / "outcome").exists() and (folder / "outcome").stat().st_size, what="an outcome")
    return (folder / "outcome").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", [TREE, STUBBORN])
def test_killed_holder_takes_the_tree_along(start: Start, installation: str, script: str) -> None:
    """KILL to the holder ends every process of the tree, sessions of their own and orphans included."""
    process = start(script)
    process.kill()
    gone(installation)


def test_stopped_holder_loses_the_tree_within_its_lease(start: Start, installation: str) -> None:
    """A holder stopped past its lease has no tree any more while it is still stopped."""
    process = start(lease_seconds=2)
    process.send_signal(signal.SIGSTOP)
    until(lambda: not living(installation), what="the death of the tree")
    assert state(process.pid) == "T"


def test_woken_holder_reports_the_lost_lease(start: Start, tmp_path: Path, installation: str) -> None:
    """A holder that wakes after its lease says that it lost it, even if the renewals would be kept again."""
    process = start(lease_seconds=1)
    process.send_signal(signal.SIGSTOP)
    until(lambda: not living(installation), what="the death of the tree")
    process.send_signal(signal.SIGCONT)
    assert "LEASE_LOST" in outcome(tmp_path)


def test_unreachable_renewals_end_the_tree_before_the_lease(start: Start, tmp_path: Path, installation: str) -> None:
    """A holder cut off from the database kills its tree by itself."""
    start(lease_seconds=3)
    holder.answer(tmp_path, "unreachable")
    assert "LEASE_LOST" in outcome(tmp_path)
    gone(installation)


def test_a_cut_shorter_than_the_lease_harms_nothing(start: Start, tmp_path: Path, installation: str) -> None:
    """Renewals that fail for a while and then succeed keep the tree alive past several leases."""
    start(lease_seconds=6)
    holder.answer(tmp_path, "unreachable")
    until(lambda: "unreachable" in holder.answers(tmp_path), what="a renewal that fails")
    before = holder.answers(tmp_path).count("kept")
    holder.answer(tmp_path, "kept")
    until(lambda: holder.answers(tmp_path).count("kept") >= before + 4, what="renewals of more than a lease")
    assert len(living(installation)) == TREE_SIZE


def test_refused_renewal_kills_at_once(start: Start, tmp_path: Path, installation: str) -> None:
    """A lost lease gets no grace: even a tree that ignores TERM is dead, long before the holder's ten minutes."""
    start(STUBBORN, lease_seconds=6)
    holder.answer(tmp_path, "lost")
    assert "LEASE_LOST" in outcome(tmp_path)
    gone(installation)


def test_killed_supervisor_takes_the_tree_along(start: Start, tmp_path: Path, installation: str) -> None:
    """Without its supervisor the tree is killed by the holder, which calls it Vibey's own failure."""
    start()
    os.kill(supervisors(installation)[0], signal.SIGKILL)
    gone(installation)
    assert "VIBEY" in outcome(tmp_path)


def test_what_carries_no_mark_dies_with_the_run_of_a_killed_supervisor(
    start: Start, tmp_path: Path, installation: str
) -> None:
    """Processes without the run's environment, in sessions of their own, are dead when the holder gives the outcome."""
    strays = "600.25", "600.5"
    start(f"env -i setsid sleep {strays[0]} & (env -i setsid sh -c 'trap \"\" TERM; sleep {strays[1]}; :' &) ; {TREE}")
    until(lambda: all(sleeping(stray) for stray in strays), what="processes without marks")
    os.kill(supervisors(installation)[0], signal.SIGKILL)
    assert "VIBEY" in outcome(tmp_path)
    assert not any(sleeping(stray) for stray in strays)
    gone(installation)


def test_a_process_that_is_born_again_and_again_ends_with_a_killed_supervisor(
    start: Start, tmp_path: Path, installation: str
) -> None:
    """A chain of processes of which each starts the next in a session of its own, and ends, does not outrun the end."""
    chain = tmp_path / "chain"
    chain.write_text("#!/bin/sh\ntouch alive\nsetsid ./chain &\n")
    chain.chmod(0o700)
    start("cd ../..; for n in 1 2 3; do env -i setsid ./chain & done; exec sleep 600", size=1)
    until((tmp_path / "alive").exists, what="the chain")
    os.kill(supervisors(installation)[0], signal.SIGKILL)
    assert "VIBEY" in outcome(tmp_path)
    (tmp_path / "alive").unlink(missing_ok=True)
    assert not running(chain)
    assert not (tmp_path / "alive").exists()


def test_stopped_supervisor_does_not_keep_the_tree(start: Start, tmp_path: Path, installation: str) -> None:
    """A supervisor that is stopped is replaced by the holder once the lease is refused."""
    start(lease_seconds=6)
    os.kill(supervisors(installation)[0], signal.SIGSTOP)
    holder.answer(tmp_path, "lost")
    gone(installation)
    assert "LEASE_LOST" in outcome(tmp_path)


def test_stopped_tree_is_killed_all_the_same(start: Start, installation: str) -> None:
    """Processes that are stopped are no harder to kill."""
    process = start()
    for pid in living(installation):
        os.kill(pid, signal.SIGSTOP)
    process.kill()
    gone(installation)


def test_supervisor_ignores_what_ends_everything_politely(start: Start, installation: str) -> None:
    """TERM, INT and HUP to the supervisor leave the run alone."""
    start()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(supervisors(installation)[0], signum)
    assert len(living(installation)) == TREE_SIZE
    assert len(supervisors(installation)) == 1


def test_both_killed_leave_only_what_leftovers_finds(start: Start, installation: str) -> None:
    """Holder and supervisor killed together: the kernel kills the direct child, and the next look kills the rest."""
    process = start()
    guard = supervisors(installation)[0]
    process.send_signal(signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    process.kill()
    process.wait()
    until(lambda: 0 < len(living(installation)) < TREE_SIZE, what="the direct child's death")
    assert kill_leftovers(installation, live=lambda _job, _run: True) == ()
    assert kill_leftovers(installation, live=lambda _job, _run: False, job_id=8) == ()
    assert kill_leftovers("another", live=lambda _job, _run: False) == ()
    found = kill_leftovers(installation, live=lambda _job, _run: False, job_id=7)
    assert [(leftover.marks.job_id, leftover.marks.run_id) for leftover in found] == [(7, 70)]
    gone(installation)


def test_leftovers_are_found_while_they_change_programs(installation: str, tmp_path: Path) -> None:
    """While a process is replaced by another program the kernel shows no environment of it: each look sees it still."""
    marks = Marks(installation, 7, 70, 700)
    with restless(tmp_path, {"PATH": os.environ["PATH"], **marks.variables()}) as pids:
        for _ in range(20):
            seen = {row.pid for found, row in processes.marked_trees(lambda found: found == marks) if found == marks}
            assert seen == pids
        (leftover,) = kill_leftovers(installation, live=lambda _job, _run: False)
        assert leftover.killed == len(pids)


def test_programs_of_a_data_folder_are_found_while_they_change_programs(tmp_path: Path) -> None:
    """What a killed worker left behind is recognised by its variable, in whatever moment it is looked at."""
    layout = Layout(tmp_path / "data")
    with restless(tmp_path, {"PATH": os.environ["PATH"], OWNER_VARIABLE: str(layout.data_dir)}) as pids:
        for _ in range(20):
            assert {process.pid for process in supervised.leftovers(layout)} == pids


@pytest.mark.parametrize("spoil", ["open", "link", "file"])
def test_a_socket_folder_that_others_can_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    """Where the data folder's path is too long for a socket, its place can be foreseen, and made by somebody else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    layout = Layout(tmp_path / ("long" * 30))
    folder = layout.socket.parent
    assert folder.parent == tmp_path
    layout.write((), files=100)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.rmdir()
    if spoil == "open":
        folder.mkdir()
        folder.chmod(0o777)
    elif spoil == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.touch(mode=0o600)
    with pytest.raises(Refused, match="not a folder of this user's alone"):
        layout.write((), files=100)


def test_cancel_lets_the_program_wind_down(start: Start, tmp_path: Path, installation: str) -> None:
    """A cancel sends TERM first, and the work behind a shell that dies at once has the grace to save its state."""
    inner = "trap 'echo saved > state; exit 0' TERM; while :; do sleep 0.05; done"
    start(f'sh -c "{inner}" & exec sleep 600', lease_seconds=6, size=2)
    holder.answer(tmp_path, "cancel")
    assert "CANCEL" in outcome(tmp_path)
    assert (tmp_path / "runs" / "run-70" / "state").read_text() == "saved\n"
    gone(installation)


def test_tree_that_keeps_growing_is_killed_too(start: Start, installation: str) -> None:
    """A tree that starts new sessions faster than one look takes does not outrun the supervisor."""
    process = start("for i in 1 2 3; do (while :; do setsid sleep 600 & sleep 0.005; done) & done; wait", size=30)
    process.kill()
    gone(installation)
