"""Every page of Flower's process: refused to foreign names, and without the login where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from contextlib import closing
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING

import pytest
from tornado.web import create_signed_value

from tests.support.site import ROOT, Site
from vibey.services.programs import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
FILES = ("/static/css/flower.css", "/router/static/router.css")
# What can be looked at: our pages and Flower's own, with what they load.
PAGES = ("/", "/job/1", "/live/queue", "/workers", "/workers?json=1", "/tasks", "/broker", *FILES)
UNGUARDED = ("/metrics", "/healthcheck")
LOGIN = f"Basic {b64encode(b'alice:se:cret').decode()}"
EVIL = {"Host": "evil.example:5555"}
SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "eA=="}


@pytest.fixture(scope="module")
def addresses() -> tuple[str, ...]:
    """An address for each rule that Flower's application really has, and some files."""
    command = [sys.executable, "-m", "tests.support.flower_rules"]
    found: list[str] = json.loads(
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120).stdout
    )
    assert set(found) > {"/", "/jobs", "/job/1", "/metrics", "/static/x", "/favicon.ico", "/api/workers", "/worker/x"}
    return (*found, *FILES)


@pytest.fixture
def make_site(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """A function that makes Flower on this test's installation; not started yet."""
    made: list[Site] = []

    def make(**given: object) -> Site:
        made.append(Site(database_url, redis_url, tmp_path / "site", **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for site in made:
        site.close()


def answers(site: Site, paths: tuple[str, ...], **headers: str) -> dict[int, set[str]]:
    """Which requests are answered how, asked by every method; an answer of 200 ends with its headers."""
    found: dict[int, set[str]] = {}
    for path in paths:
        for method in METHODS:
            found.setdefault(site.request(method, path, headers).status, set()).add(f"{method} {path}")
        status = site.request("GET", path, {**headers, **SOCKET}).status
        found.setdefault(status, set()).add(f"socket {path}")
    return found


def test_without_a_login_no_page_is_given_to_a_foreign_name(
    make_site: Callable[..., Site], addresses: tuple[str, ...]
) -> None:
    """A site that lets its own name lead to 127.0.0.1 reads nothing of Flower's, by any method."""
    site = make_site().start()
    assert answers(site, addresses, **EVIL).keys() == {403}
    for path in (*PAGES[:2], *PAGES[3:], *UNGUARDED):
        assert site.get(path).status in {200, 404 if path == "/job/1" else 200}, path
    assert site.get("/router/login").headers["Location"] == "/engines"
    for header in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert site.post("/tasks/datatable", **header).status == 403


@pytest.mark.parametrize("prefix", ["", "/flower"])
def test_a_basic_login_is_asked_for_by_every_page(
    make_site: Callable[..., Site], addresses: tuple[str, ...], prefix: str
) -> None:
    """Flower's numbers and its sign of life too, unless the operator opens these, and then to names of this machine."""
    variables = {"FLOWER_BASIC_AUTH": "alice:se:cret"}
    arguments = (f"--url_prefix={prefix.strip('/')}",) if prefix else ()
    site = make_site(environment=variables, arguments=arguments, open_pages=("metrics",))
    site.prefix = prefix
    site.start()
    wrong = b64encode("alice:sé".encode()).decode()
    paths = tuple(path for path in addresses if path != "/metrics")
    assert answers(site, paths).keys() == {401}
    assert answers(site, PAGES, **EVIL, Authorization=f"Basic {wrong}").keys() == {401}
    for headers in ({}, {"Authorization": f"Basic {wrong}"}, {"Authorization": "Basic eDp5"}):
        assert site.get("/", **headers).headers["Www-Authenticate"] == 'Basic realm="flower"'
    assert (site.get("/metrics").status, site.get("/metrics", **EVIL).status) == (200, 403)
    for path in ("/workers", "/healthcheck", "/metrics", *FILES):
        assert site.get(path, Authorization=LOGIN, **EVIL).status == 200, path


def test_a_login_elsewhere_is_begun_on_every_page(make_site: Callable[..., Site], addresses: tuple[str, ...]) -> None:
    """Browsers are led to where Flower's OAuth2 login begins, alone reachable without it; requests to act are not."""
    variables = {
        "FLOWER_AUTH": ".*@example.com",
        "FLOWER_AUTH_PROVIDER": "flower.views.auth.GithubLoginHandler",
        "FLOWER_OAUTH2_KEY": "key",
        "FLOWER_OAUTH2_SECRET": "secret",
        "FLOWER_OAUTH2_REDIRECT_URI": "http://flower.example/login",
        "FLOWER_COOKIE_SECRET": "cookies",
    }
    site = make_site(environment=variables).start()
    found = answers(site, tuple(path for path in addresses if path != "/login/"))
    assert found.keys() == {302, 401}
    assert {each.split()[0] for each in found[302]} == {"GET", "HEAD", "OPTIONS", "socket"}
    assert site.get("/tasks?x=1").headers["Location"] == "/login?next=%2Ftasks%3Fx%3D1"
    assert site.get("/login?next=%2Ftasks", **EVIL).headers["Location"].startswith("https://github.com/login/oauth/")
    for address, status in (("a@example.com", 200), ("a@example.org", 302)):
        value = create_signed_value("cookies", "user", address).decode()
        assert site.get("/workers", Cookie=f"user={value}").status == status


def test_the_link_logs_in_to_every_page(make_site: Callable[..., Site], addresses: tuple[str, ...]) -> None:
    """All that is not opened asks for its token, which becomes a cookie that is not the token, and is not logged."""
    site = make_site(login="always", open_pages=("metrics", "healthcheck"), arguments=("--debug",)).start()
    paths = tuple(path for path in addresses if path not in UNGUARDED)
    assert answers(site, paths).keys() == {401}
    assert answers(site, addresses, **EVIL).keys() == {403}
    assert [site.get(path).status for path in UNGUARDED] == [200, 200]
    assert "vibey pages" in site.get("/workers").page.words
    told = site.vibey("pages", "--json").json
    path, _, token = told["link"].removeprefix("http://127.0.0.1:5555").partition("?token=")
    for shown in ("", "?token=", "?token=x", f"?token={token}x", f"?token={token}&token=x", f"?x={token}"):
        assert site.get(path + shown).status == 401, shown
    answer = site.get(f"{path}?token={token}&next=http://evil.example")
    assert (answer.status, answer.headers["Refresh"]) == (200, "0; url=/engines")
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
    assert token not in f"{answer.text} {answer.headers}"
    sent = f"{cookie.key}={cookie.coded_value}"
    for page in PAGES:
        if not page.startswith(("/job", "/live")):
            assert site.get(page, Cookie=sent).status == 200, page
    with closing(site.stream("/live/queue", Cookie=sent)) as stream:
        assert stream.next("page")
    assert site.get("/workers", Authorization=f"Bearer {token}", **EVIL).status == 200
    assert site.post("/tasks/datatable", Cookie=sent, Sec_Fetch_Site="same-site").status == 403
    assert site.get("/api/workers", Cookie=sent).status == 401
    forged = create_signed_value("x" * 43, cookie.key, "in").decode()
    aged = create_signed_value(token, cookie.key, "in", clock=lambda: 1_500_000_000).decode()
    for bad in (forged, aged, "in", "", token, cookie.coded_value[:-1]):
        assert site.get("/workers", Cookie=f"{cookie.key}={bad}").status == 401, bad
    logged = site.log.read_text(encoding="utf-8")
    assert "vibey pages prints a link" in logged
    assert token not in logged
    assert site.get(f"/workers?token={token}").status == 401
    site.stop()
    site.start()
    assert site.get("/workers", Cookie=sent).status == 200
    site.stop()
    Layout(site.folder / "data").flower_token.unlink()
    site.start()
    assert site.get("/workers", Cookie=sent).status == 401


def test_actions_of_whoever_the_link_logged_in(make_site: Callable[..., Site]) -> None:
    """The link is a login as any other; the ledger names the user whose Flower it is."""
    site = make_site(login="always", environment={"FLOWER_VIBEY_ACTIONS": "true"}).start()
    token = site.vibey("pages", "--json").json["link"].partition("=")[2]
    bearer = {"Authorization": f"Bearer {token}"}
    cookie = site.get("/", **bearer).headers["Set-Cookie"].partition(";")[0]
    form = {"_xsrf": cookie.partition("=")[2]}
    assert site.post("/engine/near/pause", form, Cookie=cookie, Origin=site.origin).status == 401
    assert site.post("/engine/near/pause", form, Cookie=cookie, Origin=site.origin, **bearer).status == 303
    told = site.bench.rows("select data ->> 'by' from ledger where kind = 'EngineChanged'")
    site.vibey("engine", "resume", "near")
    by = site.bench.value("select data ->> 'by' from ledger where kind = 'EngineChanged' order by id desc limit 1")
    assert told == [(f"flower:{str(by).rpartition('@')[0]}",)]


def test_a_token_that_others_could_read_keeps_flower_from_starting(make_site: Callable[..., Site]) -> None:
    """The words name the file and the remedy."""
    site = make_site(login="always")
    token = Layout(site.folder / "data").flower_token
    token.parent.mkdir(parents=True)
    token.write_text("x" * 43, encoding="ascii")
    token.chmod(0o644)
    with pytest.raises(AssertionError, match=r"flower\.token is not a file of this user's alone"):
        site.start()
