"""Descriptor: all that one client differs in from the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from vibey.engines.clients.rules import Table
    from vibey.engines.clients.tap import Tap
    from vibey.engines.clients.transcript import Hearing
    from vibey.engines.contract import EngineConfig


@dataclass(frozen=True, slots=True)
class Setup:
    """What a launch is made of: the operator's settings and this run's own folder; nothing of the job.

    `passed` is the environment that passes from the worker, `extra` what this effort adds to the arguments,
    `folder` a place for files of the client's configuration.
    """

    config: EngineConfig
    key: str
    extra: tuple[str, ...]
    folder: Path
    tap: Tap
    passed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launch:
    """How a client is started: its arguments, variables beside those passed, files to write below the folder."""

    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Login:
    """What was found of a login: None, if nothing could be told without asking the provider."""

    found: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """One coding client. It reads the prompt on its standard input.

    `package` is its name in the npm registry; `login` looks for a login given the client's path and the environment;
    `login_fix` is what a person does for one. `taps`: its launch loads the tap.
    """

    kind: str
    binary: str
    package: str
    launch: Callable[[Setup], Launch]
    hear: Hearing
    table: Table
    login: Callable[[str, Mapping[str, str], EngineConfig], Login]
    login_fix: str
    needs_model: bool = False
    taps: bool = False
