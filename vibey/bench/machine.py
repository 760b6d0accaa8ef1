"""The machine a measurement ran on: without it a figure means nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vibey.embedded import ServiceStatus


def describe(servers: Sequence[ServiceStatus]) -> dict[str, Any]:
    """Cores, processor, memory in GiB, and the versions of what was measured on."""
    versions = {server.name: server.version for server in servers}
    return {
        "cores": _cores(),
        "cpu": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "postgres": versions.get("postgres"),
        "redis": versions.get("redis"),
        "celery": version("celery"),
    }


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    return next(_model_names(), platform.processor() or platform.machine())


def _model_names() -> Iterator[str]:
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        for line in facts.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                yield value.strip()
