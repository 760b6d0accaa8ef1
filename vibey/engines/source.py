"""Source: the repository a job names, if the operator lets jobs work in it.

What a job says is a path, or a name below one of the engine's roots, and never an address. Every folder that git
would read objects from has to lie under a root as well, links followed: a repository's own files may name others.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.engines.calling import DeclaredFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LARGEST_FILE = 1024 * 1024
_DEEPEST_ALTERNATE = 5
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class Source:
    """A repository: its git folder, that of its objects, and the commits whose parents it has not."""

    repository: Path
    objects: Path
    shallow: bytes


def located(named: str, roots: Sequence[Path]) -> Path:
    """The real folder of the repository a job names; DeclaredFailure says why it may not have it."""
    words = _objection(named)
    if words:
        raise DeclaredFailure(f"payload.repo {named[:200]!r}: {words}")
    real_roots = _real(roots)
    tried = [Path(named)] if os.path.isabs(named) else [root / named for root in real_roots]  # noqa: PTH117
    for path in tried:
        try:
            found = path.resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        if found.is_dir() and _is_within(found, real_roots):
            return found
    raise DeclaredFailure(f"payload.repo {named[:200]!r} is no repository under this engine's workspace_roots")


def opened(folder: Path, roots: Sequence[Path]) -> Source:
    """The repository in a real folder; DeclaredFailure for one that is none, or reaches out of the roots."""
    real_roots = _real(roots)
    repository = _inside(_git_folder(folder), real_roots, "its git folder")
    common = repository
    if (repository / "commondir").is_file():
        common = _inside(repository / _small(repository / "commondir").strip(), real_roots, "its common folder")
    objects = _inside(common / "objects", real_roots, "its objects")
    for path in _borrowed(objects, _DEEPEST_ALTERNATE):
        _inside(path, real_roots, "what it borrows objects from")
    for name in ("config", "HEAD", "packed-refs"):
        _small(common / name)
    return Source(repository, objects, _small(common / "shallow").encode())


def _objection(named: str) -> str:
    if not named or len(named) > _LONGEST_PATH or not named.isprintable():
        return "a path is one line of printable text"
    if named.startswith("-"):
        return "a path that looks like an option"
    if "://" in named or (":" in named and not os.path.isabs(named)):  # noqa: PTH117
        return "an address; only repositories on this machine can be worked in"
    return "a path without .. is needed" if ".." in Path(named).parts else ""


def _git_folder(folder: Path) -> Path:
    inner = folder / ".git"
    if inner.is_dir():
        return inner
    if inner.is_file():
        name, _, where = _small(inner).strip().partition(": ")
        if name == "gitdir" and where:
            return folder / where
    elif (folder / "HEAD").is_file() and (folder / "objects").is_dir():
        return folder
    raise DeclaredFailure(f"{folder} is no git repository")


def _borrowed(objects: Path, depth: int) -> Iterator[Path]:
    """Every folder that git would read objects from beside this one."""
    for entry in os.scandir(objects):
        if entry.is_symlink():
            yield Path(entry.path)
    for line in _small(objects / "info" / "alternates").splitlines():
        if line and not line.startswith("#"):
            path = objects / line
            yield path
            if path.is_dir() and depth:
                yield from _borrowed(path, depth - 1)


def _inside(path: Path, real_roots: Sequence[Path], what: str) -> Path:
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise DeclaredFailure(f"{path}: {what} cannot be found") from None
    if not _is_within(found, real_roots):
        raise DeclaredFailure(f"{path}: {what} is outside this engine's workspace_roots")
    return found


def _real(roots: Sequence[Path]) -> list[Path]:
    return [Path(os.path.realpath(root)) for root in roots]


def _is_within(path: Path, real_roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in real_roots)


def _small(path: Path) -> str:
    """The text of a small plain file, empty if there is none; git would wait for a pipe, so one is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DeclaredFailure(f"{path} is no plain file")
        return os.read(descriptor, _LARGEST_FILE).decode("utf-8", "surrogateescape")
    finally:
        os.close(descriptor)
