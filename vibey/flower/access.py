"""Access: who may act, and what a browser may do with a page of ours. Who may look at all, `vibey.flower.guard` says.

Acting wants three things. The operator has said so, by `FLOWER_VIBEY_ACTIONS=true`; Flower has a login; and the request
shows that a page of ours sent it: it comes from this origin by the browser's own word, and carries the token that
tornado keeps in a cookie, which Flower itself does not ask of basic logins. Whoever acts is named on the ledger.

Our pages carry no script or style within, and say so: nothing that a job's payload, name or output holds can run, even
if some escaping were forgotten.
"""

from __future__ import annotations

import os
from base64 import b64decode
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flower.utils import strtobool
from flower.views import BaseHandler
from tornado.web import HTTPError, RequestHandler
from typing_extensions import override

from vibey.domain.errors import (
    Contended,
    InvalidInput,
    Refused,
    SchemaOutdated,
    ServiceUnavailable,
    UnknownName,
    VibeyError,
)
from vibey.services.owner import owner

if TYPE_CHECKING:
    from vibey.flower.desk import Desk

ACTIONS_VARIABLE = "FLOWER_VIBEY_ACTIONS"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PLAIN_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
STATUSES: tuple[tuple[type[VibeyError], int], ...] = (
    (UnknownName, 404),
    (Refused, 409),
    (InvalidInput, 400),
    (ServiceUnavailable, 503),
    (SchemaOutdated, 503),
    (Contended, 503),
)
LATE = "the database has not answered for a while; vibey doctor says more"


def has_own_login(options: Any) -> bool:  # noqa: ANN401  options are attributes made at run time
    """Whether the operator has given Flower a login of its own kinds, basic or OAuth2."""
    return bool(options.basic_auth or options.auth)


def may_act(application: Any) -> bool:  # noqa: ANN401  Flower is untyped
    """Whether the pages offer actions at all."""
    return bool(application.settings["vibey_guard"].has_login) and actions_wished()


def actions_wished() -> bool:
    """Whether the operator allows actions; ValueError for a word that is neither yes nor no."""
    return bool(strtobool(os.environ.get(ACTIONS_VARIABLE) or "false"))


def is_from(origin: str, host: str) -> bool:
    """Whether an `Origin` is the very host the request went to."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def status_of(error: Exception) -> int:
    """The HTTP status an error of ours is told with."""
    if isinstance(error, TimeoutError):
        return 503
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def words_of(error: Exception) -> str:
    """What a person reads of an error."""
    return LATE if isinstance(error, TimeoutError) else str(error)


class Guarded(BaseHandler):  # type: ignore[misc] # Flower is untyped
    """What all handlers of ours have in common."""

    @property
    def desk(self) -> Desk:
        """The reader of this process."""
        desk: Desk = self.application.settings["vibey"]
        return desk

    @override
    def set_default_headers(self) -> None:
        """Keep what we send from being run, framed, cached or told to others; share nothing with other origins."""
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")

    def set_plain_style(self) -> None:
        """Allow the style that a page without files of ours carries in itself; it shows nothing of a job."""
        self.set_header("Content-Security-Policy", PLAIN_POLICY)

    @override
    def prepare(self) -> None:
        """Have the reader ready."""
        self.desk.use(self.application.capp)

    @override
    def check_xsrf_cookie(self) -> None:
        """Let a request that changes something come only from a page of ours: it says from where, and shows the token.

        One that says it is from elsewhere does not get here.
        """
        if "Sec-Fetch-Site" not in self.request.headers and "Origin" not in self.request.headers:
            raise HTTPError(403, "this does not say where it came from")
        RequestHandler.check_xsrf_cookie(self)

    @property
    def person(self) -> str:
        """Who is logged in, as the ledger has it.

        The name before the colon of a basic login, an e-mail address, or, by a link, the user whose Flower this is: no
        other could read the token.
        """
        options = self.application.options
        if not has_own_login(options):
            return owner().rpartition("@")[0]
        if options.auth:
            return str(self.current_user)
        header = self.request.headers.get("Authorization", "")
        return b64decode(header.partition(" ")[2]).decode("utf-8", "replace").partition(":")[0]

    @override
    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Keep what a person is told by the page itself out of the log."""
        if not isinstance(value, VibeyError | TimeoutError):
            super().log_exception(typ, value, tb)

    @override
    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Tell it in a page like the others."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else None
        words = "something went wrong here; Flower's log says more"
        if isinstance(error, VibeyError | TimeoutError):
            status_code, words = status_of(error), words_of(error)
            self.set_status(status_code)
        elif isinstance(error, HTTPError):
            words = str(error.log_message or error.reason or "there is no such page")
        self.render("router/trouble.html", words=words, status=status_code, active="", title="Not shown")
