"""Secrets planted in every place go nowhere: a scan of all that is kept and shown after jobs that told them all.

The oracle looks for each form a program may show a secret in, made here by the standard library alone.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import redis

from tests.support import blab
from tests.support.chat_server import ChatServer, Reply, delta, event
from tests.support.cli import Cli
from tests.support.databases import query
from tests.support.fleet import Fleet
from tests.support.recordings import FOLDER
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Each with signs that JSON, addresses and base64 spell in other ways.
KEYS = {
    name: f'sk-PLANT/{name}"\\key+7%3F=&{name}-0123456789'
    for name in ("tool", "chat", "refused", "claude", "qwen", "stale", "locked", "sick", "barred")
}
FILED = "sk-PLANT-filed/0123456789+abcdefg"
PROXY_PASSWORD = "PLANT:ed@proxy/0123"
PROXY = "http://someone:PLANT%3Aed%40proxy%2F0123@proxy.example:3128"
ENDS = ("well", "declared", "badly")
REPORTS = ("jobs", "engines", "slots", "status", "ledger", "cost", "doctor")


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs by the names of clients, first on the PATH; HOME is empty; the keys are in the environment."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "key").write_text(f"{FILED}\n", encoding="utf-8")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPARE_PROXY", PROXY)
    for name, key in KEYS.items():
        monkeypatch.setenv(f"{name.upper()}_KEY", key)
    return folder


def client(folder: Path, binary: str, recording: str, words: str) -> None:
    """Put a program in a client's place that tells its secrets, then prints a recording with one more.

    A sick one, which has no recording, tells them when it is asked for its version.
    """
    command = shlex.join((sys.executable, "-I", blab.__file__, str(FOLDER / recording), words))
    program = folder / binary
    answers = 'case "$*" in --version) echo 1.2.3; exit;; "auth status"|"login status") exit;; esac' if words else ""
    program.write_text(f"#!/bin/sh\n{answers}\nexec {command}\n", encoding="utf-8")
    program.chmod(0o755)


def engines(chat: ChatServer, refusing: ChatServer, barred: ChatServer, folder: Path) -> dict[str, dict[str, Any]]:
    """An engine of each kind, each with a key; `spy` reads what lies about."""

    def keyed(name: str, **more: object) -> dict[str, Any]:
        return {"api_key_env": f"{name.upper()}_KEY", "capabilities": [name], **more}

    blabber = [sys.executable, "-I", blab.__file__]
    return {
        "tool": {"kind": "command", "argv": blabber, "env": ["TOOL_KEY", "SPARE_PROXY"], "capabilities": ["tool"]},
        "call": {
            "kind": "python",
            "callable": "tests.support.callables:work",
            "env": ["TOOL_KEY", "SPARE_PROXY"],
            "capabilities": ["call"],
        },
        "spy": {"kind": "command", "argv": blabber, "capabilities": ["spy"]},
        "chat": keyed("chat", kind="openai", base_url=chat.url, model="m"),
        "refused": keyed("refused", kind="openai", base_url=refusing.url, model="m"),
        "filed": {
            "kind": "openai",
            "base_url": refusing.url,
            "model": "m",
            "api_key_file": str(folder / "key"),
            "capabilities": ["filed"],
        },
        "claude": keyed("claude", kind="claude-code", model="m"),
        "qwen": keyed("qwen", kind="qwen-code", model="m"),
        "codex": keyed("stale", kind="codex", model="m"),
        "gemini": keyed("locked", kind="gemini", model="m"),
        "opencode": keyed("sick", kind="opencode", model="m", env=["SICK_KEY"]),
        "barred": keyed("barred", kind="openai", base_url=barred.url, model="m"),
    }


@pytest.fixture
def servers() -> Iterator[tuple[ChatServer, ChatServer, ChatServer]]:
    """Model servers: one says its key, one refuses two and repeats them, one does so when it is only looked at."""
    with ExitStack() as exits:
        chat, refusing, barred = (exits.enter_context(ChatServer()) for _ in range(3))
        told = " ".join(blab.forms(KEYS["chat"]))
        chat.completes(delta(told[:40]), delta(told[40:]), event({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
        body = {"error": {"message": f"Bad key: {KEYS['refused']}", "header": blab.forms(FILED)}}
        refusing.refuses(401, body)
        barred.answers["/v1/models"] = Reply.of(401, {"error": " ".join(blab.forms(KEYS["barred"]))})
        yield chat, refusing, barred


@pytest.fixture
def fleet(
    bin_folder: Path,
    servers: tuple[ChatServer, ChatServer, ChatServer],
    database_url: str,
    redis_url: str,
    unique_name: Callable[[str], str],
) -> Iterator[Fleet]:
    """The fleet at work."""
    client(bin_folder, "claude", "claude-code-success.stream", "BUILD OK, no 429 here")
    client(bin_folder, "qwen", "qwen-code-login.stream", "Incorrect API key provided")
    client(bin_folder, "codex", "codex-bad_request.stream", "prompt is too long")
    client(bin_folder, "opencode", "opencode-success.stream", "")
    client(bin_folder, "gemini", "gemini-bad_request.stream", "prompt is too long")
    tables = {"engine": engines(*servers, bin_folder.parent), "engines": {"max_attempts": 1, "lease_seconds": 30}}
    own = Fleet(bin_folder.parent, embedded.Services(database_url, redis_url), f"{unique_name('test')}:", tables)
    try:
        own.muster()
        yield own
    finally:
        own.close()


@pytest.mark.timeout(180)
def test_no_secret_is_kept_or_shown(fleet: Fleet, redis_url: str) -> None:
    """Tables, files, Redis, workers' logs and every report are free of every form of every secret."""
    for end in ENDS:
        fleet.enqueue(payload={"end": end}, capabilities=["tool"])
        fleet.enqueue(payload={"end": end, "how": "blab"}, capabilities=["call"])
        lying_about = [str(fleet.config), str(fleet.folder / "key")]
        fleet.enqueue(payload={"end": end, "read": lying_about}, capabilities=["spy"])
    for capability in ("chat", "refused", "filed", "claude", "qwen", "stale", "locked"):
        fleet.enqueue(payload={"prompt": "go"}, capabilities=[capability], max_attempts=1)
    waiting = (
        "select from jobs j where not exists (select from runs r where r.job_id = j.id and r.ended_at is not null)"
    )
    fleet.until(f"select not exists ({waiting})", what="an end of each job's first run")
    # Bait: the programs did tell, or the scan would prove nothing.
    assert fleet.value("select count(*) from runs where output_tail like '%********%'") >= 13
    assert fleet.value("select count(*) from runs where detail like '%********%'") >= 6
    assert fleet.value("select count(*) from jobs where result::text like '%********%'") >= 4
    for where, text in kept(fleet, redis_url):
        found = [form for form in planted(fleet) if form in text]
        assert not found, (where, found[0], _around(text, found[0]))


def planted(fleet: Fleet) -> list[str]:
    """Every form that must not be found."""
    passwords = [urlsplit(url).password for url in (fleet.url, fleet.settings.services.redis_url)]
    secrets = [*KEYS.values(), FILED, PROXY, PROXY_PASSWORD, *filter(None, passwords)]
    found = []
    for secret in secrets:
        plain, once, twice, quoted, lowered, *encoded = blab.forms(secret)
        found += [plain, once[1:-1], twice[3:-3], quoted, lowered, *(text[12:-8] for text in encoded)]
    return found


def kept(fleet: Fleet, redis_url: str) -> Iterator[tuple[str, str]]:
    """All that is kept and shown, by where it is."""
    tables = (
        "select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'"
    )
    for (table,) in query(fleet.url, tables):
        for (row,) in query(fleet.url, f'select t::text from "{table}" t'):
            yield f"table {table}", str(row)
    for path in sorted((fleet.folder / "data").rglob("*")):
        if path.is_file():
            yield str(path), path.read_text(encoding="utf-8", errors="replace")
    for member in fleet.members:
        yield f"log of {member.name}", member.text()
    yield from in_redis(redis_url)
    yield from shown(fleet)


def in_redis(url: str) -> Iterator[tuple[str, str]]:
    """Every key with its value."""
    store = redis.Redis.from_url(url, decode_responses=True)
    read: dict[str, Callable[[Any], object]] = {
        "string": store.get,
        "list": lambda key: store.lrange(key, 0, -1),
        "set": store.smembers,
        "hash": store.hgetall,
        "zset": lambda key: store.zrange(key, 0, -1),
    }
    for key in store.scan_iter():
        yield f"redis {key}", f"{key} {read[str(store.type(key))](key)}"
    store.close()


def shown(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """What every report says, to people and to programs."""
    cli = Cli(fleet.config)
    jobs = [str(job) for (job,) in fleet.rows("select id from jobs order by id")]
    commands = [(name,) for name in REPORTS] + [(name, job) for name in ("job", "logs", "explain") for job in jobs]
    for command in (*commands, ("config", "show"), ("config", "check")):
        for more in ((), ("--json",)):
            said = cli(*command, *more)
            assert said.code in {0, 1}, (command, said)
            yield f"vibey {' '.join((*command, *more))}", said.out + said.err


def _around(text: str, found: str) -> str:
    at = text.index(found)
    return text[max(0, at - 200) : at + len(found) + 100]
