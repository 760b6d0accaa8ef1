"""Plain: opening files that the work of a run could have replaced, by a pipe that keeps who opens it, or by a link."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def opened(file: Path) -> int | None:
    """A descriptor to read a plain file by, the caller's to close; None if there is none at this very path."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def beginning(file: Path, most: int) -> bytes:
    """The first so many bytes of a plain file; none if there is none."""
    descriptor = opened(file)
    if descriptor is None:
        return b""
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)
