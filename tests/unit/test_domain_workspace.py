"""Which engines can work in a repository, by its name alone."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.workspace import Roots, engines_for

CODING = Roots("claude", "claude-code", ("/srv/repos", "/home/me/src"))
OTHER = Roots("codex", "codex", ("/srv",))
SERVER = Roots("server", "openai")
SCRIPT = Roots("script", "command")


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        ("site", {"claude", "codex"}),
        ("deep/down/site", {"claude", "codex"}),
        ("/srv/repos/site", {"claude", "codex"}),
        ("/srv/repos", {"claude", "codex"}),
        ("/srv/./repos//site/", {"claude", "codex"}),
        ("/srv/repository", {"codex"}),
        ("/srv2/site", set()),
        ("/home/me/src/x", {"claude"}),
        ("/srv/repos/../../etc", set()),
        ("../site", set()),
        ("", set()),
        (None, set()),
        (7, set()),
        (["site"], set()),
    ],
)
def test_a_repository_lies_under_the_roots_that_contain_its_name(repository: object, expected: set[str]) -> None:
    """Part by part, so that a folder whose name only begins alike is another one; engines without roots never."""
    assert engines_for(repository, [CODING, OTHER, SERVER, SCRIPT]) == expected


def test_without_any_roots_programs_read_the_payload_themselves() -> None:
    """`repo` cannot mean a repository there: kinds that work in folders are out, programs have it as data."""
    assert engines_for("site", [SERVER, SCRIPT]) == {"script"}
    assert engines_for({"owner": "me"}, [SERVER, SCRIPT, Roots("n", "noop"), Roots("p", "python")]) == {
        "script",
        "n",
        "p",
    }
    assert engines_for("site", []) == frozenset()


def test_roots_that_are_not_known_yet_keep_no_engine_out() -> None:
    """Rows written by an earlier version: its run finds out."""
    assert engines_for("/x", [Roots("old", "openai", None), CODING]) == {"old"}


names = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4).map("/".join)


@given(names, st.lists(names, max_size=3))
def test_containment_is_that_of_whole_path_parts(repository: str, roots: list[str]) -> None:
    """An oracle by text: a root followed by a slash begins the path followed by a slash."""
    path, folders = f"/{repository}", tuple(f"/{root}" for root in roots)
    inside = any(posixpath.join(path, "").startswith(posixpath.join(folder, "")) for folder in folders)
    found = engines_for(path, [Roots("e", "codex", folders), Roots("other", "codex", ("/elsewhere",))])
    assert found == ({"e"} if inside else set())
