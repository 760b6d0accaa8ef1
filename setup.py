"""What pyproject.toml cannot express of the build: config/ and the manual page in the wheel, README.md on its page.

Nothing is kept twice: `vibey config example` reads these files from the wheel, or from config/ in a checkout.
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LINK = re.compile(r"!?\[(?P<text>[^\]]*)\]\((?!https?://)[^)]*\)")
# Linked pages are in the repository and in the source distribution, where a package's page cannot lead.
NOTE = "\n\nThe pages of `docs/` that this text names come with the source distribution and the repository.\n"


class BuildWithConfiguration(build_py):
    """Copies config/ and the Procfile to `vibey/config_files`; an editable install has them in the checkout."""

    def run(self) -> None:
        """Build the packages, then add the files."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "vibey", "config_files")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("config", target, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy("Procfile", target)


setup(
    data_files=[("share/man/man1", ["docs/man/vibey.1"])],
    cmdclass={"build_py": BuildWithConfiguration},
    long_description=LINK.sub(lambda link: link["text"], Path("README.md").read_text(encoding="utf-8")) + NOTE,
    long_description_content_type="text/markdown",
)
