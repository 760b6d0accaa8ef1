"""The versions of coding clients that were tried: `vibey/engines/clients/tried.json` as a page."""

from __future__ import annotations

import json
from pathlib import Path

from docs.generate.markdown import code, table, words
from vibey.engines.clients.claude_code import ClaudeCodeEngine
from vibey.engines.clients.codex import CodexEngine
from vibey.engines.clients.gemini import GeminiEngine
from vibey.engines.clients.opencode import OpencodeEngine
from vibey.engines.clients.qwen_code import QwenCodeEngine
from vibey.engines.clients.tried import trials

ENGINES = (ClaudeCodeEngine, CodexEngine, GeminiEngine, OpencodeEngine, QwenCodeEngine)
PINNED = Path(__file__).parents[2] / "tests" / "clients" / "package.json"
INTRODUCTION = """\
# Versions of clients that were tried

`make test-clients` runs the pinned and the newest version of each client through whole jobs: success, refusals of every
kind, a stalled and a broken answer, prompts that look like commands, repositories whose settings start programs, and a
refusal that the tap does not see. It writes down what it tried. `vibey doctor` names a client that is newer than every
version in this table; such a client is used all the same.
"""


def page() -> str:
    """The page: one table, the versions of each client in their order."""
    pinned: dict[str, str] = json.loads(PINNED.read_text(encoding="utf-8"))["dependencies"]
    rows = [
        (
            code(engine.client.kind),
            words(trial.version) + (" (pinned)" if pinned[engine.client.package] == trial.version else ""),
            trial.day,
            words(", ".join(trial.failed)) or "all passed",
        )
        for engine in ENGINES
        for trial in trials()[engine.client.kind]
    ]
    return f"{INTRODUCTION}\n{table(('kind', 'version', 'last tried', 'failed'), rows)}"
