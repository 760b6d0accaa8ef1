"""The token of the login's link, and when Flower asks for it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from vibey.domain.errors import Refused
from vibey.services import login
from vibey.services.programs import Layout
from vibey.services.web_guard import has_bearer, is_here, is_token
from vibey.settings import Source, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.settings import Settings

ONE = "root:x:0:0::/root:/bin/bash\n"
TWO = f"{ONE}other:x:54321:54321::/home/other:/bin/bash\n"


def settings(folder: Path, **services: object) -> Settings:
    """Settings with this folder and these services."""
    return settings_of(Source(None, folder, {"services": {"data_dir": str(folder), **services}}), {})


@pytest.fixture
def accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that says what stands in /etc/passwd."""
    file = tmp_path / "passwd"
    monkeypatch.setattr(login, "ACCOUNTS_FILE", file)
    return lambda text: (file.write_text(text, encoding="utf-8"), None)[1]


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    """Many who make it at once get the same; no other file stays; and only its owner may read it."""
    layout = Layout(tmp_path)
    assert login.read_token(layout) is None
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: login.make_token(layout), range(16)))
    assert tokens == {login.read_token(layout)}
    assert [*layout.folder.iterdir()] == [layout.flower_token]
    assert stat.S_IMODE(layout.flower_token.stat().st_mode) == 0o600
    assert tokens != {login.make_token(Layout(tmp_path / "another"))}


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o666])
def test_a_token_that_others_could_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    """It may be known already."""
    layout = Layout(tmp_path)
    login.make_token(layout)
    layout.flower_token.chmod(mode)
    with pytest.raises(Refused, match="not a file of this user's alone"):
        login.make_token(layout)


@pytest.mark.parametrize("text", ["", "short", "x" * 42, "x" * 44, "é" * 43, "x" * 42 + "\n"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    """An empty token, above all, would let everybody in."""
    layout = Layout(tmp_path)
    login.make_token(layout)
    layout.flower_token.write_text(text, encoding="utf-8")
    with pytest.raises(Refused, match="holds no token"):
        login.read_token(layout)


def test_a_link_or_a_pipe_in_the_place_of_the_token_is_refused(tmp_path: Path) -> None:
    """Whatever it leads to; and nobody waits for a writer."""
    layout, other = Layout(tmp_path), Layout(tmp_path / "other")
    login.make_token(other)
    layout.folder.mkdir()
    layout.flower_token.symlink_to(other.flower_token)
    with pytest.raises(Refused, match="cannot be read"):
        login.make_token(layout)
    layout.flower_token.unlink()
    os.mkfifo(layout.flower_token, 0o600)
    with pytest.raises(Refused, match="not a file"):
        login.make_token(layout)


@pytest.mark.parametrize(
    ("choice", "text", "asks"),
    [
        ("auto", ONE, False),
        ("auto", TWO, True),
        ("never", TWO, False),
        ("always", ONE, True),
    ],
)
def test_when_the_pages_ask(
    accounts: Callable[[str], None], tmp_path: Path, choice: str, text: str, *, asks: bool
) -> None:
    """By default where there is another account; else as the operator says, whose own login comes first."""
    accounts(text)
    chosen = settings(tmp_path, flower_login=choice, flower_port=5599)
    found = login.pages(chosen, {})
    assert (found.login, found.link) == ("link" if asks else "none", None)
    own = login.pages(chosen, {"FLOWER_BASIC_AUTH": "alice:secret"})
    assert (own.login, own.link) == ("own", None)
    token = login.make_token(Layout(tmp_path))
    found = login.pages(chosen, {"FLOWER_BASIC_AUTH": ""})
    assert found.link == (f"http://127.0.0.1:5599/router/login?token={token}" if asks else None)
    assert token not in f"{found} {found.words}"


def test_a_machine_without_the_file_has_one_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some containers have none."""
    monkeypatch.setattr(login, "ACCOUNTS_FILE", tmp_path / "none")
    assert login.accounts_here() == ()


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "x.localhost",
        "127.0.0.1:5555",
        "[::1]:5555",
        "[::1]",
        "192.0.2.1:9464",
        os.uname()[1],
    ],
)
def test_names_of_this_machine(host: str) -> None:
    """Addresses, localhost, and the name the machine has."""
    assert is_here(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1,evil.example", "[::1",
     "xlocalhost", "127.0.0.1@evil.example", "localhost\\.evil.example", "127.1.evil", "[evil.example]"],
)  # fmt: skip
def test_names_that_anybody_could_have(host: str) -> None:
    """Whatever they resemble."""
    assert not is_here(host)


@pytest.mark.parametrize("shown", ["", "secre", "secrett", "Secret", "sécret", "secret\udcff"])
def test_only_the_token_is_the_token(shown: str) -> None:
    """And an Authorization header has to say that it is one."""
    assert not is_token(shown, "secret")
    assert not has_bearer(f"Bearer {shown}", "secret")
    assert not has_bearer("secret", "secret")
    assert has_bearer("Bearer secret", "secret")
