"""Line: places of waiting jobs in order, kept in pieces so short that no length makes adding and removing slower."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = int
"""Where a job is in the queue: by its standing, then by the order of arrival; see `place_of`."""

FRONT: Place = -(2**120)
END: Place = 2**120
NUMBERS = 2**40
PIECE = 512


def place_of(standing: int, number: int) -> Place:
    """The place of a job; no two numbers are the same, and none reaches `NUMBERS`."""
    return number + standing * NUMBERS


class Line:
    """Different places in order."""

    __slots__ = ("_lasts", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[list[Place]] = []
        self._lasts: list[Place] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __contains__(self, place: Place) -> bool:
        at = bisect_left(self._lasts, place)
        if at == len(self._lasts):
            return False
        piece = self._pieces[at]
        return piece[bisect_left(piece, place)] == place

    def add(self, place: Place) -> None:
        """Put a place in that is not there yet."""
        pieces, lasts = self._pieces, self._lasts
        if not pieces:
            pieces.append([place])
            lasts.append(place)
            return
        at = min(bisect_left(lasts, place), len(lasts) - 1)
        piece = pieces[at]
        insort(piece, place)
        lasts[at] = piece[-1]
        if len(piece) > 2 * PIECE:
            pieces.insert(at, piece[:PIECE])
            lasts.insert(at, piece[PIECE - 1])
            del piece[:PIECE]

    def remove(self, place: Place) -> None:
        """Take a place out that is there."""
        pieces, lasts = self._pieces, self._lasts
        at = bisect_left(lasts, place)
        piece = pieces[at]
        del piece[bisect_left(piece, place)]
        if piece:
            lasts[at] = piece[-1]
        else:
            del pieces[at], lasts[at]

    def after(self, place: Place) -> Place | None:
        """The first place behind this one."""
        at = bisect_right(self._lasts, place)
        if at == len(self._lasts):
            return None
        piece = self._pieces[at]
        return piece[bisect_right(piece, place)]

    def between(self, start: Place, end: Place) -> Iterator[Place]:
        """Every place from `start` on, before `end`; nothing may be put in or taken out meanwhile."""
        for at in range(bisect_left(self._lasts, start), len(self._lasts)):
            piece = self._pieces[at]
            if piece[0] >= end:
                return
            yield from piece[bisect_left(piece, start) : bisect_left(piece, end)]
