"""Hiding: clients of this machine whose requests the tap did not see, kept from the run that found it to the doctor.

Refusals that such a client does not show end its run only as a stall (`stall_seconds`). One small file for each kind
holds the version; the next run in which the tap reports a request removes it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WORDS = "this version hides its requests"


def record(folder: Path, kind: str, version: str) -> None:
    """Keep that this version of the client hides its requests; a disk that takes no more keeps nothing."""
    path = _file(folder, kind)
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_text(json.dumps({"hides_requests": version}) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)


def forget(folder: Path, kind: str) -> None:
    """Keep no longer that the client hides its requests."""
    _file(folder, kind).unlink(missing_ok=True)


def hides(folder: Path, kind: str, version: str | None) -> bool:
    """Whether a run on this machine found that this version of the client hides its requests."""
    try:
        kept = json.loads(_file(folder, kind).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return version is not None and isinstance(kept, dict) and kept.get("hides_requests") == version


def _file(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.json"
