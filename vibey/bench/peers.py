"""Peers: other people's software to measure beside, in an environment of its own that `make bench` prepares.

A peer that is not there is named as missing, with the reason; nothing stands in for it. A peer's side is a script that
knows nothing of Vibey, run by the peers' own interpreter. It is asked by lines of JSON and answers each with one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any

from vibey.bench.processes import surroundings
from vibey.domain.errors import VibeyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vibey.bench.processes import Processes

NAMES = ("litellm", "procrastinate", "celery")
STOP_SECONDS = 15.0
WATCH_SECONDS = 0.5
LOOK = """
import importlib.metadata as known, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = known.version(name)
    except known.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Peers:
    """The interpreter peers are run by, None for none; the versions found, and why the others are missing."""

    python: Path | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def found(cls, directory: Path | None) -> Peers:
        """What is installed in the environment under this folder."""
        if directory is None:
            return cls(missing=dict.fromkeys(NAMES, "no environment of peers was named; run: make bench"))
        python = directory / "bin" / "python"
        if not python.exists():
            return cls(missing=dict.fromkeys(NAMES, "there is no environment of peers; run: make bench"))
        said = subprocess.run([python, "-I", "-c", LOOK, *NAMES], capture_output=True, check=True, text=True)
        versions: dict[str, str] = json.loads(said.stdout)
        reason = "it could not be installed in the environment of peers"
        return cls(python, versions, {name: reason for name in NAMES if name not in versions})

    def has(self, name: str) -> bool:
        """Whether a peer is there."""
        return name in self.versions

    @property
    def celery(self) -> str:
        """The interpreter plain Celery is run by: the peers', else our own, which has the same Celery."""
        return str(self.python) if self.has("celery") else sys.executable


class Dialogue:
    """A peer's script at work: asked one thing at a time."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        """Talk to a process that was started by `begun`."""
        self._process = process
        self._log = log

    @classmethod
    @contextmanager
    def begun(
        cls, python: Path | str, script: str, folder: Path, environment: dict[str, str], arguments: Sequence[str] = ()
    ) -> Iterator[Dialogue]:
        """Start the script of this name beside this module; it is ended on leaving."""
        log = folder / f"{script}.log"
        path = Path(__file__).with_name(f"{script}.py")
        with log.open("w", encoding="utf-8") as sink:
            process = subprocess.Popen(
                [python, "-I", path, *arguments],
                cwd=folder,
                env=surroundings(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                start_new_session=True,
            )
        try:
            yield cls(process, log)
        finally:
            _end(process)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def ask(self, watched: Processes | None = None, **values: object) -> dict[str, Any]:
        """Ask one thing and wait for the answer, as long as the watched processes live.

        VibeyError with the end of its log when it has none.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError(self._process)
        try:
            self._process.stdin.write(f"{json.dumps(values)}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        while watched is not None and not select([self._process.stdout], [], [], WATCH_SECONDS)[0]:
            watched.check()
        line = self._process.stdout.readline()
        if not line:
            tail = self._log.read_text(encoding="utf-8", errors="replace").strip()[-800:]
            raise VibeyError(f"the peer's script {self._log.stem} failed:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _end(process: subprocess.Popen[str]) -> None:
    """End a script, which has nothing to lose, and whatever it was waiting for."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
