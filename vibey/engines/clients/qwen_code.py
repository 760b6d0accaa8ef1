"""Kind `qwen-code`: `qwen`, in its streaming form. It hides refusals and may end well after one, so it is tapped."""

from __future__ import annotations

import re

from vibey.engines.clients.client import ClientEngine
from vibey.engines.clients.descriptor import Client, Launch, Setup
from vibey.engines.clients.health import by_files
from vibey.engines.clients.rules import BY_STATUS, FATAL, Rule, Table
from vibey.engines.clients.signs import MISCONFIGURED, TROUBLE, WORK, sentence, worded
from vibey.engines.clients.transcript import hear_messages

# It puts an error in place of the model's words; the model has then spent no token on that message.
_APOLOGY = {"type": "assistant", "message.usage.input_tokens": 0, "message.usage.output_tokens": 0}
_TEXT = "message.content.0.text"
_FAILED = {"type": "result", "is_error": True}
_SAID = "error.message"


def _apology(pattern: str) -> dict[str, object]:
    return {**_APOLOGY, _TEXT: re.compile(pattern, re.DOTALL)}


def _failed(pattern: str) -> dict[str, object]:
    return {**_FAILED, _SAID: re.compile(pattern, re.DOTALL)}


TABLE = Table(
    rules=(
        Rule(_apology(r"\[API Error: (?P<status>\d{3}) (?P<says>.*)\]"), BY_STATUS, "says", "status"),
        Rule(_apology(r".*\[API Error: (?P<says>.*)\]"), TROUBLE, "says", judged=worded),
        Rule(_failed(r"(?:\[API Error: )?(?P<status>\d{3}) (?P<says>.*?)\]?"), BY_STATUS, "says", "status"),
        Rule(_failed(r"\[API Error: (?P<says>.*)\]"), TROUBLE, "says", judged=worded),
        Rule(_FAILED, WORK, _SAID, judged=sentence),
        FATAL,
        Rule({"line": re.compile(r"Unknown arguments?: .*")}, MISCONFIGURED, "line"),
        Rule(
            {"line": re.compile(r"(?:No auth type is selected|Please set an Auth method|Missing API key).*")},
            MISCONFIGURED,
            "line",
        ),
    )
)


def launch(setup: Setup) -> Launch:
    """The command line and what it finds in its environment."""
    config = setup.config
    variables = {
        "QWEN_CODE_NO_RELAUNCH": "true",
        "QWEN_TELEMETRY_ENABLED": "false",
        "NO_COLOR": "1",
        **setup.tap.node_variables(config.base_url, setup.passed),
    }
    if config.base_url:
        variables["OPENAI_BASE_URL"] = config.base_url
    if setup.key:
        variables["OPENAI_API_KEY"] = setup.key
    own = ("--auth-type", "openai") if setup.key or config.base_url else ()
    model = ("--model", config.model) if config.model else ()
    argv = ("qwen", "--output-format", "stream-json", "--approval-mode", "yolo", *own, *model, *setup.extra)
    return Launch(argv, variables)


class QwenCodeEngine(ClientEngine):
    """The adapter."""

    client = Client(
        kind="qwen-code",
        binary="qwen",
        package="@qwen-code/qwen-code",
        launch=launch,
        hear=hear_messages,
        table=TABLE,
        login=by_files(".qwen/oauth_creds.json", ".qwen/settings.json"),
        login_fix="start qwen once, as the workers' user, to log in; or set api_key_env",
        taps=True,
    )
