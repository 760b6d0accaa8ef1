"""What passes from the worker to a job."""

from __future__ import annotations

import pytest

from vibey.domain.errors import InvalidInput
from vibey.engines.environment import DEFAULT_PATH, allowed, check_extras, logins_in, secrets_in

WORKER = {
    "PATH": "/bin",
    "HOME": "/home/w",
    "LC_ALL": "C",
    "VIBEY_DATABASE_URL": "postgresql://u:p@h/d",
    "VIBEY_REDIS_URL": "redis://:p@h",
    "MY_COPY": "redis://:p@h",
    "AWS_SECRET_ACCESS_KEY": "s",
    "NAMED": "n",
}


def test_only_listed_and_named_variables_pass() -> None:
    """The allow-list, locale variables and the named extras pass; an address of Vibey's passes under no name."""
    passed = allowed(WORKER, ["NAMED", "MY_COPY", "VIBEY_REDIS_URL", "ABSENT"])
    assert passed == {"PATH": "/bin", "HOME": "/home/w", "LC_ALL": "C", "NAMED": "n"}


def test_programs_are_found_even_without_a_path() -> None:
    """A worker without PATH gives its jobs the usual one."""
    assert allowed({}) == {"PATH": DEFAULT_PATH}


@pytest.mark.parametrize(
    ("path", "passed"),
    [
        ("/a:.:/b", "/a:/b"),
        (":/a:", "/a"),
        ("node_modules/.bin:/a", "/a"),
        ("/a::~/bin:./x:../y", "/a"),
        (".", DEFAULT_PATH),
        ("", DEFAULT_PATH),
    ],
)
def test_only_absolute_entries_of_a_path_pass(path: str, passed: str) -> None:
    """An entry that means another folder in every place would find programs in a job's tree."""
    assert allowed({"PATH": path}) == {"PATH": passed}


@pytest.mark.parametrize("name", ["VIBEY_DATABASE_URL", "VIBEY_ANY", "PGPASSWORD", "CELERY_BROKER_URL"])
def test_vibeys_own_variables_cannot_be_named(name: str) -> None:
    """An engine cannot ask for the keys of Vibey's services."""
    with pytest.raises(InvalidInput, match=name):
        check_extras("e", ["FINE", name])


def test_secrets_are_known_by_their_names() -> None:
    """Values under telling names are to be masked."""
    variables = {"OPENAI_API_KEY": "k", "GH_TOKEN": "t", "HOME": "h", "DB_PASSWORD": "p", "EMPTY_KEY": ""}
    assert sorted(secrets_in(variables)) == ["k", "p", "t"]


@pytest.mark.parametrize("name", ["SMTP_PASS", "MYSQL_PWD", "SENTRY_DSN", "GIT_PAT", "SESSION_COOKIE", "X_AUTH"])
def test_telling_names(name: str) -> None:
    """Short words count where they stand alone."""
    assert secrets_in({name: "v", "PWD": "/here", "PASSAGE": "x", "PATH": "/bin"}) == ("v",)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("http://u:p%40ss@proxy:1/x", {"u:p%40ss", "u:p@ss", "p%40ss", "p@ss", "u:p%40ss@"}),
        ("https://ghp_token@host/x", {"ghp_token@"}),
        ("ssh://git@host/x", set()),
        ("postgresql://postgres:postgres@h/d", {"postgres:postgres", "postgres:postgres@"}),
        ("redis://:deep@h a http://h/p?q=a@b", {":deep", ":deep@", "deep"}),
        ("redis://h?password=d%2Fp", {"d%2Fp", "d/p"}),
        ("http://host/path", set()),
    ],
)
def test_logins_of_addresses(text: str, hidden: set[str]) -> None:
    """The login with its user, and its password alone unless that is a word of the address itself."""
    assert {secret for secret in logins_in(text) if "://" not in secret} == hidden
    assert all(secret.partition("@")[0] in text for secret in logins_in(text) if "://" in secret)
