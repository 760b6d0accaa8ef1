"""Starter: a first vibey.toml for the engines found on this machine, small enough to read whole.

An engine that can be named as it was found is written in full, a missing login included: logging in is then all that is
left to do, and until then `vibey doctor` says so and no job goes there. What could not work by a login alone (a server
without a model, a program that does not answer) stands as a comment, with what it needs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.errors import Refused
from vibey.services import discovery
from vibey.services.discovery import paid_access
from vibey.services.display import many
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.services.discovery import Found

HEAD = """\
# Vibey's configuration. `vibey config show` prints every key with its value, its default included.

[services]
# Without addresses Vibey runs its own Postgres and Redis-compatible server under .vibey, on loopback.
# database_url = "postgresql://user@host/vibey"
# redis_url = "redis://host:6379/0"

[engines]
mode = "auto"
# Found here: {found}.
paid_daily_cap = {cap}{pad}         # paid runs per UTC day; a retry is a run of its own and takes a unit, too
paid_daily_cap_covers = "all"    # every paid run takes a unit; without one left jobs wait until midnight UTC

# How many jobs an engine runs at once: 1 on a local engine, 2 on a paid one, unless this says otherwise.
# [engines.slots]
# NAME = 1
"""
NONE_FOUND = """
# No engine that can run jobs was found here. Any program can be one: it reads the job's payload as JSON on standard
# input, and exit 0 is success. Make this block yours, then run: vibey up
#
# [engine.agent]
# kind = "command"
# tier = "local"           # local: your own hardware; paid: a subscription or a metered API
# argv = ["my-agent", "--stdin"]
"""
# A key is billed by the job, a subscription is not.
CAP_WITH_KEYS = 10
CAP_WITH_SUBSCRIPTIONS = 50
PRICES = "# It names no cost: price_in and price_out, in dollars per million tokens, would make one of its tokens."
ROOTS_EXAMPLE = "/home/you/src"
ROOTS_MEANING = "jobs may work in clones of the repositories below these folders"
_OTHERS_SHOWN = 5
_NO_MODEL = {
    "ollama": "run: ollama pull qwen3-coder (or another model), then: vibey init --force",
    "llama-cpp": "start llama-server with a model (-m FILE), then: vibey init --force",
    "vllm": "start it as: vllm serve MODEL, then: vibey init --force",
}


def require_free(path: Path) -> None:
    """Refused when there is a file already."""
    if path.exists():
        raise _taken(path)


def require_found(path: Path, found: Sequence[Found]) -> None:
    """Refused, with everything that was looked for, when no engine was found."""
    if not found:
        raise Refused(
            f"no engine was found: {'; '.join(not_found(found))}; nothing was written",
            f"install or start one and run vibey init again, or describe a program of your own in {path}: "
            'an [engine.agent] table with kind = "command" and argv = ["my-agent"]',
        )


def not_found(found: Sequence[Found]) -> list[str]:
    """Where nothing was found: the programs that are not on PATH, and the ports on which no model server answers."""
    names = {engine.name for engine in found}
    programs = [name for name in discovery.CLIENTS if name not in names]
    ports = [f"{port} ({name})" for name, port in discovery.SERVERS.items() if name not in names]
    lines = [f"not on PATH: {', '.join(programs)}"] if programs else []
    return [*lines, f"no model server answers on {discovery.LOOPBACK} at port {', '.join(ports)}"] if ports else lines


def enclosing_repository(folder: Path) -> Path | None:
    """The git repository that a folder is in, None outside one; never somebody's home or the whole file system."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return None if candidate in {Path.home(), Path(candidate.anchor)} else candidate
    return None


def write(path: Path, found: Sequence[Found], *, force: bool, repository: Path | None = None) -> str:
    """Write a starter file and return its text; Refused when there is one and `force` is off.

    Coding clients may work in clones of `repository`; without one the key for that stands in the file as a comment.
    """
    text = compose(found, repository)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise Refused(
            f"{path} cannot be written: {error.strerror}", "name a place of your own with --config"
        ) from error
    load(path, {})
    return text


def _taken(path: Path) -> Refused:
    return Refused(f"{path} exists already; nothing was written", "use --force to replace it")


def compose(found: Sequence[Found], repository: Path | None = None) -> str:
    """The text of a starter file; what cannot be used as it was found stands in it as a comment, with what it needs."""
    cap = str(paid_daily_cap(found))
    head = HEAD.format(found=paid_access_words(found), cap=cap, pad=" " * (len("100") - len(cap)))
    blocks = [_block(engine, repository) for engine in found]
    if not any(engine.is_usable for engine in found):
        blocks.append(NONE_FOUND)
    return head + "".join(blocks)


def paid_daily_cap(found: Sequence[Found]) -> int:
    """The cap a starter file sets: a higher one where there are subscriptions only."""
    keys, subscriptions = paid_access(found)
    return CAP_WITH_SUBSCRIPTIONS if subscriptions and not keys else CAP_WITH_KEYS


def paid_access_words(found: Sequence[Found]) -> str:
    """How many API keys and subscriptions were found."""
    keys, subscriptions = paid_access(found)
    return f"{many(keys, 'API key')} and {many(subscriptions, 'subscription')}"


def what_it_needs(engine: Found) -> str:
    """What a person has to do before this engine can run jobs; empty if nothing."""
    if engine.kind == "openai" and engine.model is None:
        return _NO_MODEL.get(engine.name, "give it a model, then: vibey init --force")
    health = engine.health
    if not engine.is_usable:
        return "; ".join(part for part in (health.detail, health.fix) if part)
    if health.logged_in is not False:
        return ""
    vendor = discovery.CLIENTS.get(engine.name)
    keys = f", or put a key in ${vendor.keys[0]} and run: vibey init --force" if vendor and vendor.keys else ""
    return f"{health.fix}{keys}"


def _block(engine: Found, repository: Path | None) -> str:
    version = f" {engine.health.version}" if engine.health.version else ""
    remarks = [f"# Found: {engine.where}{version}"]
    if needed := what_it_needs(engine):
        remarks.append(f"# {'Not logged in; ' if engine.is_usable else 'Not yet usable; '}{needed}")
    if engine.key_variable:
        remarks.append(f"# Not logged in; it uses the key in ${engine.key_variable}, and its provider bills each job")
    if engine.others:
        more = ", ..." if len(engine.others) > _OTHERS_SHOWN else ""
        remarks.append(f"# Other models there: {', '.join(engine.others[:_OTHERS_SHOWN])}{more}")
    lines = _keys(engine)
    if is_coding_client(engine):
        lines.extend(_roots(repository))
    written = lines if engine.is_usable else [f"# {line.removeprefix('# ')}" for line in lines]
    return "\n" + "\n".join([*remarks, *written]) + "\n"


def is_coding_client(engine: Found) -> bool:
    """Whether the engine edits files, and so is of most use in repositories."""
    return engine.name in discovery.CLIENTS


def _roots(repository: Path | None) -> list[str]:
    if repository is None:
        return [f"# workspace_roots = {json.dumps([ROOTS_EXAMPLE])}    # {ROOTS_MEANING}"]
    wider = repository.parent
    return [
        f"workspace_roots = [{_text(str(repository))}]    # {ROOTS_MEANING}",
        f"# workspace_roots = [{_text(str(wider))}]    # every repository beside it as well",
    ]


def _keys(engine: Found) -> list[str]:
    keys = {"kind": engine.kind, "tier": engine.tier, "account": engine.account}
    if engine.kind == "openai":
        keys |= {"base_url": engine.where, "model": engine.model or "NAME"}
    keys["api_key_env"] = engine.key_variable
    lines = [f"[engine.{engine.name}]", *(f"{key} = {_text(value)}" for key, value in keys.items() if value)]
    return [*lines, PRICES] if not engine.names_cost else lines


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are among TOML's."""
    return json.dumps(value, ensure_ascii=False)
