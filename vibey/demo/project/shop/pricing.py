"""Prices, in whole cents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .data import flags, read

if TYPE_CHECKING:
    from collections.abc import Sequence

SHIPPING_CENTS = 490
GIFT_WRAP_CENTS = 150
FREE_SHIPPING_FROM_CENTS = 5000


def subtotal(articles: Sequence[str]) -> int:
    """The sum of the articles' prices; KeyError for one the catalogue does not have."""
    prices = read("catalog")
    return sum(prices[article] for article in articles)


def discounted(cents: int, code: str) -> int:
    """What is left of an amount under a discount code, rounded down; an unknown code takes nothing off."""
    return cents * (100 - read("discounts").get(code, 0)) // 100


def shipping(cents: int) -> int:
    """What shipping costs for an order of this amount."""
    is_free = flags()["free_shipping"] and cents >= FREE_SHIPPING_FROM_CENTS
    return 0 if is_free else SHIPPING_CENTS


def total(articles: Sequence[str], code: str = "") -> int:
    """What an order costs in all."""
    goods = discounted(subtotal(articles), code)
    wrapping = GIFT_WRAP_CENTS * len(articles) if flags()["gift_wrap"] else 0
    return goods + wrapping + shipping(goods)


def receipt(articles: Sequence[str]) -> list[str]:
    """The lines of a receipt, the total last."""
    prices = read("catalog")
    lines = [f"{article:<12}{prices[article] / 100:>8.2f}" for article in articles]
    return [*lines, f"{'total':<12}{total(articles) / 100:>8.2f}"]
