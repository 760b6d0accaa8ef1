"""Building engines: kinds, their settings, and what they say of themselves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from vibey.domain.effort import Effort
from vibey.domain.errors import InvalidInput, Refused, UnknownName
from vibey.engines.command import command_line
from vibey.engines.contract import EngineConfig
from vibey.engines.registry import build, known_kinds

if TYPE_CHECKING:
    from pathlib import Path


def command(*argv: str, **more: object) -> EngineConfig:
    """A command engine named `e`."""
    return EngineConfig("e", "command", argv=argv, **more)  # type: ignore[arg-type]


def test_unknown_kind_names_the_known_ones() -> None:
    """A kind nobody provides is refused with the list of those there are."""
    with pytest.raises(
        UnknownName, match="celery, claude-code, codex, command, gemini, noop, openai, opencode, python, qwen-code"
    ):
        build(EngineConfig("e", "nosuchkind"))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package installed beside us that brings kinds of its own, one of them broken, one named like ours."""
    (tmp_path / "vibey_extra.py").write_text(
        "from vibey.engines.kit import InvalidInput\n"
        "from vibey.engines.noop import NoopEngine as Extra\n"
        "class Choosy(Extra):\n"
        "    def __init__(self, config):\n"
        "        raise InvalidInput(f'engine.{config.name}.model', config.model, 'a model')\n"
        "class Clumsy(Extra):\n    def __init__(self):\n        pass\n"
        "class Wordless(Extra):\n    def describe(self):\n        return None\n"
        "class Lacking(Extra):\n    doctor = run = None\n"
    )
    metadata = tmp_path / "vibey_extra-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vibey-extra\nVersion: 1.0\n")
    points = "[vibey.engines]\nextra = vibey_extra:Extra\nbroken = vibey_missing:Engine\ncommand = vibey_extra:Extra\n"
    points += "".join(f"{name.lower()} = vibey_extra:{name}\n" for name in ("Choosy", "Clumsy", "Wordless", "Lacking"))
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vibey_extra", raising=False)


@pytest.mark.usefixtures("installed")
def test_installed_kind_is_found() -> None:
    """A kind from the entry-point group is built like one of ours, and cannot take the place of ours."""
    assert {"extra", "broken"} <= set(known_kinds())
    assert build(EngineConfig("e", "extra")).doctor().good
    assert type(build(command("sh"))).__name__ == "CommandEngine"


@pytest.mark.usefixtures("installed")
def test_broken_kind_names_its_package() -> None:
    """A kind whose package cannot be loaded says which, and harms no other."""
    with pytest.raises(Refused, match="vibey_missing:Engine"):
        build(EngineConfig("e", "broken"))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("kind", "reason"), [("clumsy", "TypeError"), ("wordless", "gives NoneType"), ("lacking", "no method doctor, run")]
)
def test_a_kind_that_makes_no_engine_is_refused(kind: str, reason: str) -> None:
    """What does not keep the contract's shape is told when it is built, by the place it comes from."""
    with pytest.raises(Refused, match=f"vibey_extra:{kind.title()}.*{reason}"):
        build(EngineConfig("e", kind))


@pytest.mark.usefixtures("installed")
def test_an_installed_kind_may_refuse_settings() -> None:
    """A stranger's kind tells what it cannot work with as ours do."""
    with pytest.raises(InvalidInput, match=r"engine\.e\.model"):
        build(EngineConfig("e", "choosy"))


def test_placeholders_are_filled() -> None:
    """Known placeholders are replaced, doubled braces stand for themselves, other braces are text."""
    config = command("a", "--m={model}", '{"json": 1}', "{{model}}", "{effort}", "{run_directory}/x", model="m")
    line = command_line(config, Effort.HIGH, "/run")
    assert line == ("a", "--m=m", '{"json": 1}', "{model}", "high", "/run/x")


@pytest.mark.parametrize("argument", ["{payload}", "x{prompt}y", "{job_id}"])
def test_other_placeholders_are_refused(argument: str) -> None:
    """Nothing of a job can be asked for among the arguments, neither plainly nor by effort."""
    with pytest.raises(InvalidInput, match=r"engine\.e\.argv"):
        build(command("a", argument))
    with pytest.raises(InvalidInput):
        build(command("a", efforts={Effort.LOW: (argument,)}))


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig("e", "command"),
        EngineConfig("e", "python"),
        EngineConfig("e", "python", callable="nocolon"),
        EngineConfig("e", "python", callable="a:b", env=("VIBEY_REDIS_URL",)),
        EngineConfig("e", "command", argv=("a",), env=("PGPASSWORD",)),
        EngineConfig("e", "openai", model="m"),
        EngineConfig("e", "openai", base_url="http://127.0.0.1:1/v1"),
        EngineConfig("e", "openai", base_url="http://user:pass@127.0.0.1:1/v1", model="m"),
        EngineConfig("e", "openai", base_url="http://h/v1", model="m", efforts={Effort.HIGH: ("--model", "x")}),
        EngineConfig("e", "openai", base_url="http://h/v1", model="m", efforts={Effort.HIGH: ("messages=[]",)}),
    ],
)
def test_unusable_settings_are_refused(config: EngineConfig) -> None:
    """A kind says at once what it cannot work with."""
    with pytest.raises(InvalidInput, match=r"engine\.e\."):
        build(config)


def test_description_is_the_operators() -> None:
    """Efforts and capabilities are those declared."""
    description = build(
        command("a", efforts={Effort.HIGH: (), Effort.LOW: ()}, capabilities=frozenset({"web"}))
    ).describe()
    assert description.efforts == (Effort.LOW, Effort.HIGH)
    assert description.capabilities == {"web"}


def test_doctor_looks_for_the_program(tmp_path: Path) -> None:
    """A program on the path is well; a missing, relative or plain file is not, and the doctor says what to do."""
    assert build(command("sh")).doctor().good
    plain = tmp_path / "plain"
    plain.touch(mode=0o600)
    for name in ("nosuchprogram", "./sh", str(plain)):
        health = build(command(name)).doctor()
        assert not health.good
        assert "engine.e.argv" in health.fix
