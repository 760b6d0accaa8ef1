"""Git: the git program, run so that no repository can make it run or read anything of its own choosing.

Nothing is taken from the system's or the user's configuration. What a repository's own configuration could start
is overruled on the command line: hooks, fsmonitor, credential helpers, ssh, pagers, editors, signing, external
diffs, background maintenance. Filters and merge drivers have only names in a tree; their commands would have to
come from a configuration, so Vibey reads and writes trees in repositories whose configuration it has just written
itself (`fresh`). Every transport is refused: objects are read where they lie.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.errors import VibeyError
from vibey.domain.outcome import one_line
from vibey.engines.environment import absolute_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGEST_ANSWER = 256 * 1024 * 1024
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.alternateRefsCommand=false",
    "core.sshCommand=false",
    "core.askPass=false",
    "core.editor=false",
    "core.pager=cat",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=true",
    "credential.helper=",
    "protocol.allow=never",
    "diff.external=",
    "diff.ignoreSubmodules=all",
    "submodule.recurse=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "advice.addEmbeddedRepo=false",
)
# For every git, ours and the work's own: no configuration but the repository's, no question at a terminal.
ISOLATION = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
_INHERITED = ("PATH", "TMPDIR", "VIBEY_INSTALLATION", "VIBEY_JOB", "VIBEY_RUN", "VIBEY_TOKEN")


class GitFailed(VibeyError):
    """Git ended with an error; the message is the first it gave, for people."""


@dataclass(frozen=True, slots=True)
class Git:
    """Git on one repository. `tree` is the working tree, if there is one to be seen; `objects` where new ones go.

    `patience` is how many seconds a command may take, for one that nobody supervises.
    """

    repository: Path
    tree: Path | None = None
    objects: Path | None = None
    variables: Mapping[str, str] | None = None
    patience: float | None = None

    def __call__(self, *arguments: str, given: bytes | None = None, stdin: Path | None = None) -> bytes:
        """Run one command; what it prints. Raises GitFailed, also for an answer of over 256 MiB."""
        settings = (part for setting in _SETTINGS for part in ("-c", setting))
        command = ("git", "--no-pager", *settings, *arguments)
        with tempfile.TemporaryFile() as words, tempfile.TemporaryFile() as source:
            if given is not None:
                source.write(given)
                source.seek(0)
            opened = stdin.open("rb") if stdin is not None else source
            with (
                opened,
                subprocess.Popen(
                    command,
                    cwd=self.tree or self.repository,
                    env=self._environment(),
                    stdin=opened,
                    stdout=subprocess.PIPE,
                    stderr=words,
                ) as process,
            ):
                answer = self._answer(process)
            words.seek(0)
            said = words.read(64 * 1024).decode("utf-8", "replace")
        if process.returncode != 0 or len(answer) > LARGEST_ANSWER:
            raise GitFailed(_reason(arguments[0], said, process.returncode))
        return answer

    def _answer(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None  # noqa: S101  (for the type checker: it is a pipe)
        watchdog = threading.Timer(self.patience, process.kill) if self.patience else None
        if watchdog is not None:
            watchdog.start()
        try:
            answer = process.stdout.read(LARGEST_ANSWER + 1)
            if len(answer) > LARGEST_ANSWER:
                process.kill()
            return answer
        finally:
            if watchdog is not None:
                watchdog.cancel()

    def line(self, *arguments: str) -> str:
        """As a call, for an answer of one line."""
        return self(*arguments).decode("utf-8", "surrogateescape").removesuffix("\n")

    def says(self, *arguments: str, given: bytes | None = None) -> bool:
        """Whether the command succeeds."""
        try:
            self(*arguments, given=given)
        except GitFailed:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {
            **inherited,
            "PATH": absolute_path(inherited.get("PATH", "")),
            **ISOLATION,
            "HOME": os.devnull,
            "LC_ALL": "C",
            "GIT_DIR": str(self.repository),
            **({"GIT_WORK_TREE": str(self.tree)} if self.tree else {}),
            **({"GIT_OBJECT_DIRECTORY": str(self.objects)} if self.objects else {}),
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            **(self.variables or {}),
        }


def fresh(repository: Path, *, bare: bool, object_format: str, alternates: tuple[Path, ...], shallow: bytes) -> Git:
    """A new, empty repository that borrows the objects of others. `repository` is its git folder."""
    arguments = ("init", "--quiet", "--template=", f"--object-format={object_format}")
    repository.mkdir(parents=True)
    Git(repository)(*arguments, *(("--bare",) if bare else ()))
    if not bare:
        Git(repository)("config", "core.bare", "false")
    (repository / "objects" / "info").mkdir(exist_ok=True)
    lines = "".join(f"{_quoted(path)}\n" for path in alternates)
    (repository / "objects" / "info" / "alternates").write_text(lines, encoding="utf-8", errors="surrogateescape")
    if shallow:
        (repository / "shallow").write_bytes(shallow)
    return Git(repository)


def _quoted(path: Path) -> str:
    text = str(path)
    if "\n" in text or text.startswith(("#", '"')):
        raise GitFailed(f"{text!r}: git cannot borrow objects from a folder of such a name")
    return text


def _reason(command: str, said: str, status: int) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if line.startswith(("fatal:", "error:"))), 0)
    told = " ".join(lines[first : first + 2 if lines[first].endswith(":") else first + 1]) if lines else ""
    return one_line(f"git {command}: {told or f'exit {status}'}", 300)
