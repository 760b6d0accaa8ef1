"""Units the shop's articles are measured in."""

from __future__ import annotations


def grams_to_kilograms(amount: float) -> float:
    """Convert by a factor of 0.001."""
    return amount * 0.001
