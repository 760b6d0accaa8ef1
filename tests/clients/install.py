"""Install the pinned and the newest version of each client that the registry has: `python -m tests.clients.install`.

What is there already is not installed again. Without npm or a registry the rest is named, and the tests of real
clients skip it; nothing here fails for that.
"""

from __future__ import annotations

import json
import shutil
import subprocess

from tests.support.clients import Installed, choose, folder, left_out, pinned
from tests.support.recordings import CLIENTS

SECONDS = 600
"""How long one version may take."""


def install() -> None:
    """Install what is missing, and say what could not be."""
    folder().mkdir(parents=True, exist_ok=True)
    left: list[str] = []
    newest: dict[str, str] = {}
    for kind, version in pinned().items():
        if reason := _installed(Installed(kind, version)):
            left.append(f"{kind} {version} (pinned): {reason}")
        found, reason = _newest(kind)
        reason = reason or _installed(Installed(kind, found))
        if reason:
            left.append(f"{kind} {found or 'newest'}: {reason}")
        else:
            newest[kind] = found
    choose(newest, left)
    for line in left_out():
        print(f"left out: {line}")  # noqa: T201  (a program of its own)


def _newest(kind: str) -> tuple[str, str]:
    """The newest version in the registry; or why there is none."""
    said, reason = _npm("view", CLIENTS[kind].package, "version", "--json")
    return ("", reason) if reason else (str(json.loads(said)), "")


def _installed(client: Installed) -> str:
    """Install a version if it is not there; why that failed, if it did."""
    if not client.missing:
        return ""
    client.folder.mkdir(parents=True, exist_ok=True)
    (client.folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    wanted = f"{CLIENTS[client.kind].package}@{client.version}"
    quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
    _, reason = _npm("install", "--prefix", str(client.folder), *quiet, wanted)
    return reason or client.missing


def _npm(*arguments: str) -> tuple[str, str]:
    """What npm printed, or why it failed."""
    npm = shutil.which("npm")
    if npm is None:
        return "", "npm is not installed"
    try:
        ended = subprocess.run((npm, *arguments), capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "", f"npm {arguments[0]}: no answer within {SECONDS} s"
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    return ended.stdout, "" if ended.returncode == 0 else f"npm {arguments[0]}: {(lines or ['failed'])[0]}"


if __name__ == "__main__":
    install()
