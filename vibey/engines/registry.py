"""Registry: which kinds of engine there are, and the adapter for a configured engine."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from vibey.domain.errors import Refused, UnknownName
from vibey.engines.contract import Engine, EngineConfig
from vibey.engines.workspace import Workspaced

GROUP = "vibey.engines"
# Where each kind is built; a module is imported when its kind is first used.
BUILT_IN = {
    "claude-code": "vibey.engines.clients.claude_code:ClaudeCodeEngine",
    "codex": "vibey.engines.clients.codex:CodexEngine",
    "command": "vibey.engines.command:CommandEngine",
    "gemini": "vibey.engines.clients.gemini:GeminiEngine",
    "noop": "vibey.engines.noop:NoopEngine",
    "openai": "vibey.engines.openai:OpenAIEngine",
    "opencode": "vibey.engines.clients.opencode:OpencodeEngine",
    "python": "vibey.engines.python:PythonEngine",
    "qwen-code": "vibey.engines.clients.qwen_code:QwenCodeEngine",
}

Builder = Callable[[EngineConfig], Engine]


def known_kinds() -> tuple[str, ...]:
    """Every kind that can be configured here, built in or installed."""
    return tuple(sorted({*BUILT_IN, *_installed()}))


def build(config: EngineConfig) -> Engine:
    """The adapter for this engine.

    Raises UnknownName for a kind nobody provides, Refused for one whose package cannot be loaded,
    InvalidInput for settings its kind cannot use. A built-in kind cannot be replaced by an installed one.
    """
    return _builder(config.kind)(config)


def equipped(config: EngineConfig) -> Engine:
    """The adapter, for jobs that may name a repository; raises as `build`."""
    return Workspaced(build(config), config)


def _builder(kind: str) -> Builder:
    if kind in BUILT_IN:
        module, _, name = BUILT_IN[kind].partition(":")
        builder: Builder = getattr(importlib.import_module(module), name)
        return builder
    installed = _installed()
    if kind not in installed:
        raise UnknownName("engine kind", kind, known_kinds())
    try:
        loaded: Builder = installed[kind].load()
    except Exception as error:
        where = installed[kind].value
        raise Refused(
            f"engine kind {kind!r} ({where}) cannot be loaded: {error}",
            "mend or remove the package that provides it",
        ) from error
    return loaded


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
