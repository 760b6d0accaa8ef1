"""A job's program that tells everything it knows, in every form a program might; nothing of Vibey is imported.

Arguments: nothing, for an engine of kind `command`; or a recording of a client and the words in it that give way to a
secret. What it knows are the values of its environment that hold the word PLANT, and the contents of the files that
the payload names in `read`. How it ends is the payload's `end`: `well`, `declared` (a failure in its result file) or
`badly`. A client gets no payload; how it ends is in its recording.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import time
from pathlib import Path
from urllib.parse import quote

MARK = "PLANT"


def known(paths: list[str]) -> list[str]:
    """The secrets: marked variables, and the words of marked files."""
    words = [word for path in paths for word in Path(path).read_text(encoding="utf-8").split()]
    return [value for value in (*os.environ.values(), *words) if MARK in value or "://" in value]


def forms(secret: str) -> list[str]:
    """The secret as programs show it."""
    encoded = [base64.b64encode(f"{user}:{secret}".encode()).decode() for user in ("", "u", "us", "user")]
    in_json = json.dumps(secret)
    low = re.sub("%..", lambda found: found[0].lower(), quote(secret, safe=""))
    return [secret, in_json, json.dumps(in_json), quote(secret, safe=""), low, *encoded]


def tell(secrets: list[str]) -> None:
    """Print every form on both outputs, and each secret once more in two pieces."""
    for form in (form for secret in secrets for form in forms(secret)):
        for stream in (sys.stdout, sys.stderr):
            stream.write(f"{form}\n")
            stream.flush()
    for secret in secrets:
        half = len(secret) // 2
        for piece in (secret[:half], secret[half:]):
            sys.stdout.write(piece)
            sys.stdout.flush()
            time.sleep(0.05)  # so that the reader sees two pieces; it must mask them either way
        sys.stdout.write("\n")


def work(payload: dict[str, object]) -> dict[str, object]:
    """Tell, and the report to leave."""
    paths = payload.get("read", [])
    secrets = known(paths if isinstance(paths, list) else [])
    tell(secrets)
    told = [form for secret in secrets for form in forms(secret)]
    if payload["end"] == "declared":
        # Long enough that the detail is cut within a form.
        return {"failure": {"class": "work", "detail": " ".join(told)}}
    return {"result": {"told": told, **dict.fromkeys(told, 1)}}


def main(arguments: list[str]) -> int:
    """Exit status: 1 for an end that is `badly`."""
    if arguments:
        secrets = known([])
        tell(secrets)
        recording = Path(arguments[0]).read_text(encoding="utf-8")
        sys.stdout.write(recording.replace(arguments[1], json.dumps(" ".join(forms(secrets[0])))[1:-1]))
        return 0
    payload = json.load(sys.stdin)["payload"]
    report = work(payload)
    if payload["end"] == "badly":
        sys.stdout.write(" ".join(forms(known([])[0])))
        return 1
    Path(os.environ["VIBEY_RESULT_FILE"]).write_text(json.dumps(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
