"""Kind `openai`: any server that speaks the OpenAI API (Ollama, vLLM, llama.cpp, a gateway), one completion a job.

`vibey.engines.chat` asks, in a supervised process that gets the key through its environment only. What effort
adds are fields of the request: `efforts = { high = ["reasoning_effort=high", "max_tokens=8000"] }`.
"""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit

from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import Failure, FailureClass, one_line
from vibey.domain.prompt import prompt_of
from vibey.engines.chat import KEY_VARIABLE, ORDER_VARIABLE, Order
from vibey.engines.contract import Context, Description, EngineConfig, Health, Job, RunSteps
from vibey.engines.environment import allowed, check_extras
from vibey.engines.handover import Handover, LastLine, outcome_of
from vibey.engines.keys import key_of
from vibey.engines.modelserver import look
from vibey.engines.ours import import_path, program

DEFAULT_SILENCE_SECONDS = 600.0
_OURS = frozenset({"messages", "model", "stream", "stream_options"})


class OpenAIEngine:
    """An adapter for a model server."""

    def __init__(self, config: EngineConfig) -> None:
        if not config.base_url:
            raise InvalidInput(f"engine.{config.name}.base_url", config.base_url, "the address of a model server")
        if urlsplit(config.base_url).username is not None:
            raise InvalidInput(f"engine.{config.name}.base_url", "a login in an address", "api_key_env or api_key_file")
        if not config.model:
            raise InvalidInput(f"engine.{config.name}.model", config.model, "the name of a model the server has")
        check_extras(config.name, config.env)
        self._config = config
        self._base_url = config.base_url
        self._model = config.model
        self._fields = {effort: _fields(config.name, extra) for effort, extra in config.efforts.items()}

    def describe(self) -> Description:
        """The efforts and prices the operator declared."""
        return Description.declared(self._config)

    def doctor(self) -> Health:
        """Whether the server lists the model, by `GET /models`; never a completion. Kept for a minute."""
        try:
            key = key_of(self._config)
        except InvalidInput as error:
            return Health(
                installed=True, logged_in=False, detail=f"no usable key in {error.field}", fix=f"set {error.field}"
            )
        return look(self._config.name, self._base_url, self._model, key, allowed(os.environ, self._config.env))

    def run(self, job: Job, context: Context) -> RunSteps:
        """Ask, in a child process."""
        if prompt_of(job.payload) is None:
            words = "payload.prompt is missing: an openai engine needs its text"
            return Failure(FailureClass.WORK, words, final=True)
        try:
            key = key_of(self._config)
        except InvalidInput as error:
            return Failure(FailureClass.MISCONFIGURED, one_line(str(error)))
        effort = self._config.achieved(job.effort)
        silence = self._config.stall_seconds or DEFAULT_SILENCE_SECONDS
        order = Order(self._base_url, self._model, self._fields.get(effort, {}), silence)
        handover = Handover.prepare(self._config, job, context.directory)
        handover.environment.update({**import_path(), ORDER_VARIABLE: order.packed(), KEY_VARIABLE: key})
        process = handover.spawn(context, program("vibey.engines.chat"))
        last = LastLine()
        for line in process.lines():
            progress = last.take(line)
            if progress is not None:
                yield progress
        return outcome_of(process.wait(), "vibey.engines.chat", last.text, handover.report())


def _fields(engine: str, arguments: tuple[str, ...]) -> dict[str, object]:
    found: dict[str, object] = {}
    for argument in arguments:
        name, separator, text = argument.partition("=")
        if not separator or not name.isidentifier() or name in _OURS:
            raise InvalidInput(f"engine.{engine}.efforts", argument, "a field of the request, as max_tokens=8000")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found
