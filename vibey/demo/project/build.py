"""Build step: compile the package and pack it into one runnable archive, `shop.pyz`."""

from __future__ import annotations

import argparse
import compileall
import json
import shutil
import sys
import zipapp
from pathlib import Path

HERE = Path(__file__).resolve().parent


def build(out: Path) -> Path:
    """Make the archive in `out`, a folder that does not exist yet, and return its path."""
    stage = out / "stage"
    shutil.copytree(HERE / "shop", stage / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    if not compileall.compile_dir(stage, quiet=1):
        sys.exit("build: some files do not compile")
    archive = out / "shop.pyz"
    zipapp.create_archive(stage, archive, main="shop.__main__:main", compressed=True)
    return archive


def main() -> None:
    """Build where `--out` says; the last line printed is a JSON object with the archive's path and size in bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new folder for the archive")
    archive = build(parser.parse_args().out)
    sys.stdout.write(json.dumps({"archive": str(archive), "bytes": archive.stat().st_size}) + "\n")


if __name__ == "__main__":
    main()
