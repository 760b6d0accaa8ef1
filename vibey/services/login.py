"""Login: whether this machine's Flower asks for one, and the token that its link carries.

An operator's own login comes first: `FLOWER_BASIC_AUTH` or `FLOWER_AUTH`. Without it, `flower_login` decides; by
default Flower asks wherever /etc/passwd has another account, because its port on loopback is open to all of them. It
then takes a token, which lies in a file that only the installation's own user can read, and stays the same until that
file is removed. The link with the token lets a browser in (`vibey.flower.guard`).
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from vibey.domain.accounts import other_accounts
from vibey.domain.errors import Refused
from vibey.engines.processes import environment_of
from vibey.services import supervised
from vibey.services.programs import FLOWER_LOGIN_PATH, LOOPBACK, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.settings import Settings

Login = Literal["none", "link", "own"]

ACCOUNTS_FILE = Path("/etc/passwd")
# What follows the address in words, by what the pages ask for.
IN_WORDS: Mapping[Login, str] = {
    "none": "",
    "link": ", which asks for a login; vibey pages prints a link that logs in",
    "own": ", which asks for the login that it was started with",
}
OWN_LOGIN = ("FLOWER_BASIC_AUTH", "FLOWER_AUTH")
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the pages are and what they ask for: nothing, the token of a link, or the operator's own login.

    `link` lets a browser in; None where there is no such link, or where Flower has not made its token yet.
    """

    address: str
    login: Login
    link: str | None = field(default=None, repr=False)

    @property
    def words(self) -> str:
        """The address and what is asked for, without the token."""
        return self.address + IN_WORDS[self.login]


def accounts_here() -> tuple[str, ...]:
    """The accounts of this machine besides the one this process has, and root."""
    try:
        text = ACCOUNTS_FILE.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    return other_accounts(text, os.geteuid())


def asks_by_link(settings: Settings) -> bool:
    """Whether Flower asks for the token of a link where the operator has given it no login."""
    choice = settings.services.flower_login
    return choice == "always" or (choice == "auto" and bool(accounts_here()))


def pages(settings: Settings, environ: Mapping[str, str]) -> Pages:
    """The pages of this machine's Flower, started by `vibey up` or else in this environment."""
    layout = Layout(settings.data_dir)
    address = f"http://{LOOPBACK}:{settings.services.flower_port}"
    given = _environment_of_programs(layout)
    if any((environ if given is None else given).get(name) for name in OWN_LOGIN):
        return Pages(address, "own")
    if not asks_by_link(settings):
        return Pages(address, "none")
    token = read_token(layout)
    return Pages(address, "link", token and f"{address}{FLOWER_LOGIN_PATH}?token={token}")


def running_pages(settings: Settings) -> Pages | None:
    """The pages of the Flower that `vibey up` started here; None where there is none."""
    programs = supervised.processes(Layout(settings.data_dir))
    if not any(program.name == "flower" and program.pid for program in programs):
        return None
    return pages(settings, {})


def make_token(layout: Layout) -> str:
    """The token, made now if there is none."""
    token = read_token(layout)
    if token is not None:
        return token
    layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A file of this kind is its owner's alone from the first; and the name appears together with the whole text.
    with tempfile.NamedTemporaryFile("w", dir=layout.folder, prefix=f"{layout.flower_token.name}.") as draft:
        draft.write(secrets.token_urlsafe(TOKEN_BYTES))
        draft.flush()
        with suppress(FileExistsError):
            os.link(draft.name, layout.flower_token)
    made = read_token(layout)
    if made is None:
        raise Refused(f"{layout.flower_token} was removed while it was made", "try again")
    return made


def read_token(layout: Layout) -> str | None:
    """The token; None if there is none. Refused where others could have read or written it, or where it is no token."""
    path, remedy = layout.flower_token, "remove it; the next start of Flower makes another"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", remedy) from error
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(descriptor)
        is_own = found.st_uid == os.geteuid() or os.geteuid() == 0
        if not stat.S_ISREG(found.st_mode) or not is_own or found.st_mode & 0o077:
            raise Refused(f"{path} is not a file of this user's alone", remedy)
        token = file.read(TOKEN_BYTES * 4)
    if not _TOKEN.fullmatch(token):
        raise Refused(f"{path} holds no token", remedy)
    return token


def _environment_of_programs(layout: Layout) -> dict[str, str] | None:
    """The environment that the programs of `vibey up` were started with; None where none are."""
    process = supervised.supervisord(layout)
    if process is None:
        return None
    try:
        block = environment_of(process.pid)
    except (OSError, psutil.Error):
        return None
    pairs = (os.fsdecode(pair).partition("=") for pair in block.split(b"\0"))
    return {name: value for name, _, value in pairs}
