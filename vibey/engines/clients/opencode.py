"""Kind `opencode`: `opencode run`, printing events. Silent while refused, so it is tapped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibey.engines.clients.client import ClientEngine
from vibey.engines.clients.descriptor import Client, Launch, Login, Setup
from vibey.engines.clients.rules import BY_STATUS, Event, Rule, Table, lookup, text_of
from vibey.engines.clients.signs import LOGIN, MISCONFIGURED, TROUBLE, WORK, worded
from vibey.engines.clients.tap import SCRIPT
from vibey.engines.clients.transcript import Transcript, count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.engines.contract import EngineConfig

_KEY = "OPENCODE_VIBEY_KEY"
_OWN = "vibey"
_SAYS = "error.data.message"


def _named(name: str) -> dict[str, object]:
    return {"type": "error", "error.name": name}


TABLE = Table(
    rules=(
        Rule(
            _named("APIError"),
            BY_STATUS,
            says=_SAYS,
            status="error.data.statusCode",
            body="error.data.responseBody",
            headers="error.data.responseHeaders",
        ),
        Rule(_named("APIError"), TROUBLE, says=_SAYS, judged=worded),
        Rule(_named("ProviderAuthError"), LOGIN, says=_SAYS),
        Rule(_named("ContextOverflowError"), WORK, says=_SAYS),
        Rule(_named("MessageOutputLengthError"), WORK, says="error.name"),
        Rule(_named("ProviderModelNotFoundError"), MISCONFIGURED, says=_SAYS),
        Rule(
            {
                **_named("UnknownError"),
                _SAYS: re.compile(r"(?:Error: )?(?:Model not found|ProviderModelNotFoundError).*", re.DOTALL),
            },
            MISCONFIGURED,
            says=_SAYS,
        ),
        Rule({"type": "error"}, TROUBLE, says=_SAYS, judged=worded),
        # A stream that broke off: it asks again at once, and would for ever.
        Rule({"type": "step_finish", "part.reason": "unknown", "part.tokens.output": 0}, TROUBLE, says="part.reason"),
        Rule({"line": re.compile(r"opencode run \[message\.\.\]")}, MISCONFIGURED, says="line"),
        Rule(
            {
                "line": re.compile(
                    r"Error: Configuration is invalid.*|.*ProviderModelNotFoundError.*|Error: Model not found.*"
                )
            },
            MISCONFIGURED,
            says="line",
        ),
    )
)


def hear(event: Event, so_far: Transcript) -> None:
    """Take in an event; each step tells its own tokens and cost."""
    kind, part = event.get("type"), event.get("part")
    if kind == "text":
        # Half an answer has words, too; that the provider serves is proved by the end of the step.
        so_far.said = so_far.answer = text_of(lookup(part, "text"))
    elif kind == "tool_use":
        so_far.serves(text_of(lookup(part, "tool")))
    elif kind == "step_finish":
        so_far.serves()
        tokens_in = count(part, "tokens.input", "tokens.cache.read", "tokens.cache.write")
        so_far.spend(text_of(lookup(part, "id")), tokens_in, count(part, "tokens.output", "tokens.reasoning"))
        so_far.ended = lookup(part, "reason") != "tool-calls"
        cost = lookup(part, "cost")
        # It says 0 for a model whose price it does not know.
        if isinstance(cost, int | float) and cost > 0:
            so_far.cost(float(so_far.cost_usd or 0) + cost)


def launch(setup: Setup) -> Launch:
    """The command line and what it finds in its environment."""
    config = setup.config
    settings: dict[str, Any] = {"autoupdate": False, "share": "disabled", "plugin": [SCRIPT]}
    model = config.model
    options = {"apiKey": f"{{env:{_KEY}}}"} if setup.key else {}
    if config.base_url:
        model = f"{_OWN}/{config.model}"
        own = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": config.base_url, **options}}
        settings["provider"] = {_OWN: {**own, "models": {config.model: {}}}}
    elif setup.key and model:
        settings["provider"] = {model.partition("/")[0]: {"options": options}}
    variables = {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        **setup.tap.variables(config.base_url),
    }
    if setup.key:
        variables[_KEY] = setup.key
    if config.base_url:
        variables["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
    named = ("--model", model) if model else ()
    return Launch(("opencode", "run", "--format", "json", "--auto", *named, *setup.extra), variables)


def login(_: str, environment: Mapping[str, str], config: EngineConfig) -> Login:
    """Whether the file of logins has one for the model's provider; many need none, so its absence proves nothing."""
    data = Path(environment.get("XDG_DATA_HOME") or Path(environment.get("HOME", "/")) / ".local/share")
    try:
        known = json.loads((data / "opencode/auth.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    provider = (config.model or "").partition("/")[0]
    return (
        Login(found=True, detail=f"login for {provider}")
        if isinstance(known, dict) and provider in known
        else Login(found=None, detail="login unknown: its model may need none")
    )


class OpencodeEngine(ClientEngine):
    """The adapter."""

    client = Client(
        kind="opencode",
        binary="opencode",
        package="opencode-ai",
        launch=launch,
        hear=hear,
        table=TABLE,
        login=login,
        login_fix="run: opencode auth login, as the workers' user; or set api_key_env",
        needs_model=True,
        taps=True,
    )
