"""Callables for the tests of the `python` kind: each does its work, or goes wrong, in its own way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support import blab
from vibey.engines.calling import Answer, CapacityRefused, EngineFault, GivenUp, HandOff

if TYPE_CHECKING:
    from vibey.engines.calling import CallInfo

NOT_CALLABLE = 1


def work(payload: dict[str, object], info: CallInfo) -> object:
    """Behave as `payload["how"]` says."""
    how = str(payload["how"])
    return BEHAVIOURS[how](payload, info)


def _info(payload: dict[str, object], info: CallInfo) -> dict[str, object]:
    return {"attempt": info.attempt, "effort": info.effort, "here": str(info.run_directory), "n": payload["n"]}


def _raise(_payload: dict[str, object], _info: CallInfo) -> object:
    raise ValueError("no good")


def _window(_payload: dict[str, object], _info: CallInfo) -> object:
    raise CapacityRefused("window", resets_in=90, detail="come back later")


def _engine(_payload: dict[str, object], _info: CallInfo) -> object:
    raise EngineFault("the server crashed")


def _handoff(_payload: dict[str, object], _info: CallInfo) -> object:
    raise HandOff("saved at step 3")


def _give_up(_payload: dict[str, object], _info: CallInfo) -> object:
    raise GivenUp("there is no such book")


def _recurse(payload: dict[str, object], info: CallInfo) -> object:
    return _recurse(payload, info)


def _memory(_payload: dict[str, object], _info: CallInfo) -> object:
    return len(bytearray(2**60))


def _abort(_payload: dict[str, object], _info: CallInfo) -> object:
    os.abort()


def _leave(_payload: dict[str, object], _info: CallInfo) -> object:
    os._exit(0)


def _leave_3(_payload: dict[str, object], _info: CallInfo) -> object:
    os._exit(3)


def _background(_payload: dict[str, object], _info: CallInfo) -> object:
    subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    return {"path": os.environ.get("PYTHONPATH")}


def _blab(payload: dict[str, object], _info: CallInfo) -> object:
    report = blab.work(payload)
    if payload["end"] == "badly":
        raise ValueError(json.dumps(report))
    return report["result"]


BEHAVIOURS = {
    "blab": _blab,
    "info": _info,
    "raise": _raise,
    "window": _window,
    "engine": _engine,
    "handoff": _handoff,
    "give_up": _give_up,
    "recurse": _recurse,
    "memory": _memory,
    "abort": _abort,
    "os_exit": _leave,
    "os_exit_3": _leave_3,
    "sys_exit": lambda _payload, _info: sys.exit(0),
    "interrupt": lambda _payload, _info: exec("raise KeyboardInterrupt"),  # noqa: S102
    "huge": lambda _payload, _info: "x" * 300_000,
    "not_json": lambda _payload, _info: object(),
    "infinite": lambda _payload, _info: float("inf"),
    "plain": lambda _payload, _info: 5,
    "nothing": lambda _payload, _info: None,
    "answer": lambda _payload, _info: Answer({"a": "\0"}, 0.25, tokens_in=1, tokens_out=2, near_quota=90),
    "background": _background,
}
