"""Model server: whether one is there and has the model, asked by `GET /models`, which takes no slot anywhere."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.outcome import one_line
from vibey.domain.shell import command
from vibey.engines.contract import Health
from vibey.engines.kept import Kept
from vibey.engines.refusal import message_of
from vibey.engines.stream import masked
from vibey.engines.web import below, connected

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_SECONDS = 3.0
_LARGEST_LISTING = 4 * 1024 * 1024
_SHOWN = 5
# Servers that list every model they would serve; others may know aliases that they do not list.
_LISTS_ALL = frozenset({"library", "vllm"})
_VERSION_PATHS = ("/api/version", "/version")

_kept = Kept()


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    base_url: str
    model: str
    key: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    text: str
    server: str


def look(name: str, base_url: str, model: str, key: str, environment: Mapping[str, str]) -> Health:
    """The health of engine `name`'s server; what was found less than a minute ago is not asked for again."""
    return _kept.health((base_url, model, key), lambda: _look(_Server(name, base_url, model, key, environment)))


def _look(server: _Server) -> Health:
    try:
        answer = _get(server, below(server.base_url, "/models"), with_key=True)
    except TimeoutError:
        detail = f"{server.base_url}: no answer within {PATIENCE_SECONDS:g} s"
        return Health(installed=True, late=True, detail=detail, fix="see whether the server hangs, by its log")
    except (OSError, http.client.HTTPException) as error:
        detail = one_line(f"{server.base_url}: {str(error) or type(error).__name__}")
        fix = f"start the model server, or correct engine.{server.name}.base_url"
        return Health(installed=False, detail=detail, fix=fix)
    if answer.status in {401, 403}:
        fix = f"give engine {server.name} a valid key by api_key_env or api_key_file"
        return Health(installed=True, logged_in=False, detail=_said(answer), fix=fix)
    if answer.status != http.client.OK:
        lists_none = answer.status in {404, 405}
        there = lists_none or answer.status in {429, 503, 529}
        fix = "" if there else f"see the server's log, or correct engine.{server.name}.base_url"
        detail = "lists no models" if lists_none else _said(answer)
        return Health(installed=there, detail=detail, fix=fix)
    return _listed(server, answer)


def _listed(server: _Server, answer: _Answer) -> Health:
    names, owners = _models(answer.text)
    if names is None:
        fix = f"engine.{server.name}.base_url is usually an address that ends in /v1"
        return Health(installed=False, detail=f"{server.base_url} does not answer as the OpenAI API does", fix=fix)
    login = True if server.key else None
    version = _version(server, answer)
    if server.model in names or f"{server.model}:latest" in names:
        return Health(installed=True, version=version, logged_in=login, detail=f"model {server.model}")
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    detail = one_line(f"model {server.model} is not among those listed: {shown or 'none'}")
    # Without any model nothing says whose list it is; only Ollama starts that way.
    if owners & _LISTS_ALL or not names:
        pull = f"run: {command('ollama pull', server.model)}" if "library" in owners or not names else ""
        choose = f"set engine.{server.name}.model to one of them" if names else ""
        fix = "; or ".join(way for way in (pull, choose) if way)
        return Health(installed=False, version=version, logged_in=login, detail=detail, fix=fix)
    fix = f"set engine.{server.name}.model to one of them, unless the server knows it by another name"
    return Health(installed=True, version=version, logged_in=login, detail=detail, fix=fix)


def _models(text: str) -> tuple[list[str] | None, set[str]]:
    try:
        listing = json.loads(text)
    except (ValueError, RecursionError):
        return None, set()
    entries = listing.get("data") if isinstance(listing, dict) else None
    if entries is None and isinstance(listing, dict) and listing.get("object") == "list":
        entries = []
    if not isinstance(entries, list):
        return None, set()
    models = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return [model["id"] for model in models], {str(model.get("owned_by")).lower() for model in models}


def _version(server: _Server, answer: _Answer) -> str | None:
    """The server's version, where it is told without a login."""
    for path in () if server.key else _VERSION_PATHS:
        try:
            root = server.base_url.rstrip("/").removesuffix("/v1")
            said = json.loads(_get(server, below(root, path), with_key=False).text)
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            continue
        if isinstance(said, dict) and isinstance(said.get("version"), str):
            return one_line(said["version"], 40)
    return one_line(answer.server, 40) or None


def _get(server: _Server, url: str, *, with_key: bool) -> _Answer:
    route = connected(url, server.environment, patience=PATIENCE_SECONDS)
    headers = {"Accept": "application/json", "User-Agent": "vibey", **route.headers}
    if with_key and server.key:
        headers["Authorization"] = f"Bearer {server.key}"
    with closing(route.connection) as connection:
        connection.request("GET", route.target, headers=headers)
        answer = connection.getresponse()
        # A server may repeat the key it refuses.
        text = masked(answer.read(_LARGEST_LISTING).decode("utf-8", "replace"), [server.key])
        return _Answer(answer.status, text, answer.headers.get("Server", ""))


def _said(answer: _Answer) -> str:
    return one_line(f"HTTP {answer.status}: {message_of(answer.text)}", 200)
