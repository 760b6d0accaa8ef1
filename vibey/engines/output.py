"""OutputLog: what a run printed, bounded: its beginning and its end, and how much was left out between.

On disk a log is a few plain files side by side, so that a reader, and a log whose writer was killed, need
nothing else: the head at the log's own path, and the tail in segments named `<path>.at-<offset>` after the
place of their first byte in the whole output. The oldest segment is dropped when a new one begins, so the
tail kept is between a quarter and a half of the bound. Readers work by offsets in the whole output and can
follow while it is written.

The work whose output this is can reach the files. A reader takes plain files only, waits for none, follows no
link, and reads of each, and of how many, no more than a writer would have left.
"""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from vibey.engines.plain import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEFAULT_BOUND = 4 * 1024 * 1024
FOLLOW_PAUSE_SECONDS = 0.2
_PIECE = 64 * 1024
_TAIL_SEGMENTS = 2
# A writer begins a segment before it drops the oldest.
_MOST_SEGMENTS = _TAIL_SEGMENTS + 1


class OutputLog:
    """The writing side: one writer per run, appending. `bound` is the most bytes ever kept, in total."""

    def __init__(self, path: Path, bound: int = DEFAULT_BOUND) -> None:
        self.path = path
        self._head_size = bound // 2
        self._segment_size = max(1, bound // 4)
        self._written = 0
        self._room = self._head_size
        self._segments: list[Path] = []
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND, 0o600)
        self.lost = 0

    def write(self, text: bytes) -> None:
        """Append. A full disk never ends the run: what it cannot take is left out, and counted in `lost`.

        Once there is room again, a line reports how much was left out, and `lost` starts from zero.
        """
        gap = f"\n[vibey] {self.lost} bytes left out: they could not be written\n".encode() if self.lost else b""
        view = memoryview(gap + text)
        while view:
            if not self._room:
                self._next_segment()
            taken = self._append(view[: self._room])
            if not taken:
                break
            self._written += taken
            self._room -= taken
            view = view[taken:]
        self.lost = self.lost + min(len(view), len(text)) if view else 0

    def note(self, line: str) -> None:
        """Append a line of Vibey's own."""
        self.write(f"[vibey] {line}\n".encode())

    def close(self) -> None:
        """Release the file; the log stays readable."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, part: memoryview) -> int:
        """Write to the current file; the number of bytes that it took."""
        if self._file < 0 or not part:
            return 0
        try:
            return os.write(self._file, part)
        except OSError:
            return 0

    def _next_segment(self) -> None:
        """Begin a segment and drop the oldest one. Without room for it the next write tries again."""
        path = self.path.with_name(f"{self.path.name}.at-{self._written}")
        try:
            following = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND, 0o600)
        except OSError:
            return
        self.close()
        self._file = following
        self._room = self._segment_size
        self._segments.append(path)
        if len(self._segments) > _TAIL_SEGMENTS:
            with suppress(OSError):
                self._segments.pop(0).unlink(missing_ok=True)


def read_text(path: Path) -> str:
    """The whole log as kept, with a line where something was left out; empty if there is none."""
    return b"".join(_pieces(path, 0)).decode("utf-8", "replace")


def read_tail(path: Path, lines: int) -> str:
    """The last so many lines kept, readable while the run goes on."""
    kept = read_text(path).splitlines(keepends=True)
    return "".join(kept[-lines:]) if lines > 0 else ""


def follow(path: Path, ended: Callable[[float], bool]) -> Iterator[str]:
    """The log's text from its beginning and then as it grows, in pieces.

    `ended(seconds)` waits up to that long and says whether nothing more will be written (`Event.wait` does
    both); then what is there is given out, and the generator ends.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    reached = 0
    last = False
    while True:
        for offset, piece in placed_pieces(path, reached):
            reached = offset
            yield decoder.decode(piece)
        if last:
            return
        last = ended(FOLLOW_PAUSE_SECONDS)


def _pieces(path: Path, start: int) -> Iterator[bytes]:
    return (piece for _, piece in placed_pieces(path, start))


def placed_pieces(path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """Kept text from this offset on, each piece with the offset that follows it."""
    reached = start
    for offset, file in _files(path):
        if offset > reached:
            yield offset, f"\n[vibey] {offset - reached} bytes left out\n".encode()
            reached = offset
        descriptor = opened(file)
        if descriptor is None:
            continue
        try:
            while reached < offset + DEFAULT_BOUND and (piece := os.pread(descriptor, _PIECE, reached - offset)):
                reached += len(piece)
                yield reached, piece
        finally:
            os.close(descriptor)


def _files(path: Path) -> list[tuple[int, Path]]:
    head = [(0, path)] if path.exists() else []
    prefix = f"{path.name}.at-"
    named = (file for file in path.parent.glob(f"{path.name}.at-*") if file.name.removeprefix(prefix).isdecimal())
    return head + sorted((int(file.name.removeprefix(prefix)), file) for file in named)[-_MOST_SEGMENTS:]
