"""Chaos: a seeded run of many jobs and many faults over real processes. `plan` says what, `run` does it."""
