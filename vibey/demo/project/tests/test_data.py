"""What must hold for the data, whoever changes it."""

from __future__ import annotations

import unittest

from shop.data import flags, read


class DataTest(unittest.TestCase):
    """The tables the code reads."""

    def test_prices_are_positive_cents(self) -> None:
        """Every article has a price in whole cents, above nothing and below a thousand."""
        for article, cents in read("catalog").items():
            with self.subTest(article=article):
                self.assertIsInstance(cents, int)
                self.assertIn(cents, range(1, 100_000))

    def test_discounts_leave_something_to_pay(self) -> None:
        """Every discount takes something off, and never all of it."""
        for code, percent in read("discounts").items():
            with self.subTest(code=code):
                self.assertIn(percent, range(1, 100))

    def test_flags_the_code_asks_for_exist(self) -> None:
        """The flags that pricing reads are there."""
        self.assertLessEqual({"free_shipping", "gift_wrap"}, set(flags()))
