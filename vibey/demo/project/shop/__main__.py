"""Print a receipt: `python -m shop SKU…`."""

from __future__ import annotations

import sys

from .pricing import receipt


def main() -> None:
    """Print the receipt for the articles named as arguments."""
    for line in receipt(sys.argv[1:]):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
