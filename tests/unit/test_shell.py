"""Commands in messages: whatever a value in one is, a shell takes it as that value and nothing else."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vibey
from vibey.domain.shell import command

VALUES = [
    "two words",
    "it's",
    'a "b"',
    "$(touch hacked)",
    "`id`",
    "a;b",
    "a\nb",
    "-x",
    "--",
    "*",
    "~",
    "$HOME",
    "é",
    "#",
]
PROGRAMS = "vibey|ollama|npm|pip|celery|systemctl|loginctl|git|kill"
# A literal that ends where a value of a command would follow.
BEFORE_VALUE = re.compile(rf"(?:^|[\s:;,(`])(?:{PROGRAMS}) [a-z][\w -]*[ =]$")
# What may stand there: numbers, names that the configuration restricts, words of our own.
PLAIN = {
    ("vibey/cli/logs.py", "job_id"),
    ("vibey/cli/waiting.py", "job_id"),
    ("vibey/domain/errors.py", "job"),
    ("vibey/embedded/binaries.py", "wheel"),
    ("vibey/engines/clients/client.py", "client.package"),
    ("vibey/engines/clients/health.py", "client.package"),
    ("vibey/engines/workspace.py", "job.job_id"),
    ("vibey/services/logs.py", "job_id"),
    ("vibey/services/machine.py", "layout.data_dir"),  # no command
    ("vibey/services/wording.py", "engine.name"),
}


@pytest.mark.parametrize("value", VALUES)
def test_a_shell_takes_each_value_as_it_is(value: str, tmp_path: Path) -> None:
    """As an argument of a program and as the value of its option; and runs nothing."""
    text = command("printf '%s\\0'", value) if not value.startswith("-") else command("printf '%s\\0' .", value)
    said = subprocess.run(["/bin/sh", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.split("\0")[-2] == value
    assert shlex.split(command("vibey enqueue", project=value)) == ["vibey", "enqueue", f"--project={value}"]
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.text().filter(lambda text: "\0" not in text), min_size=1, max_size=3))
def test_any_values_come_back_from_a_shells_words(values: list[str]) -> None:
    """After `--` where one of them would be taken for an option."""
    words = shlex.split(command("vibey project set", *values))
    assert words[:3] == ["vibey", "project", "set"]
    guarded = any(value.startswith("-") for value in values)
    assert words[3:] == [*(["--"] if guarded else []), *values]


def _commands_with_values() -> list[tuple[str, int, str, str]]:
    """Every place in the source where a value stands in a command: file, line, the text before it, the expression."""
    root = Path(vibey.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            text = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    text += str(part.value)
                elif isinstance(part, ast.FormattedValue):
                    if BEFORE_VALUE.search(text):
                        where = path.relative_to(root.parent).as_posix()
                        found.append((where, node.lineno, text[-40:], ast.unparse(part.value)))
                    text += "{}"
    return found


def test_no_message_puts_a_value_into_a_command_itself() -> None:
    """Other than numbers and names that cannot hold anything a shell would take for more."""
    loose = [each for each in _commands_with_values() if (each[0], each[3]) not in PLAIN]
    assert loose == []
