"""The real coding clients that `make test-clients` installs: which versions, where they are, and what was left out.

Each version lies in a folder of its own, `KIND/VERSION`. `chosen.json` beside them says which are to be tried: the
pinned version of each client, and the newest that the registry had when they were installed.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.carried import carried_out
from tests.support.recordings import CLIENTS
from vibey.domain.effort import Effort
from vibey.engines.contract import EngineConfig, Job
from vibey.engines.environment import DEFAULT_PATH
from vibey.engines.registry import equipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.provider import Provider
    from vibey.domain.outcome import Outcome
    from vibey.engines.contract import Stopped

PACKAGES = Path(__file__).parents[1] / "clients" / "package.json"
# Below which path each kind asks its provider, and a model that it does not refuse by its name.
KINDS = {
    "claude-code": ("", "claude-sonnet-5"),
    "codex": ("/v1", "gpt-5"),
    "gemini": ("", "gemini-2.5-pro"),
    "opencode": ("/v1", "m"),
    "qwen-code": ("/v1", "m"),
}
RUN_SECONDS = 150
PINNED, NEWEST = "pinned", "newest"


@dataclass(frozen=True, slots=True)
class Installed:
    """A version of a client, and whether it is the pinned or the newest one, or both."""

    kind: str
    version: str

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return folder() / self.kind / self.version

    @property
    def programs(self) -> Path:
        """The folder of its program."""
        return self.folder / "node_modules" / ".bin"

    @property
    def missing(self) -> str:
        """Why it cannot be used here; empty if it can."""
        if shutil.which("node") is None:
            return "node is not installed, and the clients need it"
        if not (self.programs / CLIENTS[self.kind].binary).exists():
            return f"{self} is not in {folder()}; run: make test-clients"
        return ""

    def __str__(self) -> str:
        """A name for people and for tests."""
        return f"{self.kind} {self.version}"


def folder() -> Path:
    """The folder they are installed in; VIBEY_CLIENTS_DIR names another."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("VIBEY_CLIENTS_DIR") or Path(cache) / "vibey" / "clients")


def pinned() -> dict[str, str]:
    """The pinned version of each kind."""
    versions: dict[str, str] = json.loads(PACKAGES.read_text(encoding="utf-8"))["dependencies"]
    return {kind: versions[client.package] for kind, client in sorted(CLIENTS.items())}


def newest() -> dict[str, str]:
    """The newest version of each kind that was installed; a kind without one is left out."""
    found: dict[str, str] = _chosen().get(NEWEST, {})
    return found


def left_out() -> list[str]:
    """What could not be found or installed, and why."""
    found: list[str] = _chosen().get("left_out", [])
    return found


def every() -> list[Installed]:
    """Each version to try, once."""
    pairs = [*pinned().items(), *newest().items()]
    return [Installed(kind, version) for kind, version in sorted(dict.fromkeys(pairs))]


def path(versions: Mapping[str, str]) -> str:
    """A PATH on which these versions come first."""
    programs = [str(Installed(kind, version).programs) for kind, version in versions.items()]
    return os.pathsep.join([*programs, os.environ.get("PATH", DEFAULT_PATH)])


def engine(kind: str, provider: Provider, folder: Path) -> EngineConfig:
    """An engine of this kind whose provider is ours, and whose jobs may work in repositories below `roots`."""
    below, model = KINDS[kind]
    (folder / "roots").mkdir(exist_ok=True)
    return EngineConfig(
        "e",
        kind,
        base_url=provider.url + below,
        model=model,
        api_key_env="CLIENTS_TEST_KEY",
        workspace_roots=(folder / "roots",),
        state_dir=folder / "state",
    )


def run(
    kind: str, provider: Provider, folder: Path, payload: dict[str, object], stall_seconds: float | None = None
) -> Outcome | Stopped:
    """One run of the real client, in the way a worker makes it."""
    job = Job(7, 70, 9, 1, Effort.HIGH, payload, "site", installation=uuid.uuid4().hex)
    made = equipped(engine(kind, provider, folder))
    return carried_out(made, job, folder / uuid.uuid4().hex, RUN_SECONDS, stall_seconds)


def choose(newest_versions: Mapping[str, str], left: list[str]) -> None:
    """Keep which newest versions are to be tried, and what was left out."""
    text = json.dumps({NEWEST: newest_versions, "left_out": left}, indent=2)
    (folder() / "chosen.json").write_text(f"{text}\n", encoding="utf-8")


def _chosen() -> dict[str, object] | dict[str, dict[str, str]]:
    try:
        found: dict[str, object] = json.loads((folder() / "chosen.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
