"""The wheel, installed alone: each Python that is here, each surrounding once, a demo from an empty folder.

The environments hold the wheel and what it asks for, and no checkout is on any path: what only an installation for
development brings is missing here as it is for a user.
"""

from __future__ import annotations

import email
import email.policy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import vibey
from tests.support.json_output import described
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
JOBS = 8
NOBODY = 65534
LANGUAGE = {"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", os.defpath)}

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


@dataclass(frozen=True)
class Shop:
    """The wheel, and a folder that every user may enter, with an environment for each Python."""

    folder: Path
    wheel: Path
    environments: dict[str, Path] = field(default_factory=dict)

    def install(self, version: str, python: str) -> None:
        """Make an environment of this Python with the wheel alone."""
        place = self.folder / f"python{version}"
        subprocess.run([python, "-m", "venv", "--without-pip", str(place)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--quiet"]
        quiet = ["--disable-pip-version-check", "--no-warn-script-location", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *quiet, str(self.wheel)], check=True)
        self.environments[version] = place

    def program(self, version: str) -> str:
        """The `vibey` of an environment; the test is skipped, and says so, where this Python is missing."""
        if version not in self.environments:
            pytest.skip(f"Python {version} was not found on this machine")
        return str(self.environments[version] / "bin/vibey")

    def any_program(self, user: int | None = None) -> str:
        """The `vibey` of one environment, whose interpreter that user may run."""
        for place in self.environments.values():
            python = str(place / "bin/python")
            if subprocess.run([python, "-c", ""], user=user, check=False, capture_output=True).returncode == 0:
                return str(place / "bin/vibey")
        pytest.skip(f"no Python was found on this machine that user {user} may run")

    def demo(self, program: str, place: Path, variables: Mapping[str, str], **surroundings: int) -> None:
        """Run the demo in an empty folder: every job succeeds, and nothing is left."""
        place.mkdir(parents=True)
        if "user" in surroundings:
            os.chown(place, surroundings["user"], surroundings["group"])
        command = [program, "demo", "--json", "--no-keep", "--jobs", str(JOBS)]
        environ = {**LANGUAGE, **variables}
        try:
            done = subprocess.run(
                command,
                cwd=place,
                env=environ,
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
                **surroundings,
            )
            assert done.returncode == 0, done.stderr
            report = described("demo", json.loads(done.stdout))
            assert (report["jobs"], report["succeeded"]) == (JOBS, JOBS)
        finally:
            for record in place.rglob("services.json"):
                embedded.destroy(record.parent)


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """The wheel, built from the tracked files alone, and installed for each Python that is here."""
    folder = Path(tempfile.mkdtemp(prefix="vibey-wheel-"))
    try:
        folder.chmod(0o755)
        tree, wheels = folder / "tree", folder / "wheels"
        for name in subprocess.check_output(
            [shutil.which("git") or "git", "ls-files", "-z"], cwd=ROOT, text=True
        ).split("\0"):
            if name and (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*build, "--wheel-dir", str(wheels), str(tree)], check=True)
        made = Shop(folder, next(wheels.glob("vibey-*.whl")))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda each: made.install(*each), pythons().items()))
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pythons() -> dict[str, str]:
    """The interpreters of this machine, by version: on the PATH, under pyenv, and the one that runs this."""
    found: dict[str, str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    system = [Path("/usr/bin/python3"), Path(sys.executable)]
    for version in PYTHONS:
        usual = [*sorted(pyenv.glob(f"{version}.*/bin/python3")), Path(f"/usr/bin/python{version}")]
        on_path = shutil.which(f"python{version}")
        for candidate in [*system, *usual, *([Path(on_path)] if on_path else [])]:
            if not candidate.exists():
                continue
            say = "import sys, venv, sqlite3; print('%d.%d' % sys.version_info[:2])"
            done = subprocess.run([candidate, "-c", say], check=False, capture_output=True, text=True)
            if done.stdout.strip() == version:
                found[version] = str(candidate)
                break
    return found


@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_runs_the_demo(shop: Shop, version: str) -> None:
    """The wheel asks for all that it needs, on every Python it is for."""
    shop.demo(shop.program(version), shop.folder / f"demo{version}", {"HOME": str(shop.folder)})


def test_another_user_than_root_runs_the_demo(shop: Shop) -> None:
    """Whoever installed it: a plain user needs nothing of root's."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user; this user is one")
    place = shop.folder / "nobody"
    ids = {"user": NOBODY, "group": NOBODY}
    shop.demo(shop.any_program(NOBODY), place, {"HOME": str(place)}, **ids)


def test_a_path_of_any_letters_runs_the_demo(shop: Shop) -> None:
    """Blanks, a per cent sign, letters that are not ASCII."""
    shop.demo(shop.any_program(), shop.folder / "w 4 %s ünï ☃" / "mit leer", {"HOME": str(shop.folder)})


def test_a_strict_umask_runs_the_demo(shop: Shop) -> None:
    """Nobody else may read what it makes, its own database server included if root gives it to another user."""
    shop.demo(shop.any_program(), shop.folder / "umask", {"HOME": str(shop.folder)}, umask=0o077)


def test_without_a_home_the_demo_runs(shop: Shop) -> None:
    """As under some schedulers and init systems."""
    shop.demo(shop.any_program(), shop.folder / "homeless", {})


def test_a_long_folder_for_temporary_files_runs_the_demo(shop: Shop) -> None:
    """Sockets have short names wherever temporary files go."""
    long = shop.folder / ("t" * 75) / ("u" * 75)
    long.mkdir(parents=True)
    shop.demo(shop.any_program(), shop.folder / "long", {"HOME": str(shop.folder), "TMPDIR": str(long)})


def test_the_configuration_files_are_in_the_wheel(shop: Shop, tmp_path: Path) -> None:
    """The annotated configuration, examples, dashboard, alerts and Procfile, each as it is in the repository."""
    program = shop.any_program()

    def said(*arguments: str) -> str:
        return subprocess.check_output([program, *arguments], cwd=tmp_path, env=LANGUAGE, text=True)

    files = {path.relative_to(ROOT / "config").as_posix(): path for path in (ROOT / "config").rglob("*.*")}
    files = {name: path for name, path in files.items() if "__pycache__" not in name} | {"Procfile": ROOT / "Procfile"}
    assert set(said("config", "example").split()) == set(files)
    for name, path in files.items():
        assert said("config", "example", name) == path.read_text(encoding="utf-8")
    assert said("--version") == f"vibey {vibey.__version__}\n"


def test_only_our_own_name_is_installed(shop: Shop) -> None:
    """No module beside `vibey` that one of a user's could be called like, such as `tasks`."""
    with zipfile.ZipFile(shop.wheel) as wheel:
        top = {name.partition("/")[0] for name in wheel.namelist()}
        metadata = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        page = email.message_from_bytes(wheel.read(metadata), policy=email.policy.default)
        manual = [name for name in wheel.namelist() if name.endswith("share/man/man1/vibey.1")]
    assert len(manual) == 1
    assert {name for name in top if not name.endswith((".dist-info", ".data"))} == {"vibey"}
    assert "Operating System :: POSIX :: Linux" in page.get_all("Classifier")
    description = page.get_payload()
    assert len(description) > 5000
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not re.match(r"https?://", link)] == []
