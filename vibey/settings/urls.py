"""Addresses of servers: which schemes are taken, the form the drivers need, and a form fit to be shown.

The scheme decides the driver. SQLAlchemy 2.1 takes a bare `postgresql://` for psycopg 3, and Celery knows no
`valkey://`, so both are rewritten here, once, and nobody else needs to know.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from vibey.domain.errors import InvalidInput
from vibey.settings.values import Unusable, nearest_name

_DATABASE_SCHEME = "postgresql+psycopg2"
_DATABASE_SCHEMES = ("postgres", "postgresql", _DATABASE_SCHEME)
_REDIS_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "redis+socket": "redis+socket",
}
_WEB_SCHEMES = ("http", "https")
# The keywords of libpq (up to PostgreSQL 17, as psycopg2 brings it) that a query string may set, without `replication`;
# `ssl=true` is JDBC's way of sslmode=require, which libpq takes, too.
DATABASE_KEYS = frozenset(
    {
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "dbname",
        "fallback_application_name",
        "gssdelegation",
        "gssencmode",
        "gsslib",
        "host",
        "hostaddr",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "krbsrvname",
        "load_balance_hosts",
        "options",
        "passfile",
        "password",
        "port",
        "require_auth",
        "requirepeer",
        "service",
        "ssl",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslcert",
        "sslcertmode",
        "sslcompression",
        "sslcrl",
        "sslcrldir",
        "sslkey",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslrootcert",
        "sslsni",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    }
)
# What both clients of a Redis server, ours and Celery's, understand of a query string.
REDIS_KEYS = frozenset({"ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
SOCKET_KEYS = frozenset({"virtual_host"})

# From an address, or the beginning of one without its scheme, to the last @ before the next: where a mistake is, such
# as a blank or an @ in a password, nobody knows what of it is the password.
_USER_PASSWORD = re.compile(
    r"(?P<before>(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#:]*|^[^\s/?#:@]+(?=:(?!//))):)(?:(?!\s[A-Za-z][A-Za-z0-9+.-]*://).)*(?=@)",
    re.DOTALL,
)
_QUERY_PASSWORD = re.compile(r"(?i)(?P<before>(?:[?&\s]|^)(?:password|sslpassword|token|api_?key)=)[^&#\s]*")


def normalise_database_url(url: str) -> str:
    """`url` with the scheme that means psycopg2; an empty one (embedded Postgres) stays empty.

    Raises `InvalidInput` for any other scheme or an unreadable address.
    """
    try:
        checked = DatabaseUrl()(url)
    except Unusable as error:
        raise InvalidInput("database_url", redacted_url(url), error.expected) from error
    return f"{_DATABASE_SCHEME}://{checked.partition('://')[2]}" if checked else ""


def normalise_redis_url(url: str) -> str:
    """`url` with `valkey` written as `redis`, as Celery expects; an empty one (embedded server) stays empty.

    Raises `InvalidInput` for any other scheme or an unreadable address.
    """
    try:
        checked = RedisUrl()(url)
    except Unusable as error:
        raise InvalidInput("redis_url", redacted_url(url), error.expected) from error
    scheme, _, rest = checked.partition("://")
    return f"{_REDIS_SCHEMES[scheme.lower()]}://{rest}" if checked else ""


def redacted_url(text: str) -> str:
    """`text` with every password of every address in it replaced by `***`; other text is unchanged."""
    return _QUERY_PASSWORD.sub(r"\g<before>***", _USER_PASSWORD.sub(r"\g<before>***", text))


class DatabaseUrl:
    """Check of `database_url`: what libpq takes, with one host or several."""

    def __call__(self, value: object) -> str:
        """The address unchanged, or the empty text for embedded Postgres."""
        checked = _checked(value, _DATABASE_SCHEMES, "empty for embedded Postgres, or")
        _require_known_keys(checked, DATABASE_KEYS, "a connection parameter of PostgreSQL")
        return checked


class RedisUrl:
    """Check of `redis_url`."""

    def __call__(self, value: object) -> str:
        """The address unchanged, or the empty text for the embedded server."""
        checked = _checked(value, tuple(_REDIS_SCHEMES), "empty for the embedded server, or")
        scheme, _, rest = checked.partition("://")
        if scheme.lower() == "redis+socket":
            _require_known_keys(checked, SOCKET_KEYS, "a parameter of a socket's address")
            return checked
        _require_known_keys(checked, REDIS_KEYS, "a parameter of a Redis address")
        if "," in rest.partition("/")[0].rpartition("@")[2]:
            raise Unusable("an address with one host; for several see docs/how-to/several-machines.md (Sentinel)")
        database = urlsplit(checked).path.strip("/")
        if database and not re.fullmatch(r"[0-9]{1,6}", database):
            raise Unusable("an address that ends with the number of a database, such as redis://host:6379/0")
        return checked


class WebUrl:
    """Check of a model server's `base_url`."""

    def __call__(self, value: object) -> str:
        """The address unchanged; it must name a host."""
        checked = _checked(value, _WEB_SCHEMES, "")
        if not checked or not urlsplit(checked).hostname:
            raise Unusable("an address that starts with http:// or https:// and names a host")
        return checked


def _checked(value: object, schemes: tuple[str, ...], lead: str) -> str:
    allowed = ", ".join(f"{scheme}://" for scheme in schemes)
    expected = f"{lead} an address that starts with one of {allowed}".strip()
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        raise Unusable(expected)
    if value and not _is_address(value, schemes):
        raise Unusable(expected)
    if urlsplit(value).netloc.count("@") > 1:
        # Drivers part such an address in different places, and show the end of the password as a host's name.
        raise Unusable("an address whose user and password have every @ in them written as %40")
    return value


def _is_address(value: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(value)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        for host in hosts:
            _ = urlsplit(f"//{host}").port  # reading it is what makes urllib judge it
    except ValueError:
        return False
    return parts.scheme in schemes and value[len(parts.scheme) :].startswith("://")


def _require_known_keys(url: str, known: frozenset[str], what: str) -> None:
    """Every key of the query string is known and stands there once; Unusable names the one that is not."""
    pairs = urlsplit(url).query.split("&")
    keys = [unquote(pair.partition("=")[0]) for pair in pairs if pair]
    for key in keys:
        if key not in known:
            near = nearest_name(key, known)
            raise Unusable(
                f"an address whose parameters are known; {key} is not {what}" + ("" if near else f": {_listed(known)}"),
                near,
            )
        if keys.count(key) > 1:
            raise Unusable(
                f"an address that has {key} once; several hosts are written postgresql://user@h1,h2/database"
            )


def _listed(known: frozenset[str]) -> str:
    return ", ".join(sorted(known)) or "there is none"
