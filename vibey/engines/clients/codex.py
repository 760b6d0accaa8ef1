"""Kind `codex`: OpenAI's `codex exec`, printing events."""

from __future__ import annotations

import json
import re

from vibey.engines.clients.client import ClientEngine
from vibey.engines.clients.descriptor import Client, Launch, Setup
from vibey.engines.clients.health import by_status
from vibey.engines.clients.rules import BY_STATUS, NOTHING, Event, Rule, Table, lookup, text_of
from vibey.engines.clients.signs import MISCONFIGURED, TROUBLE, WORK, worded
from vibey.engines.clients.transcript import Transcript, count

_KEY = "CODEX_API_KEY"
_WORK_ITEMS = frozenset(
    {"agent_message", "reasoning", "command_execution", "file_change", "mcp_tool_call", "todo_list"}
)


def _by_status(pattern: str) -> tuple[Rule, ...]:
    """A message, on the way or at the end, that is these words in full and names a status."""
    again = re.compile(rf"Reconnecting\.\.\. \d+/\d+ \((?P<says>{pattern})\)", re.DOTALL)
    words = re.compile(rf"(?P<says>{pattern})", re.DOTALL)
    return (
        Rule({"type": "error", "message": again}, BY_STATUS, "says", "status"),
        Rule({"type": "error", "message": words}, BY_STATUS, "says", "status"),
        Rule({"type": "turn.failed", "error.message": words}, BY_STATUS, "says", "status"),
    )


_AGAIN = re.compile(r"Reconnecting\.\.\. \d+/\d+ ?\(?(?P<says>.*?)\)?", re.DOTALL)
_CUT = re.compile(r"stream disconnected before completion.*", re.DOTALL)

TABLE = Table(
    rules=(
        *_by_status(r"exceeded retry limit, last status: (?P<status>\d{3}) .*"),
        *_by_status(r"unexpected status (?P<status>\d{3}) .*"),
        Rule({"type": "error", "message": _AGAIN}, TROUBLE, "says", judged=worded),
        Rule({"type": "error", "message": _CUT}, TROUBLE, "message", judged=worded),
        # Other errors may be warnings: only what the table of causes has is a sign.
        Rule({"type": "error", "message": re.compile(r".*", re.DOTALL)}, NOTHING, "message", judged=worded),
        Rule({"type": "turn.failed", "error.message": _CUT}, TROUBLE, "error.message", judged=worded),
        Rule({"type": "turn.failed"}, WORK, says="error.message", judged=worded),
        Rule(
            {"line": re.compile(r"error: (?:unexpected argument|invalid value|the argument) .*")}, MISCONFIGURED, "line"
        ),
        Rule(
            {"line": re.compile(r"Error loading config(?:\.toml)?:? ?.*|Error: error loading .*config.*")},
            MISCONFIGURED,
            "line",
        ),
    )
)


def hear(event: Event, so_far: Transcript) -> None:
    """Take in an event. Tokens come with the end of the turn, so a run that is refused midway has none to tell."""
    kind = event.get("type")
    if kind in {"item.started", "item.updated", "item.completed"} and lookup(event, "item.type") in _WORK_ITEMS:
        text = text_of(lookup(event, "item.text"))
        so_far.serves(text or text_of(lookup(event, "item.command")))
        if lookup(event, "item.type") == "agent_message" and kind == "item.completed":
            so_far.answer = text
    elif kind == "turn.completed":
        so_far.ended = True
        so_far.total(count(event, "usage.input_tokens"), count(event, "usage.output_tokens"))


def launch(setup: Setup) -> Launch:
    """The command line and what it finds in its environment."""
    config = setup.config
    settings = ['sandbox_mode="workspace-write"', 'approval_policy="never"', "check_for_update_on_startup=false"]
    settings.append("analytics.enabled=false")
    if config.base_url:
        provider = {"name": "vibey", "base_url": config.base_url, "wire_api": "responses"}
        if setup.key:
            provider["env_key"] = _KEY
        table = ",".join(f"{name}={json.dumps(value)}" for name, value in provider.items())
        settings += [f"model_providers.vibey={{{table}}}", 'model_provider="vibey"']
    argv = (
        *("codex", "exec", "--json", "--skip-git-repo-check", "--ephemeral", "--color", "never"),
        *(part for setting in settings for part in ("-c", setting)),
        *(("--model", config.model) if config.model else ()),
        *setup.extra,
        "-",
    )
    return Launch(argv, {_KEY: setup.key} if setup.key else {})


class CodexEngine(ClientEngine):
    """The adapter."""

    client = Client(
        kind="codex",
        binary="codex",
        package="@openai/codex",
        launch=launch,
        hear=hear,
        table=TABLE,
        login=by_status("login", "status"),
        login_fix="run: codex login, as the workers' user; or set api_key_env",
    )
