"""Where settings come from: one TOML file, and the environment laid over it.

Numbers with a point are read as exact decimals. The environment speaks only for the keys listed by
`service_variables` and `policy_variables`; a variable of another name, however odd, is somebody else's.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import tomllib
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from vibey.domain.errors import Problem, SettingsError
from vibey.domain.text import NotText, decode_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

CONFIG_VARIABLE = "VIBEY_CONFIG"
DEFAULT_FILE = "vibey.toml"
HOST_VARIABLE = "VIBEY_HOST"
ENGINES_PREFIX = "VIBEY_ENGINES_"
OVERLAID = ("mode", "overflow_after_seconds", "paid_daily_cap")
"""Keys of `[engines]` whose variables a router lays over what is in force; those of the others count at `apply`."""
LARGEST_BYTES = 16_000_000

SERVICE_VARIABLES: Mapping[str, str] = {
    "database_url": "VIBEY_DATABASE_URL",
    "redis_url": "VIBEY_REDIS_URL",
    "data_dir": "VIBEY_DATA_DIR",
}

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?")
_TRUTHS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_PLACE = re.compile(r"\s*\(at (?P<place>line \d+, column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Source:
    """What a configuration file held: its path (None when there is none), its folder and its tables."""

    path: Path | None
    folder: Path
    tables: Mapping[str, object]


def read(path: Path | None, environ: Mapping[str, str]) -> Source:
    """The tables of `path`, else of the file `$VIBEY_CONFIG` names, else of ./vibey.toml if there is one.

    Raises `SettingsError` when a named file is missing, or any file cannot be read as TOML.
    """
    named = str(path) if path is not None else environ.get(CONFIG_VARIABLE, "").strip()
    file = _working_folder(named) / (named or DEFAULT_FILE)
    try:
        content = _content(file)
    except FileNotFoundError as error:
        if named:
            raise _unreadable(file, "no such file; name an existing one, or run: vibey init") from error
        return Source(None, file.parent, {})
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise _unreadable(file, f"cannot be read: {reason or error}") from error
    return Source(file, file.parent, _parsed(content, file))


def file_state(path: Path | None) -> tuple[int, ...] | None:
    """What is another one after a file was edited, replaced, or made readable; None while there is no such file.

    For None, of the file that `read` takes where none is named.
    """
    try:
        found = (path or Path(DEFAULT_FILE)).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _working_folder(named: str) -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        if os.path.isabs(named):  # noqa: PTH117  what it names is text
            return Path("/")
        why = f"the working folder cannot be used ({error.strerror}); change to another one"
        raise _unreadable(Path(named or DEFAULT_FILE), why) from error


def _content(file: Path) -> bytes:
    """The bytes of a file. A pipe that a shell made for its output may be read, one that has a name waits for ever."""
    kind = file.stat().st_mode
    if stat.S_ISFIFO(kind) and file.resolve().exists():
        raise ValueError("it is a named pipe, not a file")
    with file.open("rb") as opened:
        content = opened.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise ValueError(f"it has more than {LARGEST_BYTES:,} bytes")
    return content


def policy_variable(key: str) -> str:
    """The environment variable that overlays `[engines] key`."""
    return f"{ENGINES_PREFIX}{key.upper()}"


def host_name(environ: Mapping[str, str]) -> str:
    """Which `[host.NAME]` table is this machine's: the one `$VIBEY_HOST` names, else the one of its host name."""
    return environ.get(HOST_VARIABLE, "").strip() or socket.gethostname()


def policy_variables(model: type[BaseModel]) -> Mapping[str, str]:
    """Key → variable for every key of `model` that one word can hold."""
    return {key: policy_variable(key) for key, field in model.model_fields.items() if is_scalar(field)}


def overlay(model: type[BaseModel], variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, object]:
    """The keys of `model` the environment sets, each as `value_of` reads it."""
    return {key: value_of(model.model_fields[key], environ[name]) for key, name in variables.items() if name in environ}


def is_scalar(field: FieldInfo) -> bool:
    """Whether one word of text can denote a value of this field."""
    return field.annotation in {int, bool, str, Decimal} or _is_word_set(field)


def value_of(field: FieldInfo, text: str) -> object:
    """The value `text` denotes for `field`, or the text itself where it denotes none."""
    word = text.strip()
    if field.annotation is int:
        return int(word) if _WHOLE.fullmatch(word) else word
    if field.annotation is Decimal:
        return Decimal(word) if _DECIMAL.fullmatch(word) else word
    if field.annotation is bool:
        return _TRUTHS.get(word.lower(), word)
    return word


def _is_word_set(field: FieldInfo) -> bool:
    words = get_args(field.annotation)
    return bool(words) and all(isinstance(word, str) for word in words)


def _parsed(content: bytes, file: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(decode_text(content), parse_float=_exact)
    except NotText as error:
        raise _not_toml(file, f"line {error.line}", error.reason) from error
    except RecursionError as error:
        raise _not_toml(file, "file", "lists or tables are nested too deeply") from error
    except ValueError as error:
        message = str(error)
        found = _PLACE.search(message)
        place = found["place"] if found else "file"
        raise _not_toml(file, place, _PLACE.sub("", message)) from error


def _exact(text: str) -> Decimal:
    try:
        return Decimal(text.replace("_", ""))
    except InvalidOperation:
        # An exponent beyond what Decimal holds; no key takes a number like that, so let its check say so.
        return Decimal("NaN")


def _unreadable(file: Path, why: str) -> SettingsError:
    return SettingsError(str(file), (Problem("file", file.name, why),))


def _not_toml(file: Path, place: str, why: str) -> SettingsError:
    # The line itself is not repeated: the mistake may well sit beside a password.
    return SettingsError(str(file), (Problem(place, file.name, f"not TOML: {why}"),))
