"""Registry: which kinds of engine there are, and the adapter for a configured engine."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from vibey.domain.errors import Refused, UnknownName, VibeyError
from vibey.domain.outcome import one_line
from vibey.engines.contract import Description, Engine, EngineConfig
from vibey.engines.routed import RoutedTasks
from vibey.engines.workspace import Workspaced

GROUP = "vibey.engines"
# Where each kind is built; a module is imported when its kind is first used.
BUILT_IN = {
    "celery": "vibey.engines.routed:CeleryEngine",
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


def is_foreign(kind: str) -> bool:
    """Whether a kind is another package's."""
    return kind not in BUILT_IN


def build(config: EngineConfig) -> Engine:
    """The adapter for this engine.

    Raises UnknownName for a kind nobody provides, Refused for one whose package cannot be loaded or makes no engine,
    InvalidInput for settings its kind cannot use. A built-in kind cannot be replaced by an installed one.
    """
    return _foreign(config) if is_foreign(config.kind) else _loaded(config.kind)(config)


def equipped(config: EngineConfig) -> Engine:
    """The adapter, for jobs that may name a repository or be calls of Celery tasks; raises as `build`."""
    engine = Workspaced(build(config), config)
    return engine if config.app is None else RoutedTasks(engine, config, config.app)


def _loaded(kind: str) -> Builder:
    module, _, name = BUILT_IN[kind].partition(":")
    builder: Builder = getattr(importlib.import_module(module), name)
    return builder


def _foreign(config: EngineConfig) -> Engine:
    """An engine of an installed kind. Its code is a stranger's: whatever it does, the error names its package."""
    installed = _installed()
    if config.kind not in installed:
        raise UnknownName("engine kind", config.kind, known_kinds())
    point = installed[config.kind]
    try:
        builder: Builder = point.load()
    except Exception as error:
        raise _unfit(point, f"cannot be loaded: {error}") from error
    try:
        made = builder(config)
        described: object = made.describe()
    except VibeyError:
        raise
    except Exception as error:
        raise _unfit(point, f"makes no engine: {type(error).__name__}: {error}") from error
    lacking = [name for name in ("doctor", "run") if not callable(getattr(made, name, None))]
    if lacking:
        raise _unfit(point, f"makes no engine: it has no method {', '.join(lacking)}")
    if not isinstance(described, Description):
        raise _unfit(point, f"makes no engine: describe() gives {type(described).__name__}, not a Description")
    return made


def _unfit(point: EntryPoint, what: str) -> Refused:
    words = f"engine kind {point.name!r} ({point.value}) {one_line(what, 200)}"
    return Refused(words, "mend or remove the package that provides it")


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}
