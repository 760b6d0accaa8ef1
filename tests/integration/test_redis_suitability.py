"""A Redis-compatible server that answers but does not allow what is needed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.support.installation import noop
from vibey import embedded
from vibey.coordination import server
from vibey.coordination.wakeups import WakeUps
from vibey.domain.errors import ServiceUnavailable, UnsuitableService
from vibey.services.doctor import State, check
from vibey.services.installation import Installation, require_suitable_redis
from vibey.settings import Settings, Source, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIX = "vibey:"


class OwnServer:
    """A server of one test's own, as its administrator sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.admin: Any = redis.Redis.from_url(url, decode_responses=True)

    def user(self, name: str, *rules: str) -> str:
        """The address for a user made with these rules of an ACL."""
        self.admin.execute_command("ACL", "SETUSER", name, "reset", "on", ">pw", *rules)
        return f"redis://{name}:pw@{self.url.rpartition('@')[2]}"

    def lacking(self, url: str) -> list[str]:
        """What an installation lacks with this address, as it is told."""
        return [str(each) for each in server.examine(url, PREFIX).lacking]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    """A server whose users and role may be changed."""
    with embedded.redis_server(tmp_path_factory.mktemp("own") / "redis") as url:
        made = OwnServer(url)
        yield made
        made.admin.close()


def test_the_line_of_rights_suffices_and_no_less(own: OwnServer) -> None:
    """A user limited to the prefix lacks the patterns it subscribes to; the line named gives them."""
    url = own.user("team", "~vibey:*", "&vibey:*", "+@all", "-@admin")
    (said,) = own.lacking(url)
    assert "may not use" in said
    assert "PSUBSCRIBE vibey:/0.celery.pidbox, PSUBSCRIBE vibey:/0.celeryev/*" in said
    line = said[said.index("ACL SETUSER team ") :]
    own.admin.execute_command(*shlex.split(line))
    assert own.lacking(url) == []
    assert own.admin.keys("vibey:probe*") == []


def test_a_user_without_dangerous_commands_is_enough(own: OwnServer) -> None:
    """Only the eviction policy, which INFO would say, stays unknown."""
    url = own.user("wide", "~*", "&*", "+@all", "-@dangerous")
    assert server.examine(url, PREFIX).lacking == ()
    assert server.examine(url, PREFIX).memory_policy == ""
    assert server.examine(own.url, PREFIX).memory_policy == "noeviction"


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (("~other:*", "&*", "+@all"), "SET, GET"),
        (("~*", "&*", "+@all", "-@scripting"), "SCRIPT EXISTS, SCRIPT LOAD, EVALSHA, EVAL"),
        (("~*", "&*", "+@all", "-brpop"), ": BRPOP;"),
        (("~*", "&other:*", "+@all"), "PUBLISH, PSUBSCRIBE"),
        (("~*", "&*", "+@all", "-exec"), ": EXEC;"),
    ],
)
def test_every_missing_right_is_named(own: OwnServer, rules: tuple[str, ...], named: str) -> None:
    """Keys, channels and commands alike, in one sentence."""
    (said,) = own.lacking(own.user("some", *rules))
    assert named in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace(url[url.index("://") + 3 : url.index("@") + 1], ""), "it asks for a password"),
        (lambda url: url.replace("://:", "://:wrong"), "user or password is wrong"),
        (lambda url: f"{url.rpartition('/')[0]}/99", "no database of that number"),
    ],
)
def test_an_address_that_is_nearly_right_says_what_is_wrong(own: OwnServer, change: Any, words: str) -> None:
    """Not that the server is away."""
    (said,) = own.lacking(change(own.url))
    assert words in said
    assert "unreachable" not in said


def test_a_replica_is_refused(own: OwnServer) -> None:
    """Nothing can be written there."""
    own.admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        (said,) = own.lacking(own.url)
        assert "read-only replica; name the primary" in said
    finally:
        own.admin.execute_command("REPLICAOF", "NO", "ONE")


def test_a_server_that_is_away_is_away() -> None:
    """And not unsuitable."""
    (found,) = server.examine("redis://127.0.0.1:1/0", PREFIX).lacking
    assert type(found) is ServiceUnavailable


def settings_for(database_url: str, redis_url: str, folder: Path) -> Settings:
    """Settings with one engine on these services."""
    services = {"database_url": database_url, "redis_url": redis_url, "data_dir": str(folder)}
    return settings_of(Source(None, folder, {"services": services, "engine": {"desk": noop()}}), {})


def test_doctor_and_migrate_refuse_what_cannot_work(own: OwnServer, database_url: str, tmp_path: Path) -> None:
    """Each with the line that mends it."""
    settings = settings_for(database_url, own.user("team", "~vibey:*", "&vibey:*", "+@all", "-@admin"), tmp_path)
    with pytest.raises(UnsuitableService, match="ACL SETUSER team"):
        require_suitable_redis(settings)
    installation = Installation.open(settings)
    try:
        found = {each.name: each for each in check(installation, staff=False)}
    finally:
        installation.close()
    assert found["redis"].state is State.FAIL
    assert "ACL SETUSER team" in found["redis"].fix


def test_a_valkey_address_and_a_socket_are_understood(own: OwnServer, tmp_path: Path) -> None:
    """Our client spells a socket otherwise than Celery does."""
    path = tmp_path / "redis.sock"
    assert server.client_url(f"redis+socket://{path}?virtual_host=3") == f"unix://{path}?db=3"
    settings = settings_for("postgresql://127.0.0.1/none", own.url.replace("redis://", "valkey://"), tmp_path)
    require_suitable_redis(settings)
    wakeups = WakeUps(server.client_url(own.url), PREFIX)
    wakeups.ping()
    wakeups.close()
