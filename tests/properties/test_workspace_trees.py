"""Trees with attributes of every sort and work of every sort: a branch holds the files that differ, and no other."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.repositories import Repository
from vibey.engines import tree
from vibey.engines.git import Git

ATTRIBUTES = [
    *(
        "* text=auto",
        "* text",
        "* -text",
        "*.txt text eol=crlf",
        "*.txt text eol=lf",
        "*.bat text eol=crlf",
        "*.c ident",
    ),
    *(
        "*.u text working-tree-encoding=UTF-16",
        "*.l filter=lfs",
        "sub/** text",
        "*.txt -text",
        "[attr]dos text eol=crlf",
        "*.d dos",
    ),
]
NAMES = ["a.txt", "b.bat", "c.c", "d.d", "e.u", "f.l", "sub/a.txt", "sub/é .txt", 'q"o.txt', "plain"]
TEXTS = [
    *(b"a\nb\n", b"a\r\nb\r\n", b"a\r\nb\n", b"a\rb\n", b"$Id$\n", b"$Id: abc $\r\n", b"\x00\x01\r\n", b"", b"x"),
    *(b"\xff\xfea\x00\n\x00", "é\n".encode()),
]
WORK = st.sampled_from(["write", "remove", "chmod", "touch", "link", "attributes", "commit"])
STEPS = st.lists(
    st.tuples(WORK, st.sampled_from(NAMES), st.sampled_from(TEXTS), st.sampled_from(ATTRIBUTES)), max_size=4
)
LINES = st.lists(st.sampled_from(ATTRIBUTES), min_size=1, max_size=3)


def _seen(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every file of a tree: whether it is a link or executable, and what it holds."""
    found: dict[str, tuple[object, ...]] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_file() and not name.startswith(".git/"):
            found[name] = (path.stat().st_mode & 0o100, path.read_bytes())
    return found


def _do(work: Repository, step: str, name: str, text: bytes, attributes: str) -> None:
    path = work.path / name
    path.parent.mkdir(exist_ok=True)
    if step == "attributes":
        (work.path / ".gitattributes").write_text(f"{attributes}\n")
    elif step == "commit":
        work.git("add", "--all")
        work.git("commit", "--quiet", "--allow-empty", "-m", "mine")
    elif step in {"write", "link", "remove"}:
        path.unlink(missing_ok=True)
        if step == "link":
            path.symlink_to("plain")
        elif step == "write":
            path.write_bytes(text)
    elif path.is_file() and not path.is_symlink():
        if step == "chmod":
            path.chmod(path.stat().st_mode ^ 0o100)
        else:
            os.utime(path)


@example({"a.txt": b"a\r\nb\n"}, ["*.txt text eol=crlf"], [("commit", "plain", b"", "")])
@example(
    {"a.txt": b"a\nb\n", "plain": b"a\r\nb\r\n"}, ["*.txt text eol=crlf"], [("attributes", "plain", b"", "* text")]
)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS)), LINES, STEPS)
@settings(max_examples=15, deadline=None)
def test_what_differs_is_what_is_taken(
    files: dict[str, bytes], lines: list[str], steps: list[tuple[str, str, bytes, str]]
) -> None:
    """Files at the end against files at the start, of which the tree's own git counts none as changed."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        source = Repository.made(home / "source")
        for name, text in files.items():
            (source.path / name).parent.mkdir(exist_ok=True)
            (source.path / name).write_bytes(text)
        source.commit("files")
        (source.path / ".gitattributes").write_text("\n".join(lines) + "\n")
        source.git("add", ".gitattributes")
        source.git("commit", "--quiet", "-m", "attributes")
        work = Repository(home / "tree")
        (home / "control").mkdir()
        common: dict[str, Any] = {"tree": str(work.path), "control": str(home / "control"), "min_free": 0}
        common |= {"author": "a", "email": "b", "message": "m"}
        asked = {"repo": str(source.path), "roots": [folder], "ref": "HEAD", "branch": "vibey/7"}
        made = tree.prepare({**common, **asked, "keep": "refs/vibey/0123456789ab/run-70"})
        before = _seen(work.path)
        assert work.git("status", "--porcelain") == ""
        for step in steps:
            _do(work, *step)
        after = _seen(work.path)
        found = tree.collect({**common, **made})
        differing = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        taken = set()
        if found["commit"] is not None:
            listed = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", made["base"], found["commit"])
            taken = {name.decode() for name in Git(home / "control" / "collected.git")(*listed).split(b"\0") if name}
        assert taken <= differing
        assert differing - taken <= {each["path"] for each in found.get("left_out", ())}
