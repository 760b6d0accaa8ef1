"""The prompt of a job: the text of the task, under the key `prompt` of its payload."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT = "prompt"
NEEDS_PROMPT = frozenset({"claude-code", "codex", "gemini", "openai", "opencode", "qwen-code"})
"""Kinds of engine that can do nothing without a prompt; any other kind reads the payload in its own way."""


def prompt_of(payload: Mapping[str, object]) -> str | None:
    """The prompt of a payload; None where it has none, or a blank one."""
    prompt = payload.get(PROMPT)
    # `isspace` ends at the first letter, where `strip` would copy a text of any size.
    return prompt if isinstance(prompt, str) and prompt and not prompt.isspace() else None
