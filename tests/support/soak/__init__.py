"""Soak: a real fleet under a steady load for minutes or hours, watched from outside; nothing of it may grow."""
