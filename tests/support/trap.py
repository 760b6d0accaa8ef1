"""A trap for git: programs that leave a mark when they are run, and every setting that would have git run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = [
    *("applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-checkout", "post-commit", "post-index-change"),
    *("post-merge", "post-rewrite", "post-update", "pre-auto-gc", "pre-commit", "pre-receive", "pre-push"),
    *("prepare-commit-msg", "proc-receive", "reference-transaction", "sendemail-validate", "update"),
]
EVIL_SETTINGS = """
[core]
\tfsmonitor = {evil}
\thooksPath = {hooks}
\tsshCommand = {evil}
\tpager = {evil}
\teditor = {evil}
\taskPass = {evil}
\tgitProxy = {evil}
\talternateRefsCommand = {evil}
\tattributesFile = {attributes}
[filter "evil"]
\tclean = {evil}
\tsmudge = {evil}
\tprocess = {evil}
\trequired = true
[diff]
\texternal = {evil}
[diff "evil"]
\tcommand = {evil}
\ttextconv = {evil}
[merge "evil"]
\tdriver = {evil}
[credential]
\thelper = {evil}
[gpg]
\tprogram = {evil}
[commit]
\tgpgSign = true
[uploadpack]
\tpackObjectsHook = {evil}
[remote "origin"]
\turl = ext::{evil}
\tuploadpack = {evil}
\tpromisor = true
[url "ext::{evil}"]
\tinsteadOf = /
[submodule]
\trecurse = true
[include]
\tpath = {hooks}/more
[includeIf "gitdir:/"]
\tpath = {hooks}/more
"""
ATTRIBUTES = "* filter=evil diff=evil merge=evil\n"


def lay(folder: Path) -> None:
    """Make a folder with a program that leaves a mark when run, as every hook, and a configuration that wants it."""
    folder.mkdir()
    evil = folder / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $*" >> {folder}/sprung\ncat 2>/dev/null\n')
    evil.chmod(0o755)
    for hook in HOOKS:
        (folder / hook).symlink_to(evil)
    (folder / "attributes").write_text(ATTRIBUTES)
    (folder / "more").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (folder / "settings").write_text(EVIL_SETTINGS.format(evil=evil, hooks=folder, attributes=folder / "attributes"))
