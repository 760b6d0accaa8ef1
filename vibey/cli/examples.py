"""The configuration files that come with Vibey: from the wheel, or from `config/` in a checkout."""

from __future__ import annotations

import difflib
from pathlib import Path

import vibey
from vibey.domain.errors import UnknownName

PROCFILE = "Procfile"


def example_names() -> list[str]:
    """The files by their paths, those of the top folder first."""
    return sorted(_files(), key=lambda name: ("/" in name, name))


def example_text(name: str) -> str:
    """A file by its path, its own name, or its name without a suffix, where only one has it; raises UnknownName."""
    files = _files()
    found = [path for path in files if name in {path, Path(path).name}] or [
        path for path in files if name == Path(path).stem
    ]
    chosen = [path for path in found if "/" not in path] or found
    if len(chosen) != 1:
        near = chosen or difflib.get_close_matches(name, files, n=3, cutoff=0.4) or example_names()
        raise UnknownName("example", name, tuple(near))
    return files[chosen[0]].read_text(encoding="utf-8")


def _files() -> dict[str, Path]:
    package = Path(vibey.__file__).parent
    installed, checkout = package / "config_files", package.parent / "config"
    folder = installed if installed.is_dir() else checkout
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    if folder == checkout:
        found[PROCFILE] = package.parent / PROCFILE
    return {name: path for name, path in found.items() if "__pycache__" not in name}
