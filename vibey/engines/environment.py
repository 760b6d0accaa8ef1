"""The environment of a job's processes: an allow-list and the engine's named extras, nothing else."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from vibey.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALLOWED = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP", "TMPDIR", "TZ", "USER"}
    # Where a client finds its login and its certificates; none of them is a secret.
    | {
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    }
)
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_SERVICE_URLS = ("VIBEY_DATABASE_URL", "VIBEY_REDIS_URL")
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|(?:^|_)(?:PAT|PASS|DSN)(?:$|_)|_PWD(?:$|_)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?P<way>[a-z][a-z0-9+.-]*://)(?P<login>[^/?#\s]+)@(?P<place>[^\s]*)", re.IGNORECASE)
_PASSWORD_IN_QUERY = re.compile(r"[?&](?:ssl)?password=(?P<password>[^&#\s]+)", re.IGNORECASE)
_REFUSED = re.compile(r"VIBEY_.*|CELERY_.*|PGPASSWORD|PGPASSFILE|REDISCLI_AUTH")


def check_extras(engine: str, names: Iterable[str]) -> None:
    """Refuse extras that would hand a job the keys of Vibey's own services; raises InvalidInput."""
    for name in names:
        if _REFUSED.fullmatch(name):
            raise InvalidInput(f"engine.{engine}.env", name, "the name of a variable that is not Vibey's own")


def allowed(worker: Mapping[str, str], extras: Iterable[str] = ()) -> dict[str, str]:
    """What passes from the worker's environment: the allow-list, every LC_ variable, and the named extras.

    A variable that holds the address of Vibey's database or Redis never passes, whatever its name.
    """
    names = ALLOWED.union(extras)
    hidden = {worker[name] for name in _SERVICE_URLS if worker.get(name)}
    passed = {
        name: value
        for name, value in worker.items()
        if (name in names or name.startswith("LC_")) and not _REFUSED.fullmatch(name) and value not in hidden
    }
    passed["PATH"] = absolute_path(passed.get("PATH", ""))
    return passed


def absolute_path(path: str) -> str:
    """A PATH without entries that mean another place in every folder: a job's tree is no place to find programs in."""
    entries = (entry for entry in path.split(os.pathsep) if os.path.isabs(entry))  # noqa: PTH117
    return os.pathsep.join(entries) or DEFAULT_PATH


def secrets_in(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be shown: by the names they go under, and the logins of addresses among them."""
    named = (value for name, value in variables.items() if value and _SECRET_NAME.search(name))
    return tuple(dict.fromkeys((*named, *(secret for value in variables.values() for secret in logins_in(value)))))


def logins_in(text: str) -> tuple[str, ...]:
    """What of the addresses in a text must not be shown: each with its login, the login, and its password.

    A password that the address holds elsewhere too, such as `postgres`, is an ordinary word and hides nothing.
    """
    found: list[str] = []
    for match in _ADDRESS.finditer(text):
        login, user = match["login"], match["login"].partition(":")[0]
        password = login.removeprefix(user).removeprefix(":")
        if not password and not match["way"].lower().startswith("http"):
            continue  # a user's name alone, as ssh has it, is no secret; before an http server it is a token
        found += [match[0], f"{login}@"]
        if password:
            found += [login, unquote(login)]
        if password and password not in f"{match['way']}{user} {match['place']}":
            found += [password, unquote(password)]
    for match in _PASSWORD_IN_QUERY.finditer(text):
        found += [match["password"], unquote(match["password"])]
    return tuple(found)
