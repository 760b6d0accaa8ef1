"""Ours: modules of Vibey's own run as an engine's child process, and the report such a program leaves."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from vibey.engines.results import storable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def program(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs a module with this interpreter."""
    # -P: the run's folder, which the job fills, is no place to import from.
    return (sys.executable, "-P", "-u", "-m", module, *arguments)


def import_path() -> dict[str, str]:
    """The worker's import path beyond what every interpreter of this installation finds by itself."""
    own = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    entries = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100  (an empty entry means the working folder)
    beyond = [entry for entry in entries if not entry.startswith(tuple(f"{prefix}{os.sep}" for prefix in own))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(beyond))} if beyond else {}


def write_report(path: Path, report: Mapping[str, object]) -> None:
    """Write a result file (`vibey.engines.results`)."""
    # Renamed into place, so that a process killed while writing leaves no half of a report.
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(storable(report), ensure_ascii=False), encoding="utf-8")
    draft.replace(path)
