"""Real git repositories for the workspace tests, and runs of engines in them."""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibey.domain.effort import Effort
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.engines.contract import Check, EngineConfig, Job, Renewal
from vibey.engines.registry import build
from vibey.engines.runner import execute
from vibey.engines.workspace import MIN_FREE_BYTES, Workspaced

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.domain.outcome import Outcome
    from vibey.engines.contract import Stopped

PERSON = {"NAME": "Someone", "EMAIL": "someone@example.org", "DATE": "2030-01-01T00:00:00Z"}


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository with a working tree, and the ways a test looks at it."""

    path: Path

    @classmethod
    def made(cls, path: Path, **files: str) -> Repository:
        """A new one on `main`, with one commit of these files (`__` in a name is a dot)."""
        path.mkdir(parents=True)
        repository = cls(path)
        repository.git("init", "--quiet", "-b", "main")
        repository.commit("first", **(files or {"readme": "hello\n"}))
        return repository

    def git(self, *arguments: str, check: bool = True) -> str:
        """What git prints, without the end of its last line."""
        people = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in PERSON.items()}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.path), **people, "GIT_CONFIG_NOSYSTEM": "1"}
        command = ("git", "-c", "protocol.file.allow=always", *arguments)
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=check)
        return done.stdout.rstrip("\n")

    def commit(self, message: str, **files: str) -> str:
        """Commit these files; the commit."""
        for name, text in files.items():
            (self.path / name.replace("__", ".")).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def refs(self) -> dict[str, str]:
        """Every reference and where it points."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split() for line in lines)

    def show(self, name: str) -> str:
        """A file of a commit, as `vibey/7:readme`."""
        return self.git("show", name)

    def files(self, commit: str) -> list[str]:
        """The paths of a commit."""
        return self.git("ls-tree", "-r", "--name-only", commit).splitlines()

    def is_sound(self) -> bool:
        """Whether everything a reference leads to is there and well formed, and its tree is as committed."""
        self.git("fsck", "--full", "--strict")
        return self.git("status", "--porcelain", "--untracked-files=no") == ""


@dataclass
class Studio:
    """Runs of a shell script in trees of repositories under one root."""

    folder: Path
    config: dict[str, object] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    min_free: int = MIN_FREE_BYTES
    title: str = ""

    @property
    def roots(self) -> Path:
        """The folder jobs may work in."""
        return self.folder / "roots"

    def run(self, script: str, payload: dict[str, object], *, job_id: int = 7, run_id: int = 70) -> Outcome | Stopped:
        """Run it to its end."""
        argv = ("sh", "-c", script)
        settings = {"argv": argv, "workspace_roots": (self.roots,), "checks": self.checks, **self.config}
        config = EngineConfig("shell", "command", **settings)  # type: ignore[arg-type]
        job = Job(job_id, run_id, 9, 1, Effort.LOW, payload, "site", installation=uuid.uuid4().hex, title=self.title)
        return execute(
            Workspaced(build(config), config, self.min_free),
            job,
            directory_root=self.folder / "runs",
            lease_seconds=60,
            renew=lambda: Renewal.KEPT,
            timeout_seconds=100,
            grace_seconds=1,
        )

    def log(self, run_id: int = 70) -> str:
        """A run's log."""
        return (self.folder / "runs" / f"run-{run_id}" / "output.log").read_text(errors="replace")


def done(outcome: Outcome | Stopped) -> dict[str, object]:
    """The result of a success."""
    assert isinstance(outcome, Success), outcome
    return dict(outcome.result or {})


def refused(outcome: Outcome | Stopped) -> str:
    """The words of a failure that is the work's."""
    assert isinstance(outcome, Failure), outcome
    assert outcome.failure_class is FailureClass.WORK, outcome
    return outcome.detail
