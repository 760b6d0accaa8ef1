"""Pages of the documentation as a reader follows them: files to write, commands to type, output to see.

- A block headed by a line that ends in a file's name in code and a colon is that file's content.
- A block of `sh` is typed as it stands; a block without a language right below it is what it prints.
- A block of `console` has commands after `$` and, below each, what it prints.
- `<!-- not run: REASON -->` above a block of commands excuses it; `<!-- run by: TEST -->` names the test that runs it.

Shown output is compared line by line and in order. A line of `…` stands for lines that are left out, `…` within a line
for anything, and any number for any other.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADED = re.compile(r"`([\w./-]+)`:\s*\Z")
EXCUSED = re.compile(r"<!-- (not run|run by): (.+?) -->\s*\Z", re.DOTALL)
COMMANDS = frozenset({"sh", "console"})
LANGUAGES = COMMANDS | {"", "text", "toml", "json", "yaml", "python", "ini"}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: write a file, or type commands and look at what they print."""

    line: int
    file: str = ""
    text: str = ""
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Excuse:
    """A block of commands that is not run here: `word` is "not run" or "run by", and why or where."""

    line: int
    word: str
    reason: str


def steps(text: str) -> Iterator[Step | Excuse]:
    """What a page asks of its reader, in order."""
    last_end, last_was_shell = 0, False
    pending: Step | None = None
    for found in FENCE.finditer(text):
        language, body = found.groups()
        before, line = text[last_end : found.start()], text.count("\n", 0, found.start()) + 1
        assert language in LANGUAGES, f"line {line}: a block of {language!r}; known are {sorted(LANGUAGES)}"
        if not language and last_was_shell and pending and not before.strip():
            pending = Step(pending.line, text=pending.text, shown=body)
        else:
            if pending:
                yield pending
            pending = None
            if head := HEADED.search(before):
                yield Step(line, file=head[1], text=body)
            elif language in COMMANDS:
                if excuse := EXCUSED.search(before):
                    yield Excuse(line, excuse[1], " ".join(excuse[2].split()))
                elif language == "sh":
                    pending = Step(line, text=body)
                else:
                    yield from _typed(line, body)
        last_end, last_was_shell = found.end(), language == "sh"
    if pending:
        yield pending


def _typed(line: int, body: str) -> Iterator[Step]:
    """The commands of a block of `console`; one that ends in a backslash goes on."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command += f"\n{more}"
        yield Step(line, text=command + "\n", shown=shown)


def follow(page: str, folder: Path, environ: Mapping[str, str], *, strict: bool = False) -> None:
    """Do all a page says, in one shell; AssertionError names the line where something else happens.

    With `strict` also where lines are left out of what a command printed, and no line of `…` says so.
    """
    todo = [step for step in steps(page) if isinstance(step, Step)]
    script = ["set -eu"]
    for number, step in enumerate(todo):
        script.append(f"printf '\\001%s\\n' {number}")
        script.append(_written(step) if step.file else step.text)
    done = subprocess.run(
        ["/bin/bash", "-c", "\n".join(script)],
        cwd=folder,
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    said = dict(part.split("\n", 1) for part in done.stdout.split("\001")[1:])
    for number, step in enumerate(todo[: len(said)]):
        missing = first_missing(step.shown, said[str(number)])
        assert missing is None, f"line {step.line}: {missing!r} is not what it printed:\n{said[str(number)]}"
        if strict:
            assert is_marked(step.shown, said[str(number)]), f"line {step.line}: lines left out:\n{said[str(number)]}"
    reached = todo[len(said) - 1]
    assert done.returncode == 0, f"line {reached.line}: exit {done.returncode}:\n{said[str(len(said) - 1)]}"


def _written(step: Step) -> str:
    return f"mkdir -p \"$(dirname '{step.file}')\"\ncat > '{step.file}' <<'END OF FILE'\n{step.text}END OF FILE"


def is_marked(shown: str, said: str) -> bool:
    """Whether every line that was printed is shown, or stood for by a line of `…`; empty lines do not count."""
    lines = [line for line in shown.splitlines() if line.strip()]
    pattern = "".join(r"(?:[^\n]*\n)*" if line.strip() == "…" else f"{_pattern(line)}\n" for line in lines)
    printed = "".join(f"{_plain(line)}\n" for line in said.splitlines() if line.strip())
    return not lines or re.fullmatch(pattern, printed) is not None


def _pattern(line: str) -> str:
    return r"[^\n]*".join(re.escape(_plain(part)) for part in line.split("…"))


def first_missing(shown: str, said: str) -> str | None:
    """The first line of `shown` that does not follow in `said`; None when all do."""
    lines = iter([_plain(line) for line in said.splitlines()])
    for line in shown.splitlines():
        if line.strip() not in {"", "…"}:
            wanted = re.compile(".*".join(re.escape(_plain(part)) for part in line.split("…")))
            if not any(wanted.fullmatch(each) for each in lines):
                return line
    return None


def _plain(line: str) -> str:
    return re.sub(r"\d+", "0", " ".join(line.split()))
