"""Recordings of real clients, and reading one as an engine would."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from vibey.engines.clients.claude_code import ClaudeCodeEngine
from vibey.engines.clients.codex import CodexEngine
from vibey.engines.clients.gemini import GeminiEngine
from vibey.engines.clients.opencode import OpencodeEngine
from vibey.engines.clients.qwen_code import QwenCodeEngine
from vibey.engines.clients.reading import PATIENCE_SECONDS, Reading
from vibey.engines.clients.tap import Tap
from vibey.engines.contract import Exit, StopReason
from vibey.engines.stream import LineCutter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vibey.domain.outcome import Outcome

FOLDER = Path(__file__).parents[1] / "data" / "cli"
WORD = "w" * 32
"""The word of the taps in the recordings."""
CLIENTS = {
    engine.client.kind: engine.client
    for engine in (ClaudeCodeEngine, CodexEngine, GeminiEngine, OpencodeEngine, QwenCodeEngine)
}


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording and what it has to come to."""

    kind: str
    scenario: str
    files: list[str]
    exit_code: int | None
    expected: tuple[str, str | None]
    resets_in: int | None
    resets_at: int | None

    @property
    def output(self) -> bytes:
        """Everything it printed."""
        return b"".join((FOLDER / name).read_bytes() for name in self.files)

    @override
    def __str__(self) -> str:
        """A name for people."""
        return f"{self.kind}: {self.scenario}"


def recordings() -> list[Recording]:
    """All there are."""
    rows: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    return [
        Recording(
            row["kind"],
            row["scenario"],
            row["files"],
            row["exit_code"],
            (row["class"], row["capacity"]),
            row["resets_in"],
            row["resets_at"],
        )
        for row in rows
    ]


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """This moment."""
        return self.now


def read(kind: str, pieces: Iterable[bytes], exit_code: int | None) -> Outcome:
    """What a client's output comes to. No exit code: it is ended for what it shows, or when patience is over."""
    clock = Clock()
    reading = Reading(CLIENTS[kind].table, CLIENTS[kind].hear, Tap(WORD), clock)
    cutter = LineCutter()
    for piece in pieces:
        for line in cutter.feed(piece):
            reading.take(line)
    for line in cutter.rest():
        reading.take(line)
    clock.now += PATIENCE_SECONDS
    reading.expire()
    ended = Exit(exit_code) if exit_code is not None else Exit(None, stopped=StopReason.CANCEL)
    return reading.outcome(ended, kind)
