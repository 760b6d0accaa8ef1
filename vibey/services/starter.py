"""Starter: a first vibey.toml for the engines found on this machine, small enough to read whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vibey.domain.errors import Refused
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vibey.services.discovery import Found

HEAD = """\
# Vibey's configuration. `vibey config show` prints every key with its value, its default included.

[services]
# Without addresses Vibey runs its own Postgres and Redis-compatible server under .vibey, on loopback.
# database_url = "postgresql://user@host/vibey"
# redis_url = "redis://host:6379/0"

[engines]
mode = "auto"
paid_daily_cap = 10        # paid overflows per UTC day
paid_fallback = "count"    # paid work without any local engine takes a unit of that cap, too
"""
NONE_FOUND = """
# No engine that this version can run was found here. Any program can be one: it reads the job's payload as JSON on
# standard input, and exit 0 is success. Make this block yours, then run: vibey up
#
# [engine.agent]
# kind = "command"
# tier = "local"           # local: your own hardware; paid: a subscription or a metered API
# argv = ["my-agent", "--stdin"]
"""


def write(path: Path, found: Sequence[Found], kinds: Sequence[str], *, force: bool) -> str:
    """Write a starter file and return its text; Refused when there is one and `force` is off."""
    text = compose(found, kinds)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise Refused(f"{path} exists already; nothing was written", "use --force to replace it") from error
    except OSError as error:
        raise Refused(
            f"{path} cannot be written: {error.strerror}", "name a place of your own with --config"
        ) from error
    load(path, {})
    return text


def compose(found: Sequence[Found], kinds: Sequence[str]) -> str:
    """The text of a starter file; engines of a kind not among `kinds` stand in it as comments, with the reason."""
    blocks = [_block(engine, kinds) for engine in found]
    if not any(is_usable(engine, kinds) for engine in found):
        blocks.append(NONE_FOUND)
    return HEAD + "".join(blocks)


def is_usable(engine: Found, kinds: Sequence[str]) -> bool:
    """Whether an engine can be configured as it was found: of a kind there is, and with a model if it needs one."""
    return engine.kind in kinds and (engine.kind != "openai" or engine.model is not None)


def _block(engine: Found, kinds: Sequence[str]) -> str:
    lines = [f"[engine.{engine.name}]", f"kind = {_text(engine.kind)}", f"tier = {_text(engine.tier)}"]
    if engine.kind == "openai":
        lines.append(f"base_url = {_text(engine.where)}")
        lines.append(f"model = {_text(engine.model or 'its name')}")
    if is_usable(engine, kinds):
        return "\n" + "\n".join([f"# Found: {engine.where}", *lines]) + "\n"
    later = f"Kind {_text(engine.kind)} comes in a later version; this one has {', '.join(kinds)}."
    reason = "It has no model yet; give it one, and name it here." if engine.kind in kinds else later
    return "\n" + "\n".join([f"# Found: {engine.where}. {reason}", *(f"# {line}" for line in lines)]) + "\n"


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are among TOML's."""
    return json.dumps(value, ensure_ascii=False)
