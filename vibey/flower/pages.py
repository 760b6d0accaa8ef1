"""Pages: each sheet as a whole page that needs no script, and as a stream that keeps an open one up to date.

A stream is server-sent events. `page` carries `as_of` and the new HTML of the part that changes, `as_of` only the
instant when there is nothing new, `trouble` why nothing can be read now: what is shown then stays, and says how old it
is. A stream ends after an hour and the browser asks for another, so that a login that was taken back counts.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tornado import web
from tornado.iostream import StreamClosedError
from tornado.web import StaticFileHandler, url
from typing_extensions import override

from vibey.domain.errors import VibeyError
from vibey.flower import sheets, show
from vibey.flower.access import Guarded, may_act, words_of
from vibey.flower.desk import FRESH_SECONDS, STREAMS, Frame
from vibey.services import boards, views

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.flower.sheets import Sheet
    from vibey.services.installation import Installation

STREAM_SECONDS = 3600.0
DONE = {
    "pause": "Paused: it is granted no further run; those at work go on to their end.",
    "resume": "Resumed: it can be picked again.",
    "reset": "Reset: its account's circuit is closed.",
    "cancel": "Cancelled, or its run was told to stop.",
}


def tabs(_: web.RequestHandler) -> list[tuple[str, str]]:
    """Our entries of the navigation: name and title."""
    return [(sheet.name, sheet.title) for sheet in sheets.TABS]


class Shown(Guarded):
    """A handler of one sheet."""

    def initialize(self, sheet: Sheet) -> None:
        """Take the sheet from the handler's entry."""
        self.sheet = sheet

    def asked(self, job: str | None) -> dict[str, str]:
        """What this request asks of the sheet."""
        given = {name: self.get_query_argument(name, "") for name in self.sheet.parameters if name != "id"}
        return self.sheet.asked({**given, "id": job} if job is not None else given)

    async def frame(self, asked: dict[str, str]) -> Frame:
        """The sheet as it is now, read and drawn once for everybody."""
        key = (self.sheet.name, tuple(sorted(asked.items())))
        return await self.desk.shared(key, self._drawn(asked))

    def _drawn(self, asked: dict[str, str]) -> Callable[[Installation], Frame]:
        application, sheet = self.application, self.sheet
        load = application.settings["template_loader"].load
        notice, template = load("router/configuration.html"), load(f"router/{sheet.name}.html")
        acts = may_act(application)

        def draw(installation: Installation) -> Frame:
            view = sheet.read(installation, asked)
            names = {**show.FUNCTIONS, "url": application.reverse_url, "asked": asked, "acts": acts}
            # Part of what changes on every page, so that each shows it, and no more, without being reloaded.
            html = notice.generate(**names, configuration=views.configuration(installation))
            html += template.generate(**names, view=view, as_of=view["as_of"])
            return Frame.of(html.decode(), view["as_of"])

        return draw


class Page(Shown):
    """The whole page."""

    async def get(self, job: str | None = None) -> None:
        """Show it."""
        asked = self.asked(job)
        frame = await self.frame(asked)
        names = await self.desk.shared("names", boards.names)
        path = self.reverse_url(f"router-{self.sheet.name}", *([job] if job is not None else []))
        live = self.reverse_url(f"live-{self.sheet.name}", *([job] if job is not None else []))
        self.render(
            "router/page.html",
            sheet=self.sheet,
            title=f"Job {job}" if job is not None else self.sheet.title,
            active=self.sheet.tab,
            frame=frame,
            asked=asked,
            path=path,
            live=show.with_query(live, {name: value for name, value in asked.items() if name != "id"}),
            job=job,
            done=DONE.get(self.get_query_argument("done", "")),
            acts=may_act(self.application),
            choices={**sheets.CHOICES, **names},
        )

    @override
    def get_template_namespace(self) -> dict[str, Any]:
        """The functions our templates use, and where our static files are."""
        return {**super().get_template_namespace(), **show.FUNCTIONS}


class Live(Shown):
    """The stream beside it."""

    @override
    def initialize(self, sheet: Sheet) -> None:
        """Take the sheet; nobody has gone yet."""
        super().initialize(sheet)
        self.gone = asyncio.Event()

    @override
    def on_connection_close(self) -> None:
        """Note that the viewer has gone."""
        self.gone.set()

    async def get(self, job: str | None = None) -> None:
        """Tell what is new until the viewer goes, or an hour is over."""
        asked = self.asked(job)
        await self.stream(self._tell(asked))

    async def stream(self, telling: Any) -> None:  # noqa: ANN401  a coroutine
        """Run what tells, as one of a bounded number of streams."""
        if self.desk.streams >= STREAMS:
            telling.close()
            raise web.HTTPError(503, "too many pages are kept up to date; reload this one by hand")
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("X-Accel-Buffering", "no")
        self.desk.streams += 1
        try:
            await asyncio.wait_for(telling, STREAM_SECONDS)
        except (StreamClosedError, TimeoutError):
            return
        finally:
            self.desk.streams -= 1

    async def send(self, event: str, data: object) -> None:
        """Send one event."""
        self.write(f"event: {event}\ndata: {json.dumps(data)}\n\n")
        await self.flush()

    async def pause(self, seconds: float) -> bool:
        """Wait, and say whether the viewer is still there."""
        try:
            await asyncio.wait_for(self.gone.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def _tell(self, asked: dict[str, str]) -> None:
        last = ""
        while True:
            try:
                frame = await self.frame(asked)
            except (VibeyError, TimeoutError) as error:
                await self.send("trouble", words_of(error))
            else:
                if frame.digest == last:
                    await self.send("as_of", {"as_of": frame.as_of})
                else:
                    await self.send("page", {"as_of": frame.as_of, "html": frame.html})
                last = frame.digest
            if not await self.pause(FRESH_SECONDS):
                return


class FindJob(Guarded):
    """A number typed into the field for jobs."""

    def get(self) -> None:
        """Lead to the job's page."""
        number = self.get_query_argument("id", "").strip().removeprefix("#")
        if not (number.isascii() and number.isdigit()):
            raise web.HTTPError(400, "a job is found by its number, such as 17; see Jobs for a list")
        self.redirect(self.reverse_url("router-job", number), status=303)


def handlers() -> list[url]:
    """The entries of all sheets."""
    found = [url(r"/job", FindJob, name="router-find-job"), url(r"/", Page, {"sheet": sheets.ENGINES})]
    for sheet in (*sheets.TABS, sheets.JOB):
        tail = r"/(\d{1,18})" if sheet is sheets.JOB else ""
        found.append(url(rf"/{sheet.name}{tail}", Page, {"sheet": sheet}, name=f"router-{sheet.name}"))
        found.append(url(rf"/live/{sheet.name}{tail}", Live, {"sheet": sheet}, name=f"live-{sheet.name}"))
    return found


def static_address(handler: web.RequestHandler, path: str) -> str:
    """The address of a static file of ours, with its digest, so that a new version is fetched."""
    folder = handler.application.settings["router_static"]
    return StaticFileHandler.make_static_url(
        {"static_path": folder, "static_url_prefix": handler.reverse_url("router-static", "")}, path
    )
