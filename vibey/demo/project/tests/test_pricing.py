"""What an order costs."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

from shop import conversions, pricing
from shop.data import flags, read

CASES = json.loads(Path(__file__).with_name("cases.json").read_text("utf-8"))


class PricingTest(unittest.TestCase):
    """Sums, discounts and shipping."""

    def test_subtotal_adds_prices(self) -> None:
        """An order's subtotal is the sum of its prices."""
        prices = read("catalog")
        self.assertEqual(pricing.subtotal(["tea", "tea", "mug"]), 2 * prices["tea"] + prices["mug"])

    def test_unknown_article(self) -> None:
        """An article the shop does not have is refused."""
        with self.assertRaises(KeyError):
            pricing.subtotal(["unicorn"])

    def test_unknown_code_takes_nothing_off(self) -> None:
        """A mistyped discount code changes nothing."""
        self.assertEqual(pricing.discounted(999, "NONSENSE"), 999)

    def test_shipping_follows_its_flag(self) -> None:
        """Large orders ship for nothing if, and only if, the flag says so."""
        large = pricing.FREE_SHIPPING_FROM_CENTS
        self.assertEqual(pricing.shipping(large) == 0, flags()["free_shipping"])
        self.assertEqual(pricing.shipping(large - 1), pricing.SHIPPING_CENTS)

    def test_receipt_ends_with_the_total(self) -> None:
        """The last line of a receipt is what the order costs."""
        self.assertTrue(pricing.receipt(["lamp"])[-1].endswith(f"{pricing.total(['lamp']) / 100:.2f}"))

    def test_discounts(self) -> None:
        """Each discount takes off what its case says."""
        for code, cents, left in CASES["discounts"]:
            with self.subTest(code=code):
                self.assertEqual(pricing.discounted(cents, code), left)


class ConversionTest(unittest.TestCase):
    """Units."""

    def test_conversions(self) -> None:
        """Each conversion gives what its case says."""
        for name, given, expected in CASES["conversions"]:
            with self.subTest(name=name):
                self.assertAlmostEqual(getattr(conversions, name)(given), expected, places=6)
