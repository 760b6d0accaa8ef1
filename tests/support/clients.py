"""The real coding clients that `make test-clients` installs: where they are, and whether they can be used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from vibey.engines.environment import DEFAULT_PATH

PACKAGES = Path(__file__).parents[1] / "clients" / "package.json"


def folder() -> Path:
    """The folder they are installed in; VIBEY_CLIENTS_DIR names another."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("VIBEY_CLIENTS_DIR") or Path(cache) / "vibey" / "clients")


def missing() -> str:
    """Why they cannot be used here; empty if they can."""
    if shutil.which("node") is None:
        return "node is not installed, and the clients need it"
    wanted: dict[str, str] = json.loads(PACKAGES.read_text(encoding="utf-8"))["dependencies"]
    for name, version in wanted.items():
        try:
            described = json.loads((folder() / "node_modules" / name / "package.json").read_text(encoding="utf-8"))
        except OSError:
            return f"{name} is not in {folder()}; run: make test-clients"
        if described["version"] != version:
            return f"{name} in {folder()} is {described['version']} and not {version}; run: make test-clients"
    return ""


def path() -> str:
    """A PATH on which the clients come first."""
    return f"{folder() / 'node_modules' / '.bin'}{os.pathsep}{os.environ.get('PATH', DEFAULT_PATH)}"
