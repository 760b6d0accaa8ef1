"""The bounded log: both ends kept, the gap counted, readable and followable while it grows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.engines.output import DEFAULT_BOUND, OutputLog, follow, read_tail, read_text

if TYPE_CHECKING:
    from pathlib import Path

LIMITED = """
import resource, sys
from pathlib import Path
from vibey.engines.output import OutputLog
resource.setrlimit(resource.RLIMIT_FSIZE, (30, 30))
log = OutputLog(Path(sys.argv[1]))
log.write(b"x" * 100)
print(Path(sys.argv[1]).stat().st_size, log.lost)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the log is."""
    return tmp_path / "output.log"


@given(sizes=st.lists(st.integers(0, 90), max_size=30))
def test_log_keeps_both_ends_within_its_bound(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    """Whatever the pieces: at most the bound, the beginning and the end as written, and an exact count of the rest."""
    path = tmp_path_factory.mktemp("log") / "output.log"
    log = OutputLog(path, bound=80)
    written = b"".join(bytes([97 + index % 26]) * size for index, size in enumerate(sizes))
    done = 0
    for size in sizes:
        log.write(written[done : done + size])
        done += size
    log.close()
    assert sum(file.stat().st_size for file in path.parent.iterdir()) <= 80
    text = read_text(path)
    if len(written) <= 80:
        assert text == written.decode()
        return
    head, _, rest = text.partition("\n[vibey] ")
    count, _, tail = rest.partition(" bytes left out\n")
    if rest:
        assert head == written[:40].decode()
        assert len(head) + int(count) + len(tail) == len(written)
    assert written.decode().endswith(tail or text)
    assert len(tail or text) >= 20


def test_tail_is_readable_while_written(path: Path) -> None:
    """The last lines are there before the log is closed."""
    log = OutputLog(path)
    log.write(b"one\ntwo\nthr")
    assert read_tail(path, 2) == "two\nthr"
    log.write(b"ee\n")
    assert read_tail(path, 1) == "three\n"
    assert read_tail(path, 0) == ""
    log.close()


def test_missing_log_is_empty(path: Path) -> None:
    """A run that never printed has an empty log, not an error."""
    assert read_text(path) == ""
    assert read_tail(path, 5) == ""


def test_follower_sees_everything_and_ends_when_told(path: Path) -> None:
    """A follower gets what is written before and after it came, and stops once the log has ended."""
    log = OutputLog(path)
    log.write("früh ".encode())
    ended = threading.Event()
    seen: list[str] = []
    follower = follow(path, ended.wait)
    seen.append(next(follower))
    log.write("später \u20ac"[:-1].encode() + b"\xe2\x82")
    seen.append(next(follower))
    log.write(b"\xac")
    ended.set()
    seen.extend(follower)
    log.close()
    assert "".join(seen) == "früh später €"


def test_slow_follower_is_told_what_it_missed(path: Path) -> None:
    """Text dropped before the follower came to it is counted, not passed over in silence."""
    log = OutputLog(path, bound=40)
    log.write(b"a" * 10)
    asked = iter([False, True])
    follower = follow(path, lambda _seconds: next(asked))
    assert next(follower) == "a" * 10
    log.write(b"b" * 100)
    assert "".join(follower) == "b" * 10 + "\n[vibey] 70 bytes left out\n" + "b" * 20
    log.close()


def test_log_is_for_its_user_only_and_never_somebody_elses_file(path: Path, tmp_path: Path) -> None:
    """An existing file or link at the log's place is not written to."""
    OutputLog(path).close()
    assert path.stat().st_mode & 0o077 == 0
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="exists"):
        OutputLog(tmp_path / "link")


def test_text_that_could_not_be_written_is_counted_and_reported(path: Path) -> None:
    """A log that has no room leaves text out, and says how much once it has room again."""
    log = OutputLog(path, bound=400)
    log.write(b"a" * 200)
    blocked = path.parent / "output.log.at-200"
    blocked.mkdir()
    log.write(b"b" * 5)
    log.note("after")
    assert log.lost == 5 + len("[vibey] after\n")
    blocked.rmdir()
    log.write(b"c\n")
    assert log.lost == 0
    assert read_text(path) == "a" * 200 + "\n[vibey] 19 bytes left out: they could not be written\nc\n"
    log.close()


def test_a_write_that_takes_a_part_is_continued(path: Path) -> None:
    """At a limit of the file's size the system takes what fits; the rest is counted, and nothing ends."""
    taken = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True, timeout=300
    )
    assert taken.stdout.split() == ["30", "70"]


@pytest.mark.parametrize("name", ["output.log", "output.log.at-2000000"])
@pytest.mark.parametrize("spoil", ["pipe", "link", "loop", "folder", "socket", "endless"])
def test_log_that_the_work_replaced_is_no_trap(path: Path, name: str, spoil: str) -> None:
    """A pipe is not waited for, a link not followed, a file without an end not read to it."""
    path.write_text("head\n")
    target = path.with_name(name)
    target.unlink(missing_ok=True)
    (path.parent / "private").write_text("private")
    if spoil == "pipe":
        os.mkfifo(target)
    elif spoil in {"link", "loop"}:
        target.symlink_to(path.parent / ("private" if spoil == "link" else name))
    elif spoil == "folder":
        target.mkdir()
    elif spoil == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(target))
    else:
        target.touch()
        os.truncate(target, 2**40)
    text = read_text(path)
    assert len(text) <= 2 * DEFAULT_BOUND
    assert "private" not in text
    assert text.startswith("head" if target != path else "") or spoil == "endless"
    assert len(read_tail(path, 5)) <= len(text)
    assert sum(len(piece) for piece in follow(path, lambda _seconds: True)) <= 2 * DEFAULT_BOUND


def test_no_more_segments_are_read_than_a_log_has(path: Path) -> None:
    """Files that the work put beside its log make it no longer."""
    path.write_text("head")
    path.with_name("output.log.at-\u00b2").write_text("no number")
    for offset in range(10, 2000):
        path.with_name(f"output.log.at-{offset}").write_text("x")
    assert len(read_text(path)) < 200
