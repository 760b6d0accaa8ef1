"""Flower: how it is configured when Vibey runs it."""
