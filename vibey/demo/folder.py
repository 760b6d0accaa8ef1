"""The demo's folder: everything a demo makes is below it, and nothing else of the machine is touched.

vibey.toml       the demo's configuration, written anew by every demo
data/            the embedded servers, and the runs' logs
repositories/    what the jobs work on; their branches arrive here
logs/            what the workers and beat said
demo.lock        held while a demo runs
processes.json   the processes it started, so that the next demo can end what a killed one left
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from vibey import embedded
from vibey.domain.errors import Refused
from vibey.embedded.record import open_lock_file
from vibey.services.programs import inherited
from vibey.settings import Settings, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARK = "# Written by: vibey demo"
FOREIGN_PREFIXES = ("VIBEY_", "GIT_")
GIT_IDENTITY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "demo",
    "GIT_AUTHOR_EMAIL": "demo@demo.invalid",
    "GIT_COMMITTER_NAME": "demo",
    "GIT_COMMITTER_EMAIL": "demo@demo.invalid",
}


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a demo keeps its things; `path` is absolute."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration, for `vibey -c`."""
        return self.path / "vibey.toml"

    @property
    def logs(self) -> Path:
        """What the demo's processes said."""
        return self.path / "logs"

    @property
    def repository(self) -> Path:
        """The repository the jobs work on."""
        return self.path / "repositories" / "shop"

    @property
    def processes(self) -> Path:
        """The record of the demo's processes."""
        return self.path / "processes.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for one demo, making it if need be; Refused while another runs in it, or it is not ours."""
        if self.path.exists() and not self._is_ours():
            raise Refused(f"{self.path} holds something else than a demo", "name another folder: --directory DIR")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_lock_file(self.path / "demo.lock") as lock:
            try:
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                remedy = "wait for its end, or name another folder: --directory DIR"
                raise Refused(f"a demo is running in {self.path}", remedy) from None
            yield

    def prepare(self) -> Settings:
        """Write the configuration, make the repository unless an earlier demo did, and return the settings."""
        self.config.write_text(self._configuration(), encoding="utf-8")
        self.logs.mkdir(exist_ok=True)
        if not (self.repository / ".git").is_dir():
            make_repository(self.repository)
        return load(self.config, clean_environment())

    def remove(self) -> None:
        """Stop the servers and delete the folder with all it holds."""
        embedded.destroy(self.path / "data")
        shutil.rmtree(self.path)

    def _is_ours(self) -> bool:
        if not self.path.is_dir():
            return False
        if self.config.is_file():
            return self.config.read_text(encoding="utf-8", errors="replace").startswith(MARK)
        return all(entry.name == "demo.lock" for entry in self.path.iterdir())

    def _configuration(self) -> str:
        with resources.as_file(resources.files("vibey.demo") / "engine.py") as program:
            places = {
                "python": sys.executable,
                "program": str(program),
                "repositories": str(self.repository.parent),
            }
        template = Template((resources.files("vibey.demo") / "config.toml").read_text(encoding="utf-8"))
        # A JSON string is a TOML string too, whatever the path holds.
        return template.substitute({name: json.dumps(place) for name, place in places.items()})


def clean_environment() -> dict[str, str]:
    """This process's environment without what would point the demo at another installation, broker or repository."""
    return {name: value for name, value in inherited(os.environ).items() if not name.startswith(FOREIGN_PREFIXES)}


def require_git() -> None:
    """Refused, with the remedy, when there is no git to work with."""
    _git_program()


def _git_program() -> str:
    found = shutil.which("git")
    if found is None:
        remedy = "install it (apt install git, dnf install git, brew install git) and try again"
        raise Refused("the demo's jobs work on a git repository, and there is no git on the PATH", remedy)
    return found


def make_repository(target: Path) -> None:
    """Make the demo's repository: two commits, and the branches `main` and `release-1`."""
    draft = target.with_name(f"{target.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    with resources.as_file(resources.files("vibey.demo") / "project") as project:
        shutil.copytree(project, draft, ignore=shutil.ignore_patterns("__pycache__"))
    git(draft, "init", "--quiet")
    git(draft, "symbolic-ref", "HEAD", "refs/heads/main")
    git(draft, "add", "--", "README.md", "build.py", "shop")
    git(draft, "commit", "--quiet", "--message=A very small shop")
    git(draft, "branch", "--", "release-1")
    git(draft, "add", "--all")
    git(draft, "commit", "--quiet", "--message=Test the shop")
    git(draft, "branch", "--force", "--", "release-1", "main")
    draft.rename(target)


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder, untouched by anybody's configuration; Refused with its own words when it fails."""
    done = subprocess.run(
        (_git_program(), *arguments),
        cwd=folder,
        env=clean_environment() | GIT_IDENTITY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        words = done.stdout.strip().splitlines() or ["it said nothing"]
        raise Refused(f"git {arguments[0]} failed in {folder}: {words[-1]}", "mend that and try again")
