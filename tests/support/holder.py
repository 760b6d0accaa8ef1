"""A holder that can really be killed: runs one command engine in a process of its own.

Arguments: folder, installation, lease in seconds, then the command. The file `renewal` in the folder holds the answer
that each renewal gets (kept, lost, cancel), or `unreachable`; each answer is noted in the file `renewals`, and the
outcome in the file `outcome`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.effort import Effort
from vibey.engines import orphans
from vibey.engines.contract import EngineConfig, Job, Renewal
from vibey.engines.registry import build
from vibey.engines.runner import execute

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def start(
    folder: Path, installation: str, argv: Sequence[str], *, lease_seconds: float = 60
) -> subprocess.Popen[bytes]:
    """Start a holder whose renewals are kept until the file says otherwise."""
    answer(folder, "kept")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.holder", str(folder), installation, str(lease_seconds), *argv],
        cwd=ROOT,
    )


def answer(folder: Path, word: str) -> None:
    """Set what the next renewals are told."""
    draft = folder / "renewal.draft"
    draft.write_text(word, encoding="utf-8")
    draft.replace(folder / "renewal")


def answers(folder: Path) -> list[str]:
    """The answers that renewals have got."""
    file = folder / "renewals"
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def main(folder: Path, installation: str, lease_seconds: float, argv: tuple[str, ...]) -> None:
    """Hold the run to its end, as a process of a worker's pool does."""
    orphans.adopt()

    def renew() -> Renewal:
        word = (folder / "renewal").read_text(encoding="utf-8")
        with (folder / "renewals").open("a", encoding="utf-8") as asked:
            asked.write(f"{word}\n")
        if word == "unreachable":
            raise ConnectionError("nobody there")
        return Renewal(word)

    outcome = execute(
        build(EngineConfig("held", "command", argv=argv)),
        Job(7, 70, 1, 1, Effort.LOW, {}, "default", installation=installation),
        directory_root=folder / "runs",
        lease_seconds=lease_seconds,
        renew=renew,
        timeout_seconds=600,
        grace_seconds=600,
    )
    (folder / "outcome").write_text(repr(outcome), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), tuple(sys.argv[4:]))
