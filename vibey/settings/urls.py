"""Addresses of servers: which schemes are taken, the form the drivers need, and a form fit to be shown.

The scheme decides the driver. SQLAlchemy 2.1 takes a bare `postgresql://` for psycopg 3, and Celery knows no
`valkey://`, so both are rewritten here, once, and nobody else needs to know.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from vibey.domain.errors import InvalidInput
from vibey.settings.values import Unusable

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
    """Check of `database_url`."""

    def __call__(self, value: object) -> str:
        """The address unchanged, or the empty text for embedded Postgres."""
        return _checked(value, _DATABASE_SCHEMES, "empty for embedded Postgres, or")


class RedisUrl:
    """Check of `redis_url`."""

    def __call__(self, value: object) -> str:
        """The address unchanged, or the empty text for the embedded server."""
        return _checked(value, tuple(_REDIS_SCHEMES), "empty for the embedded server, or")


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
        _ = parts.port  # reading it is what makes urllib judge it
    except ValueError:
        return False
    return parts.scheme in schemes and value[len(parts.scheme) :].startswith("://")
