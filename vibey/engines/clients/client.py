"""ClientEngine: runs a coding client on a job's prompt, in the run's folder or the job's tree.

The payload is `{"prompt": text}`; the client gets it on its standard input and in no other way, and as words for the
model, never as a command (`spoken`). The result is
`{"text": its final answer}`. How a client is started, what its stream means and how it words a refusal, its
descriptor says; when a run is ended for a refusal, `vibey.engines.clients.reading` says.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import Failure, FailureClass, one_line
from vibey.domain.prompt import prompt_of
from vibey.engines.clients import hiding
from vibey.engines.clients.descriptor import Client, Setup
from vibey.engines.clients.health import look
from vibey.engines.clients.reading import Reading
from vibey.engines.clients.tap import Tap
from vibey.engines.clients.tried import newest_of
from vibey.engines.contract import (
    Context,
    Description,
    EngineConfig,
    Health,
    Job,
    RunningProcess,
    RunSteps,
    StopReason,
)
from vibey.engines.environment import allowed, check_extras
from vibey.engines.keys import confided, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vibey.engines.clients.descriptor import Launch

STALL_SECONDS = 300.0
"""The longest time without output and without activity of any process, unless the operator sets another."""
GRACE_SECONDS = 0.5
FOLDER = "client"
PREFACE = "The task:\n"
# White space and the mark of byte order: a client may trim them off.
_COMMAND = re.compile(r"[\s\ufeff]*/")


class ClientEngine:
    """An adapter for one client; each kind is a subclass that names it."""

    client: ClassVar[Client]

    def __init__(self, config: EngineConfig) -> None:
        if config.base_url and urlsplit(config.base_url).username is not None:
            raise InvalidInput(f"engine.{config.name}.base_url", "a login in an address", "api_key_env or api_key_file")
        if self.client.needs_model and config.base_url and not config.model:
            raise InvalidInput(f"engine.{config.name}.model", config.model, "the name of a model base_url has")
        check_extras(config.name, config.env)
        self._config = config

    def describe(self) -> Description:
        """The efforts and prices the operator declared, and the silence that is taken for a stall."""
        return Description.declared(self._config, STALL_SECONDS, silent_work=True)

    def doctor(self) -> Health:
        """Whether the client is there and has a login, by its own short commands; never a question to a model."""
        try:
            key = key_of(self._config)
        except InvalidInput as error:
            return Health(
                installed=True, logged_in=False, detail=f"no usable key in {error.field}", fix=f"set {error.field}"
            )
        health = look(self.client, self._config, key, allowed(os.environ, self._config.env))
        folder, client = self._config.state_dir, self.client
        if folder is None or not hiding.hides(folder, client.kind, health.version):
            return health
        tried = newest_of(client.kind)
        version = tried.version if tried else "latest"
        fix = f"install a version that was tried: npm install -g {client.package}@{version}"
        return replace(health, detail=f"{health.detail}, {hiding.WORDS}".removeprefix(", "), fix=health.fix or fix)

    def run(self, job: Job, context: Context) -> RunSteps:
        """Run the client to its end, or to the first refusal it shows."""
        prompt = prompt_of(job.payload)
        if prompt is None:
            words = f"payload.prompt is missing: a {self._config.kind} engine needs the text of the task"
            return Failure(FailureClass.WORK, words, final=True)
        try:
            key = key_of(self._config)
        except InvalidInput as error:
            return Failure(FailureClass.MISCONFIGURED, one_line(str(error)))
        tap = Tap()
        folder = context.directory / FOLDER
        passed = allowed(os.environ, self._config.env)
        extra = self._config.arguments(job.effort)
        launch = self.client.launch(Setup(self._config, key, extra, folder, tap, passed))
        asked = _written(folder, launch, prompt)
        process = context.spawn(
            launch.argv,
            environment={**passed, **launch.variables},
            stdin=asked,
            secrets=confided(self._config),
        )
        reading = Reading(self.client.table, self.client.hear, tap)
        guard = _Guard(reading, process)
        try:
            for line in process.lines():
                untapped = reading.untapped
                progress = reading.take(line)
                guard.look()
                if self.client.taps and reading.untapped and not untapped:
                    context.output.note(f"{hiding.WORDS}: a refusal that it does not print ends the run as a stall")
                if progress is not None:
                    yield progress
            ending = process.wait()
        finally:
            guard.end()
        self._keep(reading, key, passed)
        return reading.outcome(ending, launch.argv[0])

    def _keep(self, reading: Reading, key: str, passed: Mapping[str, str]) -> None:
        """Keep for the doctor whether the tap saw this client's requests, as far as the run has shown it."""
        folder, client = self._config.state_dir, self.client
        if folder is None or not client.taps:
            return
        if reading.tapped:
            hiding.forget(folder, client.kind)
        elif reading.untapped and (version := look(client, self._config, key, passed).version):
            hiding.record(folder, client.kind, version)


class _Guard:
    """Ends the client's tree by what is read of it, and by the clock while it only tries again."""

    def __init__(self, reading: Reading, process: RunningProcess) -> None:
        self._reading = reading
        self._process = process
        self._timer: threading.Timer | None = None
        self._stopped = False

    def look(self) -> None:
        """Do what the line just read asks for."""
        patience = self._reading.patience
        if self._reading.refusal is not None:
            self._stop()
        elif patience is None:
            self._cancel()
        elif self._timer is None:
            self._timer = threading.Timer(patience, self._expire)
            self._timer.start()

    def end(self) -> None:
        """Have no clock running any more."""
        timer = self._timer
        self._cancel()
        if timer is not None:
            timer.join()

    def _expire(self) -> None:
        self._reading.expire()
        if self._reading.refusal is not None:
            self._stop()

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._process.stop(StopReason.CANCEL, GRACE_SECONDS)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _written(folder: Path, launch: Launch, prompt: str) -> Path:
    """The launch's files and the prompt, written where nobody else reads; the prompt's file."""
    folder.mkdir(mode=0o700)
    for name, text in launch.files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    asked = folder / "prompt.txt"
    asked.write_text(spoken(prompt), encoding="utf-8", errors="replace")
    return asked


def spoken(prompt: str) -> str:
    """The prompt as words for a model, whatever it begins with.

    Clients take a slash at the beginning for a command of their own, do it, and end well without asking any model:
    the job would have succeeded, and nothing been done.
    """
    return f"{PREFACE}{prompt}" if _COMMAND.match(prompt) else prompt
