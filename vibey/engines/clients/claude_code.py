"""Kind `claude-code`: Anthropic's `claude`, in its streaming form."""

from __future__ import annotations

import re
from typing import Any

from vibey.engines.clients.client import ClientEngine
from vibey.engines.clients.descriptor import Client, Launch, Setup
from vibey.engines.clients.health import by_status
from vibey.engines.clients.rules import ABSENT, BY_STATUS, Event, Rule, Table, lookup
from vibey.engines.clients.signs import CREDITS, LOGIN, MISCONFIGURED, TROUBLE, WINDOW, WORK, sentence, worded
from vibey.engines.clients.transcript import Transcript, hear_messages

_LONG_LIVED = "sk-ant-oat"
_NOT_OURS = (ABSENT, None, False)
_RETRY = {"type": "system", "subtype": "api_retry"}
_APOLOGY = {"type": "assistant", "message.model": "<synthetic>"}
_FAILED = {"type": "result", "is_error": True}
_APOLOGIES = "message.content.0.text"
# What to do may come first: "Please run /login · API Error: 401 …".
_ERROR = r"(?:[^{}\n]{1,80}?[.:\u00b7] )?API Error(?: \([^)]*\))?"


def _known(error: str, means: Any) -> tuple[Rule, Rule]:  # noqa: ANN401  (a sign, or BY_STATUS)
    return (
        Rule({**_RETRY, "error": error}, means, says="error"),
        Rule({**_APOLOGY, "error": error}, means, says=_APOLOGIES, judged=worded),
    )


TABLE = Table(
    rules=(
        Rule(
            {
                "type": "rate_limit_event",
                "rate_limit_info.status": "rejected",
                "rate_limit_info.isUsingOverage": lambda value: value in _NOT_OURS,
            },
            WINDOW,
            says="rate_limit_info.rateLimitType",
            resets="rate_limit_info.resetsAt",
        ),
        *_known("rate_limit", WINDOW),
        *_known("billing_error", CREDITS),
        *_known("authentication_failed", LOGIN),
        *_known("oauth_org_not_allowed", LOGIN),
        *_known("model_not_found", MISCONFIGURED),
        *_known("invalid_request", WORK),
        Rule(_RETRY, BY_STATUS, says="error", status="error_status"),
        Rule({**_RETRY, "error": re.compile(r"(?P<says>.*)")}, TROUBLE, says="error"),
        Rule(
            {**_FAILED, "api_error_status": lambda value: isinstance(value, int)},
            BY_STATUS,
            "result",
            "api_error_status",
        ),
        Rule({**_APOLOGY, "error": lambda value: isinstance(value, str)}, TROUBLE, says=_APOLOGIES, judged=worded),
        Rule(
            {**_FAILED, "result": re.compile(rf"{_ERROR}: (?P<status>\d{{3}})\b ?(?P<says>.*)", re.DOTALL)},
            BY_STATUS,
            "says",
            "status",
        ),
        Rule({**_FAILED, "result": re.compile(rf"{_ERROR}: .*", re.DOTALL)}, TROUBLE, says="result", judged=worded),
        Rule({**_FAILED, "result": lambda value: isinstance(value, str)}, WORK, says="result", judged=sentence),
        Rule(_FAILED, WORK, says="subtype"),
        Rule({"line": re.compile(r"error: (?:unknown option|option) .*")}, MISCONFIGURED, says="line"),
    )
)


def hear(event: Event, so_far: Transcript) -> None:
    """Take in an event; a window that is nearly spent is remembered until it ends."""
    hear_messages(event, so_far)
    if event.get("type") == "rate_limit_event" and lookup(event, "rate_limit_info.status") == "allowed_warning":
        moment = lookup(event, "rate_limit_info.resetsAt")
        if isinstance(moment, int | float) and 0 < moment < 1e11:
            so_far.near_quota_until = float(moment)


def launch(setup: Setup) -> Launch:
    """The command line and what it finds in its environment."""
    config = setup.config
    model = ("--model", config.model) if config.model else ()
    variables = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    if config.base_url:
        variables["ANTHROPIC_BASE_URL"] = config.base_url
    if setup.key:
        name = "CLAUDE_CODE_OAUTH_TOKEN" if setup.key.startswith(_LONG_LIVED) else "ANTHROPIC_API_KEY"
        variables[name] = setup.key
    argv = (
        *("claude", "--print", "--output-format", "stream-json", "--verbose", "--no-session-persistence"),
        *("--permission-mode", "acceptEdits", "--allowedTools", "Bash,Edit,Write,NotebookEdit,WebFetch,WebSearch"),
        *model,
        *setup.extra,
    )
    return Launch(argv, variables)


class ClaudeCodeEngine(ClientEngine):
    """The adapter."""

    client = Client(
        kind="claude-code",
        binary="claude",
        package="@anthropic-ai/claude-code",
        launch=launch,
        hear=hear,
        table=TABLE,
        login=by_status("auth", "status"),
        login_fix="run: claude auth login, as the workers' user; or set api_key_env",
    )
