"""Discovery: which engines are on this machine, by asking well-known loopback ports and looking along PATH."""

from __future__ import annotations

import http.client
import json
import shutil
from dataclasses import dataclass
from typing import Any

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 0.5
MODEL_SECONDS = 2.0
LARGEST_ANSWER = 1_000_000
SERVERS = (("ollama", 11434), ("llama-cpp", 8080), ("vllm", 8000))
CLIENTS = (
    ("claude", "claude-code"),
    ("codex", "codex"),
    ("opencode", "opencode"),
    ("gemini", "gemini"),
    ("qwen", "qwen-code"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """An engine found here. `where` is a server's address or a client's program; `model` one the server offers."""

    name: str
    kind: str
    tier: str
    where: str
    model: str | None = None


def discover() -> list[Found]:
    """Everything found here: model servers first, then clients. Takes at most a few seconds and changes nothing."""
    servers = [server(name, port) for name, port in SERVERS]
    return [found for found in servers if found] + clients()


def server(name: str, port: int) -> Found | None:
    """The model server on a loopback port, if one answers there as the OpenAI API does."""
    models = _models(port)
    if models is None:
        return None
    return Found(name, "openai", "local", f"http://{LOOPBACK}:{port}/v1", models[0] if models else None)


def clients() -> list[Found]:
    """The coding clients on PATH."""
    located = [(program, kind, shutil.which(program)) for program, kind in CLIENTS]
    return [Found(program, kind, "paid", where) for program, kind, where in located if where and where.isprintable()]


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
