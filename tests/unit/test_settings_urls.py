"""Addresses of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibey.domain.errors import InvalidInput, SettingsError
from vibey.settings import Source, normalise_database_url, normalise_redis_url, redacted_url, settings_of


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


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@h1:5432,h2:5433/v?target_session_attrs=primary",
        "postgresql://u:p@h1,h2/v?load_balance_hosts=random&sslmode=verify-full&sslrootcert=system",
        "postgresql://u:p@/v?host=/run/postgresql&options=-csearch_path%3Dfleet",
        "postgresql://[::1]:5432,[::2]/v?ssl=true",
        "postgresql:///v?service=fleet",
    ],
)
def test_what_libpq_takes_is_taken(url: str) -> None:
    """Several hosts, sockets, services, options: unchanged but for the driver's name."""
    assert normalise_database_url(url) == url.replace("postgresql://", "postgresql+psycopg2://")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://h/v?pool_timeout=5", "pool_timeout is not a connection parameter of PostgreSQL"),
        ("postgresql://h/v?conect_timeout=5", "conect_timeout is not a connection parameter"),
        ("postgresql://h/v?host=h1:1&host=h2:2", "has host once; several hosts are written"),
        ("postgresql://h1:x,h2/v", "an address that starts with one of"),
    ],
)
def test_a_parameter_of_the_database_nobody_knows_is_named(url: str, message: str) -> None:
    """Before anything is connected."""
    with pytest.raises(InvalidInput, match=message):
        normalise_database_url(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://h/0?sokcet_timeout=5", "sokcet_timeout is not a parameter of a Redis address"),
        ("redis://h1:1,h2:2/0", "an address with one host; .*Sentinel"),
        ("redis://h/jobs", "ends with the number of a database"),
        ("redis+socket:///run/r.sock?db=1", "db is not a parameter of a socket's address: virtual_host"),
    ],
)
def test_a_redis_address_nobody_can_use_is_refused(url: str, message: str) -> None:
    """Neither client would understand it."""
    with pytest.raises(InvalidInput, match=message):
        normalise_redis_url(url)


def test_an_unknown_parameter_comes_with_the_nearest_known_one() -> None:
    """As any misspelt name of the configuration does."""
    with pytest.raises(SettingsError, match=r"did you mean 'connect_timeout'\?"):
        settings_of(Source(None, Path("/"), {"services": {"database_url": "postgresql://h/v?conect_timeout=5"}}), {})
