"""Kind `gemini`: Google's `gemini`, in its streaming form; tapped, for the reset it may not show."""

from __future__ import annotations

import json
import re

from vibey.engines.clients.client import ClientEngine
from vibey.engines.clients.descriptor import Client, Launch, Setup
from vibey.engines.clients.health import by_files
from vibey.engines.clients.rules import BY_STATUS, FATAL, Event, Rule, Table, text_of
from vibey.engines.clients.signs import MISCONFIGURED, TROUBLE, WINDOW, WORK, sentence, worded
from vibey.engines.clients.transcript import Transcript, count

_FAILED = {"type": "result", "status": "error"}
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "privacy": {"usageStatisticsEnabled": False},
}


def _said(pattern: str) -> dict[str, object]:
    return {**_FAILED, "error.message": re.compile(pattern, re.DOTALL)}


def _line(pattern: str) -> dict[str, object]:
    return {"line": re.compile(pattern)}


TABLE = Table(
    rules=(
        Rule(
            _line(r"Attempt \d+ failed with status (?P<status>\d{3})\. Retrying with backoff\.\.\.(?P<says>.*)"),
            BY_STATUS,
            "says",
            "status",
        ),
        Rule(_said(r'\[API Error: (?P<says>\{"error":\{"code":(?P<status>\d{3}),.*\})\]'), BY_STATUS, "says", "status"),
        # Google has the same words for a spent day, which ends by the clock, and for spent money.
        Rule(_said(r"\[API Error: .*exceeded your current quota.*"), WINDOW, "error.message"),
        Rule(_said(r"\[API Error: .*(?:exhausted|quota|rate limit).*\].*"), WINDOW, "error.message", judged=worded),
        Rule(_said(r"\[API Error: .*"), TROUBLE, "error.message", judged=worded),
        Rule(_said(r".*"), WORK, "error.message", judged=sentence),
        FATAL,
        Rule({"type": "error", "message": re.compile(r"Maximum session turns.*")}, WORK, "message"),
        Rule({"type": "error", "severity": "error"}, TROUBLE, "message", judged=worded),
        Rule(_line(r'(?:"message": ")?Invalid auth method selected\.(?:",)?'), MISCONFIGURED, "line"),
        Rule(_line(r"Please set an Auth method in your .*"), MISCONFIGURED, "line"),
        Rule(_line(r"Unknown arguments?: .*"), MISCONFIGURED, "line"),
    ),
    exits={41: MISCONFIGURED, 44: MISCONFIGURED, 52: MISCONFIGURED, 42: WORK, 53: WORK},
)


def hear(event: Event, so_far: Transcript) -> None:
    """Take in an event. The answer is the words after the last use of a tool, which come in pieces."""
    kind = event.get("type")
    if kind == "message" and event.get("role") == "assistant":
        piece = text_of(event.get("content"))
        so_far.answer = (so_far.answer or "") + piece if event.get("delta") is True else piece
        if piece:
            so_far.serves(so_far.answer[-500:])
    elif kind in {"tool_use", "tool_result"}:
        so_far.answer = None
        so_far.serves(text_of(event.get("tool_name")))
    elif kind == "result":
        so_far.ended = event.get("status") == "success"
        so_far.total(count(event, "stats.input_tokens"), count(event, "stats.output_tokens"))


def launch(setup: Setup) -> Launch:
    """The command line and what it finds in its environment.

    With a key it gets a home of its own: by its user's settings it might log in another way, or not at all.
    """
    config = setup.config
    variables = {
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
        "NO_COLOR": "1",
        **setup.tap.node_variables(config.base_url, setup.passed),
    }
    files = {}
    if config.base_url:
        variables["GOOGLE_GEMINI_BASE_URL"] = config.base_url
    if setup.key:
        variables["GEMINI_API_KEY"] = setup.key
        variables["GEMINI_CLI_HOME"] = str(setup.folder)
        files[".gemini/settings.json"] = json.dumps(_SETTINGS)
    model = ("--model", config.model) if config.model else ()
    argv = ("gemini", "--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust", *model, *setup.extra)
    return Launch(argv, variables, files)


class GeminiEngine(ClientEngine):
    """The adapter."""

    client = Client(
        kind="gemini",
        binary="gemini",
        package="@google/gemini-cli",
        launch=launch,
        hear=hear,
        table=TABLE,
        login=by_files(".gemini/oauth_creds.json", ".gemini/settings.json"),
        login_fix="start gemini once, as the workers' user, to log in; or set api_key_env",
        taps=True,
    )
