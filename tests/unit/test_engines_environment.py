"""What passes from the worker to a job."""

from __future__ import annotations

import pytest

from vibey.domain.errors import InvalidInput
from vibey.engines.environment import DEFAULT_PATH, allowed, check_extras, secrets_in

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


@pytest.mark.parametrize("name", ["VIBEY_DATABASE_URL", "VIBEY_ANY", "PGPASSWORD", "CELERY_BROKER_URL"])
def test_vibeys_own_variables_cannot_be_named(name: str) -> None:
    """An engine cannot ask for the keys of Vibey's services."""
    with pytest.raises(InvalidInput, match=name):
        check_extras("e", ["FINE", name])


def test_secrets_are_known_by_their_names() -> None:
    """Values under telling names are to be masked."""
    variables = {"OPENAI_API_KEY": "k", "GH_TOKEN": "t", "HOME": "h", "DB_PASSWORD": "p", "EMPTY_KEY": ""}
    assert sorted(secrets_in(variables)) == ["k", "p", "t"]
