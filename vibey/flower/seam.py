"""Seam: how the router's pages come into Flower.

`celery -A vibey flower` runs Flower's own command, which offers no hook for pages but does two things before it makes
its application: it runs its configuration file, which is Python, and it hands over the module-level list
`flower.urls.handlers` and dictionary `flower.urls.settings`. Our configuration file (`vibey.flower.flowerconfig`) calls
`install`, which adds to both. So the pages are Flower's own handlers in Flower's own process, with its options, login,
prefix, look and navigation, and nothing of Flower is replaced: a subclass would have needed a command of its own, with
a copy of Flower's, and people would have had to know to start that one. One function of its application is wrapped,
through which every request passes to its handler: the guard stands there.

What is added: handlers of the pages, before Flower's, so that `/` is ours and its worker list stays at `/workers`; a
template loader that knows our templates beside Flower's, and puts our entries into its navigation; the `Desk` that
reads. `vibey.worker.application` names the configuration file in Flower's variable `FLOWER_CONF`, unless there is a
`flowerconfig.py` in the working folder; `--conf` names another. One of your own keeps the pages by importing from ours.

What is refused at the start, once every option is known: an address that others can reach without a login, and a basic
login that is empty. What the guard asks for is settled then, too. tornado calls back when all options are parsed;
nothing listens before. Flower's API never runs without a login: the variable that would open it is taken away.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from flower import urls
from flower.app import Flower
from flower.options import default_options
from tornado import template
from tornado.web import StaticFileHandler, url
from typing_extensions import override

from vibey.domain.errors import VibeyError
from vibey.flower import actions, guard, logtail, pages
from vibey.flower.access import ACTIONS_VARIABLE, actions_wished, has_own_login
from vibey.flower.desk import Desk
from vibey.services.login import asks_by_link, make_token
from vibey.services.programs import Layout
from vibey.services.web_guard import is_open
from vibey.settings import load

HERE = Path(__file__).parent
FLOWER_TEMPLATES = Path(urls.settings["template_path"])
NAVIGATION = "navbar.html"
TABS_BEFORE = '<ul class="app-nav navbar-nav">'


class Templates(template.Loader):
    """Our templates, else Flower's; Flower's navigation with our entries in it."""

    def __init__(self) -> None:
        """Read templates when they are first wanted."""
        super().__init__(str(HERE / "templates"), autoescape="xhtml_escape")

    @override
    def _create_template(self, name: str) -> template.Template:
        own = HERE / "templates" / name
        text = (own if own.exists() else FLOWER_TEMPLATES / name).read_text(encoding="utf-8")
        return template.Template(with_tabs(text) if name == NAVIGATION else text, name=name, loader=self)


def with_tabs(navigation: str) -> str:
    """Flower's navigation with our entries first, and a word below about what its own pages count."""
    before, found, after = navigation.partition(TABS_BEFORE)
    if not found:
        raise SystemExit("vibey: this version of Flower has another navigation than its pages can be entered in")
    tabs, word = '{% include "router/tabs.html" %}', '{% include "router/worker_level.html" %}'
    return f"{before}{found}{tabs}{after}{word}"


def install() -> None:
    """Add the pages to what Flower makes its application of, and watch its options; again does nothing."""
    if "vibey" in urls.settings:
        return
    default_options.add_parse_callback(partial(_settle, default_options))
    Flower.find_handler = guard.guarded(Flower.find_handler)
    urls.settings.update(
        vibey=Desk(),
        router_static=str(HERE / "static"),
        template_loader=Templates(),
        xsrf_cookie_kwargs={"samesite": "Strict"},
        ui_methods={"router_tabs": pages.tabs, "router_static": pages.static_address},
    )
    static = url(r"/router/static/(.*)", StaticFileHandler, {"path": str(HERE / "static")}, name="router-static")
    urls.handlers[:0] = [*pages.handlers(), *logtail.handlers(), *actions.handlers(), *guard.handlers(), static]


def _settle(options: Any) -> None:  # noqa: ANN401  options are attributes made at run time
    """Settle what the guard asks for, once every option is known; end the program where that is too little."""
    refuse_open(options)
    try:
        settings = load()
        asks = not has_own_login(options) and asks_by_link(settings)
        token = make_token(Layout(settings.data_dir)) if asks else ""
    except VibeyError as error:
        raise SystemExit(f"vibey: {error}") from None
    if token:
        logging.getLogger("flower.vibey").info("the pages ask for a login; vibey pages prints a link that logs in")
    opened = frozenset(f"/{name}" for name in settings.services.flower_open)
    urls.settings["vibey_guard"] = guard.Guard(options, token, opened)


def refuse_open(options: Any) -> None:  # noqa: ANN401  options are attributes made at run time
    """End the program if others could reach Flower, or anybody its API, without a login of the operator's."""
    try:
        actions_wished()
    except ValueError as error:
        raise SystemExit(f"vibey: {ACTIONS_VARIABLE}: {error}; say true or false") from None
    if not all(is_credential(each) for each in options.basic_auth or ()):
        raise SystemExit(
            "vibey: FLOWER_BASIC_AUTH (--basic-auth) is not user:password, both not empty and without a comma; "
            "an empty login would let everybody in: correct it, or leave it out"
        )
    if has_own_login(options):
        return
    remedy = "keep it on 127.0.0.1, or set FLOWER_BASIC_AUTH=user:password"
    if not options.unix_socket and is_open(options.address):
        raise SystemExit(f"vibey: Flower would listen on {options.address!r} without a login; {remedy}")


def is_credential(word: str) -> bool:
    """Whether a basic login asks for something: Flower takes any text, the empty one of an unset variable too."""
    user, _, password = word.partition(":")
    return bool(user and password)
