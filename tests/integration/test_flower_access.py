"""Who may look at Flower and who may act: loopback, logins, other sites, and what the ledger says of an action."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.site import Site
from tests.support.warm import Started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOGIN = f"Basic {b64encode(b'alice:se:cret').decode()}"
OPENLY = {"FLOWER_BASIC_AUTH": "alice:se:cret", "FLOWER_VIBEY_ACTIONS": "true"}
OURS = ("/", "/queue", "/jobs", "/job/1", "/cap", "/ledger", "/live/queue", "/live/log/1")


@pytest.fixture
def make_site(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """A function that makes Flower on this test's installation, with variables of its own; not started yet."""
    made: list[Site] = []

    def make(**environment: str) -> Site:
        made.append(Site(database_url, redis_url, tmp_path / "site", environment=environment))
        return made[-1]

    yield make
    for site in made:
        site.close()


def _said_at_start(site: Site, *arguments: str) -> str:
    command = ["celery", "-A", "vibey", "flower", "--port=0", *arguments]
    assert Started(command, folder=site.folder, environment=site.variables, log=site.log).wait() != 0
    said = site.log.read_text(encoding="utf-8", errors="replace")
    assert "Visit me" not in said
    return said


def test_plain_flower_listens_on_loopback_only_and_reads_only(make_site: Callable[..., Site]) -> None:
    """`celery -A vibey flower` with no option binds to 127.0.0.1, changes nothing, and keeps its API closed."""
    site = make_site().start()
    listening = [each.laddr.ip for each in psutil.Process(site.pid).net_connections() if each.status == "LISTEN"]
    assert listening == ["127.0.0.1"]
    assert site.get("/").status == 200
    assert site.get("/api/workers").status == 401
    assert site.post("/api/worker/shutdown/x").status in {401, 403}
    assert site.post("/engine/near/pause", Origin=site.origin).status == 403


@pytest.mark.parametrize(
    "argument",
    ["--address=0.0.0.0", "--address=", "--address=flower.example"],
)
def test_what_others_could_reach_without_a_login_is_refused_at_the_start(
    make_site: Callable[..., Site], argument: str
) -> None:
    """Flower does not start where everybody could look."""
    said = _said_at_start(make_site(), argument)
    assert re.search(r"vibey: .*without a login", said)


def test_variables_of_another_flower_change_nothing(make_site: Callable[..., Site]) -> None:
    """Its address, port, prefix, configuration and open API are those of ours; only a login is taken from variables."""
    site = make_site(
        FLOWER_ADDRESS="0.0.0.0",  # noqa: S104  that is the point
        FLOWER_PORT="1",
        FLOWER_URL_PREFIX="theirs",
        FLOWER_CONF="/nowhere/flowerconfig.py",
        FLOWER_READ_ONLY="false",
        FLOWER_UNAUTHENTICATED_API="true",
        CELERY_BROKER_URL="redis://127.0.0.1:1/0",
        BROKER_URL="redis://127.0.0.1:1/0",
    ).start()
    listening = [each.laddr.ip for each in psutil.Process(site.pid).net_connections() if each.status == "LISTEN"]
    assert listening == ["127.0.0.1"]
    assert site.get("/queue").status == 200
    assert site.get("/api/workers").status == 401
    assert "127.0.0.1:1/" not in site.log.read_text(encoding="utf-8")


def test_a_wish_that_is_neither_yes_nor_no_is_refused_at_the_start(make_site: Callable[..., Site]) -> None:
    """A misspelt `FLOWER_VIBEY_ACTIONS` is told at once, not by a page that fails."""
    assert "FLOWER_VIBEY_ACTIONS" in _said_at_start(make_site(FLOWER_VIBEY_ACTIONS="perhaps"))


@pytest.mark.parametrize("login", ["", "alice", "alice:", ":secret", "alice:se:cret,"])
def test_a_login_that_asks_for_nothing_is_refused_at_the_start(make_site: Callable[..., Site], login: str) -> None:
    """A variable that is set and empty is no login, and none of several may be empty; its words are not repeated."""
    said = _said_at_start(make_site(FLOWER_BASIC_AUTH=login))
    assert re.search(r"vibey: FLOWER_BASIC_AUTH .* is not user:password", said)
    assert "secret" not in said


@pytest.mark.parametrize("login", [{"basic_auth": ["a:b"]}, {"auth": "a@example.com"}])
def test_with_a_login_any_address_will_do(login: dict[str, Any]) -> None:
    """Where Flower asks who you are, where it listens is the operator's choice."""
    from vibey.flower.seam import refuse_open

    options = {"basic_auth": None, "auth": "", "unix_socket": "", "address": "0.0.0.0"}  # noqa: S104  that is the point
    refuse_open(SimpleNamespace(**(options | login)))
    with pytest.raises(SystemExit):
        refuse_open(SimpleNamespace(**options))
    refuse_open(SimpleNamespace(**(options | {"unix_socket": "/run/flower"})))


def test_a_flower_with_another_navigation_is_told_at_the_start() -> None:
    """A version of Flower whose navigation our entries cannot be put into does not quietly come without them."""
    from vibey.flower.seam import with_tabs

    assert with_tabs('<nav><ul class="app-nav navbar-nav"><li>').index("tabs.html") > 0
    with pytest.raises(SystemExit, match="navigation"):
        with_tabs("<nav>another</nav>")


def test_without_a_login_a_foreign_name_for_this_machine_is_refused(make_site: Callable[..., Site]) -> None:
    """A site that lets its own name lead to 127.0.0.1 cannot read pages or streams through a visitor's browser."""
    site = make_site().start()
    for path in OURS:
        answer = site.get(path, Host="evil.example")
        assert answer.status == 403, path
        assert "localhost" in answer.page.text
    assert site.get("/", Host="localhost:5555").status == 200
    assert site.get("/", Host="[::1]:5555").status == 200


def test_a_login_is_asked_for_by_every_page_and_stream(make_site: Callable[..., Site]) -> None:
    """Without the right login nothing of ours is shown; with it everything is, by any name."""
    site = make_site(FLOWER_BASIC_AUTH="alice:se:cret").start()
    wrong = f"Basic {b64encode(b'alice:wrong').decode()}"
    for path in OURS:
        assert site.get(path).status == 401, path
        assert site.get(path, Authorization=wrong).status == 401, path
    assert site.get("/queue", Authorization=LOGIN, Host="flower.example").status == 200
    assert "Pause" not in site.get("/", Authorization=LOGIN).page.text


def test_actions_are_off_unless_the_operator_asks(make_site: Callable[..., Site]) -> None:
    """A login alone allows no action, and neither does the operator's wish alone."""
    with_login = make_site(FLOWER_BASIC_AUTH="alice:se:cret").start()
    form, cookie = _form(with_login)
    headers = {"Authorization": LOGIN, "Origin": with_login.origin, "Cookie": cookie}
    assert with_login.post("/engine/near/pause", form, **headers).status == 403
    with_login.close()
    wished = make_site(FLOWER_VIBEY_ACTIONS="true").start()
    assert "Pause" not in wished.get("/").page.text
    form, cookie = _form(wished)
    assert wished.post("/engine/near/pause", form, Origin=wished.origin, Cookie=cookie).status == 403
    assert wished.vibey("engines", "--json").json["engines"][0]["paused"] is False


def test_only_a_page_of_ours_can_ask_for_an_action(make_site: Callable[..., Site]) -> None:
    """No token, another's token, another origin, another site, or no word of where from: refused, nothing done."""
    site = make_site(**OPENLY).start()
    form, cookie = _form(site)
    good = {"Authorization": LOGIN, "Origin": site.origin, "Cookie": cookie}
    forged: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, good),
        ({"_xsrf": "x" * 32}, good),
        (form, {**good, "Cookie": ""}),
        (form, {**good, "Origin": "http://evil.example"}),
        (form, {**good, "Origin": "null"}),
        (form, {**good, "Origin": "http://[::1"}),
        (form, {**good, "Sec-Fetch-Site": "cross-site"}),
        (form, {**good, "Sec-Fetch-Site": "same-site"}),
        (form, {name: value for name, value in good.items() if name != "Origin"}),
    ]
    for sent, headers in forged:
        assert site.post("/engine/near/pause", sent, **headers).status == 403, (sent, headers)
    assert site.post("/engine/near/pause", form, **{**good, "Authorization": ""}).status == 401
    assert site.get("/engine/near/pause", Authorization=LOGIN).status == 405
    assert site.vibey("engines", "--json").json["engines"][0]["paused"] is False


def test_actions_do_what_commands_do_and_the_ledger_says_who(make_site: Callable[..., Site]) -> None:
    """Pause, resume, reset and cancel work, lead back to the page, and name the person."""
    site = make_site(**OPENLY).start()
    (job,) = site.bench.enqueue(1)
    form, cookie = _form(site)
    headers = {"Authorization": LOGIN, "Origin": site.origin, "Cookie": cookie}

    def act(path: str) -> None:
        answer = site.post(path, form, **headers)
        assert (answer.status, path) == (303, path)
        done = site.get(answer.headers["Location"], Authorization=LOGIN)
        assert done.status == 200
        assert 'class="notice"' in done.text

    act("/engine/near/pause")
    assert "Resume" in site.get("/", Authorization=LOGIN).page.text
    assert site.vibey("engines", "--json").json["engines"][0]["paused"] is True
    act("/engine/near/resume")
    act("/engine/bought/reset")
    act(f"/job/{job}/cancel")
    assert site.vibey("job", job, "--json").json["state"] == "cancelled"
    told = site.bench.rows(
        "select kind, engine, data ->> 'by' from ledger "
        "where data ? 'by' and kind <> 'ConfigurationApplied' order by id"
    )
    assert told == [
        ("EngineChanged", "near", "flower:alice"),
        ("EngineChanged", "near", "flower:alice"),
        ("CircuitChanged", "bought", "flower:alice"),
        ("CancelRequested", None, "flower:alice"),
    ]
    again = site.post(f"/job/{job}/cancel", form, **headers)
    assert "already been cancelled" in again.page.text
    assert again.status == 409
    assert site.post("/engine/none/pause", form, **headers).status == 404


def test_the_command_line_names_its_user(make_site: Callable[..., Site]) -> None:
    """What is asked on the command line is on the ledger with whose process asked."""
    site = make_site()
    site.vibey("engine", "pause", "near")
    (by,) = site.bench.rows("select data ->> 'by' from ledger where kind = 'EngineChanged'")[0]
    assert re.fullmatch(r".+@.+", str(by))


def test_viewers_of_one_page_share_one_reading(make_site: Callable[..., Site]) -> None:
    """Twenty open pages cost the database what one does: no two readings of a page are less than a second apart."""
    site = make_site().start()
    streams = [site.stream("/live/engines") for _ in range(20)]
    try:
        told = [_instants(stream, 3) for stream in streams]
    finally:
        for stream in streams:
            stream.close()
    instants = sorted({datetime.fromisoformat(instant) for seen in told for instant in seen})
    # Less a little, for a second by the process's clock against one by the database's.
    assert min((later - earlier).total_seconds() for earlier, later in pairwise(instants)) > 0.95


def _instants(stream: Any, count: int) -> set[str]:
    """So many different instants that a stream tells, however often it repeats one."""
    seen: set[str] = set()
    while len(seen) < count:
        seen.add(stream.next("page", "as_of")[1]["as_of"])
    return seen


def _form(site: Site) -> tuple[dict[str, str], str]:
    """A page's own token, in the form and in the cookie, as a browser has them."""
    answer = site.get("/", Authorization=LOGIN)
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    assert "samesite=strict" in answer.headers["Set-Cookie"].lower()
    return {"_xsrf": cookie.partition("=")[2]}, cookie
