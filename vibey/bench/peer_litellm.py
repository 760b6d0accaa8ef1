"""LiteLLM's Router choosing a deployment in memory, asked by lines of JSON: `{"engines": 10, "count": 2000}`.

Run by the peers' own interpreter; knows nothing of Vibey. Its settings are its defaults: strategy simple-shuffle, which
is its quickest, weights on the deployments, no Redis. Nothing is sent to any model; the map of prices is the one it
carries, so that it asks no server for another. `pick` answers with picks a second, `latency` with microseconds a pick.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from importlib import import_module
from time import perf_counter_ns
from typing import Any

MODEL = "bench"
NS = 1_000_000_000


def router(engines: int) -> Any:  # noqa: ANN401  a peer's type
    """A router over so many deployments of one model, with weights 1, 2, 3 in turn."""
    litellm = import_module("litellm")
    deployments = [
        {
            "model_name": MODEL,
            "litellm_params": {
                "model": f"openai/e{number}",
                "api_key": "unused",
                "api_base": f"http://127.0.0.1:9/e{number}",
                "weight": number % 3 + 1,
            },
        }
        for number in range(engines)
    ]
    return litellm.Router(model_list=deployments)


def picks(chosen: Any, count: int) -> list[int]:  # noqa: ANN401  a peer's type
    """Nanoseconds of each of so many picks."""
    messages = [{"role": "user", "content": "make the failing test pass"}]
    took = []
    for _ in range(count):
        began = perf_counter_ns()
        chosen.get_available_deployment(model=MODEL, messages=messages)
        took.append(perf_counter_ns() - began)
    return took


def main() -> None:
    """Answer questions until there are no more."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    answers, sys.stdout = sys.stdout, sys.stderr
    logging.disable(logging.CRITICAL)
    routers: dict[int, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        engines = asked["engines"]
        if engines not in routers:
            routers[engines] = router(engines)
            picks(routers[engines], 50)
        took = picks(routers[engines], asked["count"])
        answers.write(f"{json.dumps({'rate': len(took) * NS / sum(took), 'micros': [each / 1000 for each in took]})}\n")
        answers.flush()


if __name__ == "__main__":
    main()
