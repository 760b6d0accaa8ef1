"""Discovery: which engines are on this machine, by well-known loopback ports and along PATH, and how each is.

Whatever is found is looked at as its own doctor does, so that what is written here is what `vibey doctor` says later.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from vibey.engines.contract import EngineConfig, Health
from vibey.services.asking import answers
from vibey.services.fleet import look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from vibey.services.asking import Waiting

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 0.5
MODEL_SECONDS = 2.0
LOOK_SECONDS = 15.0
LARGEST_ANSWER = 1_000_000
SERVERS = {"ollama": 11434, "llama-cpp": 8080, "vllm": 8000}
# Models that answer no question.
_MUTE = ("embed", "rerank", "whisper")


@dataclass(frozen=True, slots=True)
class Vendor:
    """A coding client's kind, the account behind it, and the variables people keep a key for it in.

    `names_cost`: whether it tells what a job cost, or the operator's prices have to.
    """

    kind: str
    account: str
    keys: tuple[str, ...] = ()
    names_cost: bool = False


CLIENTS = {
    "claude": Vendor("claude-code", "anthropic", ("ANTHROPIC_API_KEY",), names_cost=True),
    "codex": Vendor("codex", "openai", ("CODEX_API_KEY", "OPENAI_API_KEY")),
    "opencode": Vendor("opencode", "opencode", names_cost=True),
    "gemini": Vendor("gemini", "google", ("GEMINI_API_KEY",)),
    "qwen": Vendor("qwen-code", "qwen"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """An engine found here. `where` is a server's address or a client's program.

    `model` is one the server offers, `others` the rest of them; `key_variable` holds a key where there is no login.
    """

    name: str
    kind: str
    tier: str
    where: str
    account: str | None = None
    model: str | None = None
    others: tuple[str, ...] = ()
    key_variable: str | None = None
    names_cost: bool = True
    health: Health = field(default_factory=lambda: Health(installed=True))

    @property
    def is_usable(self) -> bool:
        """Whether a configuration can name it as it is; a login may still be missing."""
        return self.health.installed and not self.health.late and (self.kind != "openai" or self.model is not None)


def discover(waiting: Waiting | None = None) -> list[Found]:
    """Everything found here, model servers first; it is all looked at at once, and nothing is changed.

    `waiting` is told who keeps us waiting; what has not answered after LOOK_SECONDS is found to be late.
    """
    there = {each.name: each for each in clients()}
    questions: dict[str, Callable[[], Found | None]] = {
        **{name: partial(server, name, port) for name, port in SERVERS.items()},
        **{name: partial(client, each, os.environ) for name, each in there.items()},
    }
    silence = Health(installed=True, late=True, detail=f"no answer within {LOOK_SECONDS:g} s")
    silent = {name: replace(each, health=silence) for name, each in there.items()}
    found = {name: answer or silent.get(name) for name, answer in answers(questions, LOOK_SECONDS, waiting)}
    return [each for name in questions if (each := found[name]) is not None]


def paid_access(found: Iterable[Found]) -> tuple[int, int]:
    """How many of the paid engines found would be billed to an API key, and how many have a login: a subscription."""
    paid = [each for each in found if each.tier == "paid"]
    keys = sum(each.key_variable is not None for each in paid)
    logins = sum(each.key_variable is None and each.health.logged_in is True for each in paid)
    return keys, logins


def server(name: str, port: int) -> Found | None:
    """The model server on a loopback port, if one answers there as the OpenAI API does."""
    models = _models(port)
    if models is None:
        return None
    speaking = [model for model in models if not any(word in model.lower() for word in _MUTE)]
    found = Found(name, "openai", "local", f"http://{LOOPBACK}:{port}/v1")
    if not speaking:
        return found
    found = replace(found, model=speaking[0], others=tuple(speaking[1:]))
    config = EngineConfig(name, found.kind, base_url=found.where, model=found.model)
    return replace(found, health=look(config))


def clients() -> Iterator[Found]:
    """The coding clients on PATH, not yet looked at."""
    for program, vendor in CLIENTS.items():
        where = shutil.which(program)
        if where and where.isprintable():
            yield Found(program, vendor.kind, "paid", where, vendor.account, names_cost=vendor.names_cost)


def client(found: Found, environ: Mapping[str, str]) -> Found:
    """A client with what its doctor says; where it has no login, with a key that the environment holds for it."""
    health = look(EngineConfig(found.name, found.kind))
    variable = next((name for name in CLIENTS[found.name].keys if environ.get(name)), None)
    if health.logged_in is not False or variable is None:
        return replace(found, health=health)
    with_key = look(EngineConfig(found.name, found.kind, api_key_env=variable))
    return replace(found, health=with_key, key_variable=variable) if with_key.good else replace(found, health=health)


def _models(port: int) -> list[str] | None:
    # Not through urllib, which would ask a proxy for a loopback address.
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_SECONDS)
    try:
        connection.connect()
        connection.sock.settimeout(MODEL_SECONDS)
        connection.request("GET", "/v1/models", headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            return None
        return _named(json.loads(answer.read(LARGEST_ANSWER)))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    finally:
        connection.close()


def _named(listing: Any) -> list[str] | None:  # noqa: ANN401  whatever the server sent
    entries = listing.get("data") if isinstance(listing, dict) else None
    if entries is None and isinstance(listing, dict) and listing.get("object") == "list":
        return []
    if not isinstance(entries, list):
        return None
    names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str) and name.isprintable()]
