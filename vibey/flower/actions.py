"""Actions: what a person with a login may do from a page, if the operator allows it (see `vibey.flower.access`).

Each is the service that the command calls, and the ledger says who asked. The answer is a redirect to the page it was
asked from, so that reloading asks nothing twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tornado import web
from tornado.web import url

from vibey.flower.access import ACTIONS_VARIABLE, Guarded, may_act
from vibey.services import control

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.services.installation import Installation

ENGINE_ACTIONS: dict[str, Callable[[Installation, str, str], object]] = {
    "pause": lambda installation, name, by: control.pause_engine(installation, name, paused=True, by=by),
    "resume": lambda installation, name, by: control.pause_engine(installation, name, paused=False, by=by),
    "reset": lambda installation, name, by: control.reset_engine(installation, name, by=by),
}


class Action(Guarded):
    """A handler that changes something."""

    async def act(self, work: Callable[[Installation, str], Any], done: str, back: str) -> None:
        """Do it for whoever asks, and lead back."""
        by = f"flower:{self.person}"
        await self.desk.run(lambda installation: work(installation, by))
        self.desk.forget()
        self.redirect(f"{back}?done={done}", status=303)

    def require_allowed(self) -> None:
        """Refuse where actions are not allowed at all."""
        if not may_act(self.application):
            raise web.HTTPError(403, f"actions are off here; they need a login and {ACTIONS_VARIABLE}=true")


class EngineAction(Action):
    """Pause, resume or reset of an engine."""

    async def post(self, name: str, what: str) -> None:
        """Do it."""
        self.require_allowed()
        act = ENGINE_ACTIONS[what]
        await self.act(lambda installation, by: act(installation, name, by), what, self.reverse_url("router-engines"))


class CancelJob(Action):
    """Cancel of a job."""

    async def post(self, job: str) -> None:
        """Do it."""
        self.require_allowed()
        job_id = int(job)
        back = self.reverse_url("router-job", job)
        await self.act(lambda installation, by: control.cancel(installation, job_id, by=by), "cancel", back)


def handlers() -> list[url]:
    """The entries of all actions."""
    return [
        url(r"/engine/([^/]+)/(pause|resume|reset)", EngineAction, name="engine-action"),
        url(r"/job/(\d{1,18})/cancel", CancelJob, name="cancel-job"),
    ]
