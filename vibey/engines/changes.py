"""Changes: what a run changed in its tree, judged by the files as they were when it began.

Git may store a file in another form than it has in a tree: line endings, `$Id$` and encodings are converted both ways,
as `.gitattributes` says. A repository may hold files in a form that git itself would not store, such as a file with
CRLF that is marked `text`: git then counts it as changed although nobody has touched it. Such *unconverted* files are
found when the tree is made, and are checked out and stored byte for byte, by the tree's own git as well
(`keep_unconverted`).

When the work is done, `stage` compares its tree with the commit below it. Of the paths that differ it makes the files
once more as they were at the start. A file that is still the same did not change, whatever the attributes say now.
What git refuses, or what would be worth nothing without a program that is not run here, is left out path by path and
named; the rest is taken.
"""

from __future__ import annotations

import filecmp
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibey.domain.outcome import one_line
from vibey.engines.git import Git, GitFailed
from vibey.engines.plain import beginning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ATTRIBUTES = b".gitattributes"
MOST_NAMED = 50
"""How many paths that were left out are named; the others are counted."""
_MOST_PATTERNS = 1000
_UNCONVERTED = b"-text !eol !ident !filter !working-tree-encoding"
_LINK, _SUBMODULE = b"120000", b"160000"
_POINTER = b"version https://git-lfs.github.com/spec/"
_LARGEST_POINTER = 1024
_ESCAPED = {b"\\": b"\\\\\\\\", b'"': b'\\"', b"\n": b"\\n", b"*": b"\\\\*", b"?": b"\\\\?", b"[": b"\\\\["}
_SPECIAL = re.compile(rb'[\\"\n*?\[]')
# What git checks the content of, in every spelling that some file system takes for it.
_CHECKED = re.compile(rb"[\x80-\xff]*\.?[\x80-\xff]*g[\x80-\xff]*i.*", re.IGNORECASE | re.DOTALL)
_REFUSED = re.compile(r"object ([0-9a-f]{40,64}): (.*)")

Entries = dict[bytes, tuple[bytes, bytes]]
"""Mode and object of each path."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A path of which something is not taken, and why."""

    path: bytes
    why: str

    def document(self) -> dict[str, str]:
        """The same for a result; what is not printable in the path is escaped, so that the path stays the file's."""
        text = self.path.decode("utf-8", "backslashreplace")
        shown = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)
        return {"path": shown if len(shown) <= 300 else f"{shown[:299]}…", "why": self.why}


@dataclass(slots=True)
class Staged:
    """What `stage` made of the index: its tree, what is not in it, and remarks for the log.

    `rewritten` says that the work's own commits hold what git refuses: only their files can be taken.
    """

    tree: str = ""
    left_out: list[LeftOut] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    rewritten: bool = False


def entries(git: Git, commit: str) -> Entries:
    """The entries of a commit."""
    return _entries(git("ls-tree", "-r", "-z", commit), 2)


def keep_unconverted(work: Git, commit: str, index: Path) -> bool:
    """Have files that git would not store as the commit has them kept as they are, in a tree just checked out.

    Returns whether no file at all is converted, which is so where there are too many of them to be named one by one.
    `index` is the place of an index that nobody else uses.
    """
    before = entries(work, commit)
    if not _has_attributes(before):
        return False
    fresh = replace(work, variables={"GIT_INDEX_FILE": str(index)})
    fresh("read-tree", commit)
    paths = _unconverted(fresh)
    if not paths:
        return False
    everything = len(paths) > _MOST_PATTERNS
    if everything:
        convert_nothing(work)
        work("read-tree", commit)
        work.says("checkout-index", "--quiet", "--force", "--index", "--all")
    else:
        _name_unconverted(work, paths)
        # Entries without the size and time of a file: git would take another size for a change, and not look.
        _put(work, {path: before[path] for path in paths})
        work.says("checkout-index", "--quiet", "--force", "--index", "-z", "--stdin", given=_joined(paths))
    return everything


def convert_nothing(git: Git) -> None:
    """Have this repository convert no file."""
    _write_attributes(git, [b"* " + _UNCONVERTED])


def stage(
    work: Git, base: str, parent: str, begun: Callable[[], Git], walked: Sequence[LeftOut], index: Path | None
) -> Staged:
    """Stage what the work changed into the index of `work`, which holds the commit `parent`.

    `begun` makes an empty repository with an empty folder as its tree, for the files as they were at the start, in
    `base`. `walked` is what a walk of the tree could not take, ignored paths among it. `index` is a copy of the index
    in which the work staged its changes, if it left one.
    """
    staged = Staged(left_out=[*_not_ignored(work, walked)])
    before = entries(work, base)
    below = before if parent == base else entries(work, parent)
    changed = _changed(work)
    undone: dict[bytes, tuple[bytes, bytes] | None] = {}
    if _has_attributes((*before, *below, *changed)):
        same, changed = _same_as_begun(work, begun, before, changed)
        undone.update({path: below[path] for path in same if below.get(path) == before[path]})
        for path, why in _unfit(work, [path for path in changed if path not in undone], staged.remarks):
            undone[path] = below.get(path)
            staged.left_out.append(LeftOut(path, why))
    staged.left_out += _add(work)
    # Attributes that were removed count only once that is staged: files they converted are then no longer as stored.
    besides = work("diff-index", "--cached", "-z", "--name-only", parent).split(b"\0")
    undone.update({path: below.get(path) for path in besides if path and path not in changed})
    undone.update(_staged_by_work(work, index, below))
    _put(work, undone)
    staged.left_out += _submodules(work, below)
    _drop_refused(work, begun, before, below, staged)
    staged.tree = work.line("write-tree")
    return staged


def _entries(listing: bytes, at: int) -> Entries:
    rows = (row.partition(b"\t") for row in listing.split(b"\0") if row)
    return {path: (facts.split()[0], facts.split()[at]) for facts, _, path in rows}


def _has_attributes(paths: Iterable[bytes]) -> bool:
    return any(path.rpartition(b"/")[2] == ATTRIBUTES for path in paths)


def _changed(work: Git) -> dict[bytes, bytes]:
    """Each path whose file is not as the index has it, with one letter: M or T, D, and A for a new one."""
    work.says("update-index", "-q", "--refresh")
    listing = work("diff-files", "-z", "--name-status", "--ignore-submodules=dirty").split(b"\0")
    new = work("ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
    found = dict(zip(listing[1::2], listing[0::2], strict=False))
    return {**dict.fromkeys(filter(None, new), b"A"), **found}


def _unconverted(fresh: Git) -> list[bytes]:
    """Paths of a tree just checked out whose file git would store in another form."""
    return [path for path, letter in _changed(fresh).items() if letter == b"M"]


def _check_out(git: Git, paths: Sequence[bytes] | None) -> None:
    """Write these files anew from the index, or all. A file that cannot be converted is written as it is."""
    if paths is None:
        git.says("checkout-index", "--quiet", "--force", "--all")
    else:
        git.says("checkout-index", "--quiet", "--force", "-z", "--stdin", given=_joined(paths))


def _name_unconverted(git: Git, paths: Iterable[bytes]) -> None:
    _write_attributes(git, [b'"/' + _pattern(path) + b'" ' + _UNCONVERTED for path in paths])


def _pattern(path: bytes) -> bytes:
    """A path as an attribute's pattern that fits no other, within quotes."""
    return _SPECIAL.sub(lambda found: _ESCAPED[found[0]], path)


def _write_attributes(git: Git, lines: Iterable[bytes]) -> None:
    folder = git.repository / "info"
    folder.mkdir(exist_ok=True)
    (folder / "attributes").write_bytes(b"".join(line + b"\n" for line in lines))


def _joined(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _same_as_begun(
    work: Git, begun: Callable[[], Git], before: Entries, changed: dict[bytes, bytes]
) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Paths whose file is what it was at the start, and what differs from the index once that is known."""
    wanted = {path for path, letter in changed.items() if letter != b"A" and path in before}
    if not wanted:
        return [], changed
    wanted |= {path for path in before if path.rpartition(b"/")[2] == ATTRIBUTES}
    start = begun()
    _put(start, {path: before[path] for path in wanted if before[path][0] != _SUBMODULE})
    converts_nothing = (work.repository / "info" / "attributes").exists()
    if converts_nothing:
        convert_nothing(start)
    _check_out(start, None)
    paths = [] if converts_nothing else _unconverted(start)
    if paths:
        _name_unconverted(start, paths)
        _name_unconverted(work, paths)
        _check_out(start, paths)
        changed = _changed(work)
    assert work.tree is not None and start.tree is not None  # noqa: PT018, S101  (for the type checker)
    trees = os.fsencode(work.tree), os.fsencode(start.tree)
    compared = [path for path, letter in changed.items() if letter == b"M" and path in wanted]
    return [path for path in compared if _equal(*(os.path.join(tree, path) for tree in trees))], changed  # noqa: PTH118


def _equal(one: bytes, other: bytes) -> bool:
    """Whether these are two equal files, or links to the same name."""
    try:
        modes = [os.lstat(path).st_mode for path in (one, other)]
        if stat.S_IFMT(modes[0]) != stat.S_IFMT(modes[1]):
            return False
        if stat.S_ISLNK(modes[0]):
            return os.readlink(one) == os.readlink(other)  # noqa: PTH115  (paths of bytes)
        executable = [bool(mode & stat.S_IXUSR) for mode in modes]
        return executable[0] == executable[1] and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _unfit(work: Git, changed: Sequence[bytes], remarks: list[str]) -> list[tuple[bytes, str]]:
    """Files that are of no use in the repository without a filter, and why; a remark on each other filter."""
    if not changed:
        return []
    told = work("check-attr", "-z", "--stdin", "filter", given=_joined(changed)).split(b"\0")
    filters = {path: name for path, name in zip(told[0::3], told[2::3], strict=False) if name not in _NO_FILTER}
    assert work.tree is not None  # noqa: S101  (for the type checker: there is a tree)
    files = {path: Path(os.fsdecode(os.path.join(os.fsencode(work.tree), path))) for path in filters}  # noqa: PTH118
    present = {path: file for path, file in files.items() if file.is_file() and not file.is_symlink()}
    large = [path for path, file in present.items() if filters[path] == b"lfs" and not _is_pointer(file)]
    others = Counter(filters[path] for path in present if filters[path] != b"lfs")
    for name, count in sorted(others.items()):
        shown = one_line(name.decode("utf-8", "replace"), 80)
        remarks.append(f"filter {shown} is not run: {count} changed file{'' if count == 1 else 's'} taken as is")
    why = "a file of Git LFS: its content is stored elsewhere, by a filter that is not run"
    return [(path, why) for path in large]


_NO_FILTER = frozenset({b"unspecified", b"unset", b"set"})


def _is_pointer(file: Path) -> bool:
    # An empty file is its own pointer: Git LFS stores it as it is.
    size = file.stat().st_size
    return size == 0 or (size <= _LARGEST_POINTER and beginning(file, _LARGEST_POINTER).startswith(_POINTER))


def _add(work: Git) -> list[LeftOut]:
    """Stage every file that git takes; the others, each with git's own reason."""
    if work.says("add", "--all", "--ignore-errors"):
        return []
    return _add_each(work, list(_changed(work)))


def _add_each(work: Git, paths: Sequence[bytes]) -> list[LeftOut]:
    if not paths:
        return []
    literal = replace(work, variables={"GIT_LITERAL_PATHSPECS": "1"})
    try:
        literal("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", given=_joined(paths))
    except GitFailed as error:
        if len(paths) == 1:
            return [LeftOut(paths[0], one_line(f"git refuses it: {error}", 300))]
        half = len(paths) // 2
        return [*_add_each(work, paths[:half]), *_add_each(work, paths[half:])]
    return []


def _put(git: Git, rows: Mapping[bytes, tuple[bytes, bytes] | None]) -> None:
    """Put these entries into the index; None removes one."""
    removed = [path for path, entry in rows.items() if entry is None]
    if removed:
        git("update-index", "--force-remove", "-z", "--stdin", given=_joined(removed))
    lines = [b"%s %s\t%s\0" % (*entry, path) for path, entry in rows.items() if entry is not None]
    if lines:
        git("update-index", "-z", "--index-info", given=b"".join(lines))


def _staged_by_work(work: Git, index: Path | None, below: Entries) -> dict[bytes, tuple[bytes, bytes] | None]:
    """What only the work's own index says: files a sparse checkout hides, ignored files it tracks no longer."""
    try:
        listing = replace(work, variables={"GIT_INDEX_FILE": str(index)})("ls-files", "-z", "-t") if index else b""
    except GitFailed:
        return {}  # spoiled, or of parts that are not all here: it says nothing
    marks = {row[2:]: row[:1] for row in listing.split(b"\0") if row}
    if not marks:
        return {}
    assert work.tree is not None  # noqa: S101  (for the type checker: there is a tree)
    tree = os.fsencode(work.tree)
    hidden = [path for path, mark in marks.items() if mark == b"S" and path in below]
    absent = [path for path in hidden if not os.path.lexists(os.path.join(tree, path))]  # noqa: PTH118
    removed = [path for path in below if path not in marks]
    return {**{path: below[path] for path in absent}, **dict.fromkeys(_ignored(work, removed))}


def _ignored(work: Git, paths: Sequence[bytes]) -> set[bytes]:
    """Those of these paths that `.gitignore` names, tracked or not."""
    try:
        found = work("check-ignore", "--no-index", "-z", "--stdin", given=_joined(paths)) if paths else b""
    except GitFailed:
        return set()  # none is
    return set(filter(None, found.split(b"\0")))


def _not_ignored(work: Git, left_out: Sequence[LeftOut]) -> list[LeftOut]:
    if not left_out:
        return []
    try:
        found = work("check-ignore", "-z", "--stdin", given=_joined(each.path for each in left_out))
    except GitFailed:
        return list(left_out)  # none is
    ignored = set(found.split(b"\0"))
    return [each for each in left_out if each.path not in ignored]


def _submodules(work: Git, below: Entries) -> list[LeftOut]:
    """Submodules in whose folders the work left something."""
    assert work.tree is not None  # noqa: S101  (for the type checker: there is a tree)
    left_out = []
    for path in (path for path, (mode, _) in below.items() if mode == _SUBMODULE):
        folder = os.path.join(os.fsencode(work.tree), path)  # noqa: PTH118  (paths of bytes)
        try:
            with os.scandir(folder) as inside:
                used = next(inside, None) is not None
        except OSError:
            used = False
        if used:
            left_out.append(LeftOut(path, "a submodule: work inside it is not taken"))
    return left_out


def _drop_refused(work: Git, begun: Callable[[], Git], before: Entries, below: Entries, staged: Staged) -> None:
    """Take files that no repository accepts, for what they say to git, out of the index."""
    index = _entries(work("ls-files", "-s", "-z"), 1)
    suspects = {
        path: entry
        for path, entry in index.items()
        if before.get(path) != entry and entry[0] != _SUBMODULE and _CHECKED.fullmatch(path.rpartition(b"/")[2])
    }
    while suspects:
        refusal = _refusal(begun(), work, suspects)
        if refusal is None:
            return
        name, why = refusal
        named = [path for path, (_, found) in suspects.items() if found.decode() == name]
        if not named:
            return  # nothing that could be left out: the repository itself has the last word
        for path in named:
            staged.rewritten = staged.rewritten or below.get(path) == suspects.pop(path)
            staged.left_out.append(LeftOut(path, one_line(f"git refuses it: {why}", 300)))
        _put(work, {path: before.get(path) for path in named})


def _refusal(trial: Git, work: Git, suspects: Entries) -> tuple[str, str] | None:
    """The object among these that git refuses, and why; None if it takes them all."""
    # The files lie in the work's repository, and the trees that name them are put there, too.
    git = replace(work, tree=None, variables={"GIT_INDEX_FILE": str(trial.repository / "trial.index")})
    _put(git, suspects)
    place = trial.repository / "trial"
    wanted = b"\n".join([git.line("write-tree").encode(), *(found for _, found in suspects.values()), b""])
    name = git("pack-objects", "--revs", "--quiet", str(place), given=wanted).decode().strip()
    try:
        trial("index-pack", "--stdin", "--strict", stdin=place.with_name(f"trial-{name}.pack"))
    except GitFailed as error:
        found = _REFUSED.search(str(error))
        return (found[1], found[2]) if found else None
    return None


def summary(left_out: Sequence[LeftOut]) -> dict[str, Any]:
    """What was left out, as a result says it; empty if nothing was."""
    if not left_out:
        return {}
    named = sorted({each.path: each for each in left_out}.values(), key=lambda each: each.path)
    more = {"left_out_more": len(named) - MOST_NAMED} if len(named) > MOST_NAMED else {}
    return {"left_out": [each.document() for each in named[:MOST_NAMED]], **more}
