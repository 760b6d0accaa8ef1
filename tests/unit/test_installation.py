"""What an installation says of itself, before it has connected to anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.services.installation import Installation
from vibey.settings import Source, settings_of

if TYPE_CHECKING:
    from pathlib import Path


def _identity(folder: Path, database_url: str) -> str:
    services = {"database_url": database_url, "redis_url": "redis://localhost:1/0"}
    return Installation.open(settings_of(Source(None, folder, {"services": services}), {})).identity


def test_its_identity_tells_databases_apart_and_no_passwords(tmp_path: Path) -> None:
    """Jobs see it, and from a digest of a weak password the password could be found."""
    first = _identity(tmp_path, "postgresql://me:first@db.example/vibey")
    assert first == _identity(tmp_path, "postgresql://me:second@db.example/vibey")
    assert first != _identity(tmp_path, "postgresql://me:first@db.example/other")
