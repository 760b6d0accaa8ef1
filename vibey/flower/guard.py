"""Guard: what a request must show before any page of Flower's process is chosen for it.

It stands in Flower's application before the one function through which every request passes, whatever handler it is
for: ours, Flower's own pages, its API, static files, errors, and what a later version may add. There is no list of
pages that are protected; only what is open is listed, and that by its whole path.

Without a login a page is given only to a request that names this machine. With one, every request has to be logged in,
and may then use any name: a proxy's, for one. Open without a login are the page where an operator's own login begins,
and what `flower_open` names, to requests that name this machine.

The login of a link is a token (`vibey.services.login`). The link brings it once, and the browser gets a cookie that the
token signs, kept from scripts and from other sites' requests; a program shows `Authorization: Bearer TOKEN`. A request
that changes something has to come from a page of the same origin, as far as the browser says where it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from flower.views import BaseHandler
from tornado.web import HTTPError, create_signed_value, decode_signed_value, url
from typing_extensions import override

from vibey.flower.access import Guarded, has_own_login, is_from
from vibey.services.programs import FLOWER_LOGIN_PATH
from vibey.services.web_guard import has_bearer, is_here, is_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from tornado.httputil import HTTPServerRequest

SESSION_DAYS = 30
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Where an OAuth2 login begins and ends; Flower has no others.
OWN_LOGIN_PATHS = frozenset({"/login", "/login/"})

NOT_HERE = (
    "Without a login these pages answer only to localhost, an address or the name of this machine. Use one of them, or "
    "give Flower a login."
)
NO_LINK = "These pages ask for a login. This command, on the machine that serves them, prints a link that logs in:"
NO_LOGIN = "These pages ask for a login."
ELSEWHERE = "This came from another site or origin."


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of one Flower process. `options` are Flower's; `token`, if any, is what the login's link carries."""

    options: Any = field(repr=False)
    token: str = field(default="", repr=False)
    open_pages: frozenset[str] = frozenset()

    @property
    def has_login(self) -> bool:
        """Whether a login is asked for at all."""
        return bool(self.token) or has_own_login(self.options)

    @property
    def prefix(self) -> str:
        """What all paths begin with, empty or without a slash at its end."""
        named = (self.options.url_prefix or "").strip("/")
        return f"/{named}" if named else ""

    def refusal(self, application: Any, request: HTTPServerRequest) -> tuple[int, str] | None:  # noqa: ANN401
        """The status and words a request is refused with, 302 for an OAuth2 login; None for one that may pass."""
        found = self._refused_for_login(application, request)
        if found is None and request.method not in SAFE_METHODS and is_from_elsewhere(request):
            return 403, ELSEWHERE
        return found

    def _refused_for_login(self, application: Any, request: HTTPServerRequest) -> tuple[int, str] | None:  # noqa: ANN401
        here = is_here(request.host)
        if not self.has_login:
            return None if here else (403, NOT_HERE)
        lacking = self._lacking_token(request) if self.token else self._lacking_own_login(application, request)
        if lacking is None or not self._is_one_of(request, self.open_pages):
            return lacking
        return None if here else (403, NOT_HERE)

    def _is_one_of(self, request: HTTPServerRequest, paths: frozenset[str]) -> bool:
        return any(request.path == self.prefix + path for path in paths)

    def _lacking_own_login(self, application: Any, request: HTTPServerRequest) -> tuple[int, str] | None:  # noqa: ANN401
        """Flower's own login, as Flower itself judges it."""
        try:
            user = BaseHandler(application, request).current_user
        except (HTTPError, TypeError):  # TypeError: Flower compares a login only in ASCII
            return 401, NO_LOGIN
        return None if user or self._is_one_of(request, OWN_LOGIN_PATHS) else (302, NO_LOGIN)

    def _lacking_token(self, request: HTTPServerRequest) -> tuple[int, str] | None:
        if self._shows_token(request):
            return None
        return (401, NO_LINK) if is_here(request.host) else (403, NOT_HERE)

    def _shows_token(self, request: HTTPServerRequest) -> bool:
        if has_bearer(request.headers.get("Authorization", ""), self.token):
            return True
        if self._is_one_of(request, frozenset({FLOWER_LOGIN_PATH})):
            shown = request.query_arguments.get("token", [b""])[-1]
            if is_token(shown.decode("utf-8", "replace"), self.token):
                return True
        cookie = request.cookies.get(self.cookie)
        value = cookie.value if cookie is not None else None
        return decode_signed_value(self.token, self.cookie, value, max_age_days=SESSION_DAYS) is not None

    @property
    def cookie(self) -> str:
        """The name of the login's cookie, of its own for each token: browsers do not keep ports apart."""
        return f"vibey_{blake2b(self.token.encode(), digest_size=8).hexdigest()}"

    def session(self) -> str:
        """A value of that cookie."""
        return create_signed_value(self.token, self.cookie, "in").decode()


def guarded(find_handler: Callable[..., Any]) -> Callable[..., Any]:
    """An application's `find_handler` that chooses the refusal for a request that may not pass."""

    def find(application: Any, request: HTTPServerRequest, **given: Any) -> Any:  # noqa: ANN401  Flower is untyped
        guard: Guard = application.settings["vibey_guard"]
        refusal = guard.refusal(application, request)
        if request.path == guard.prefix + FLOWER_LOGIN_PATH:
            # Whatever is logged of a request is logged by its address.
            request.uri, request.query = request.path, ""
        if refusal is None:
            return find_handler(application, request, **given)
        status, words = refusal
        return application.get_handler_delegate(request, Refusal, {"refused_with": status, "words": words})

    return find


def is_from_elsewhere(request: HTTPServerRequest) -> bool:
    """Whether a browser says that a request was sent by another site, or by a page of another origin."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    return (site is not None and site != "same-origin") or (origin is not None and not is_from(origin, request.host))


class Refusal(Guarded):
    """The answer to a request that may not pass, by whatever method."""

    @override
    def initialize(self, refused_with: int, words: str) -> None:
        """Take what is answered."""
        self.refused_with, self.words = refused_with, words

    @override
    def check_xsrf_cookie(self) -> None:
        """Nothing is done that could be forged."""

    @override
    def prepare(self) -> None:
        """Answer; where an OAuth2 login is needed, lead a browser to where it begins, as Flower does."""
        if self.refused_with == 302 and self.request.method in SAFE_METHODS:
            self.redirect(f"{self.get_login_url()}?{urlencode({'next': self.request.uri})}")
            return
        self.set_status(401 if self.refused_with == 302 else self.refused_with)
        if self.refused_with == 401:
            is_basic = bool(self.application.options.basic_auth)
            self.set_header("WWW-Authenticate", 'Basic realm="flower"' if is_basic else "Bearer")
        # A template asks who it is, which was judged already.
        self.current_user = None
        command = "vibey pages" if self.words == NO_LINK else ""
        self.set_plain_style()
        title = "Not shown" if self.refused_with == 403 else "Log in first"
        words = {"title": title, "words": self.words, "command": command, "start": ""}
        self.finish(self.render_string("router/plain.html", **words))

    @override
    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say no more than the status does: of a method that does not exist, for one."""
        self.finish()


class LogIn(Guarded):
    """Where the login's link leads: only a request that shows the token gets here."""

    def get(self) -> None:
        """Give the browser its cookie, and lead it to the pages.

        Not by a redirect: of one that began on another site, such as a terminal in the browser, a cookie that is kept
        from other sites would not be sent along.
        """
        guard: Guard = self.application.settings["vibey_guard"]
        start = self.reverse_url("router-engines")
        if not guard.token:
            self.redirect(start, status=303)
            return
        self.set_cookie(
            guard.cookie,
            guard.session(),
            expires_days=SESSION_DAYS,
            path=guard.prefix or "/",
            httponly=True,
            samesite="Strict",
            secure=self.request.protocol == "https",
        )
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Refresh", f"0; url={start}")
        self.set_plain_style()
        words = "This browser is logged in."
        self.finish(self.render_string("router/plain.html", title="Logged in", words=words, command="", start=start))


def handlers() -> list[url]:
    """The entry of the login."""
    return [url(FLOWER_LOGIN_PATH, LogIn, name="router-login")]
