"""Addresses of servers."""

from __future__ import annotations

import pytest

from vibey.domain.errors import InvalidInput
from vibey.settings import normalise_database_url, normalise_redis_url, redacted_url


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_every_postgres_scheme_means_psycopg2(scheme: str) -> None:
    """The rest of the address is left as it is."""
    rest = "u:p%40@h:5433/v?host=/run/postgresql"
    assert normalise_database_url(f"{scheme}://{rest}") == f"postgresql+psycopg2://{rest}"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("redis://h:6379/1", "redis://h:6379/1"),
        ("rediss://:p@h", "rediss://:p@h"),
        ("valkey://h/0", "redis://h/0"),
        ("valkeys://h/0", "rediss://h/0"),
        ("redis+socket:///run/redis.sock", "redis+socket:///run/redis.sock"),
        ("", ""),
    ],
)
def test_valkey_is_spelt_redis(given: str, meant: str) -> None:
    """Celery knows no valkey scheme; an empty address stays the embedded server."""
    assert normalise_redis_url(given) == meant


@pytest.mark.parametrize(
    "url",
    [
        "mysql://h/v",
        "postgresql+psycopg://h/v",
        "postgres:/h",
        "h:5432",
        "postgres://[h",
        "postgres://h:x/v",
        " ",
    ],
)
def test_other_database_addresses_are_refused(url: str) -> None:
    """The error names the field and the schemes taken."""
    with pytest.raises(InvalidInput, match=r"postgresql\+psycopg2://"):
        normalise_database_url(url)


def test_a_refused_address_hides_its_password() -> None:
    """An error may be logged anywhere."""
    with pytest.raises(InvalidInput) as caught:
        normalise_redis_url("http://user:hunter2@h")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("redis://:s3/cr@t@h/0", "redis://:***@h/0"),
        ("postgres://u@h/v", "postgres://u@h/v"),
        ("postgres://h/v?password=x&sslmode=require", "postgres://h/v?password=***&sslmode=require"),
        ("no address at all", "no address at all"),
        ("redis://:pass word@h", "redis://:***@h"),
        ("postgres://u\t:pass\nword@h", "postgres://u\t:***@h"),
        ("postgres://u@x:p@h/v", "postgres://u@x:***@h/v"),
        ("u:p@h/v", "u:***@h/v"),
        ("host=h password=p port=1", "host=h password=*** port=1"),
        ("redis://u:p@h redis://h:1", "redis://u:***@h redis://h:1"),
    ],
)
def test_redaction(given: str, shown: str) -> None:
    """Passwords go, everything else stays."""
    assert redacted_url(given) == shown
