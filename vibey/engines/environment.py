"""The environment of a job's processes: an allow-list and the engine's named extras, nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|(?:^|_)PAT(?:$|_)", re.IGNORECASE)
_LOGIN_IN_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@", re.IGNORECASE)
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
    passed.setdefault("PATH", DEFAULT_PATH)
    return passed


def secrets_in(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be shown: by the names they go under, or as addresses that hold a password."""
    return tuple(
        value
        for name, value in variables.items()
        if value and (_SECRET_NAME.search(name) or _LOGIN_IN_ADDRESS.match(value))
    )
