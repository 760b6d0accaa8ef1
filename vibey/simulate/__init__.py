"""Simulate: the router's own decisions in virtual time, on a trace instead of a fleet.

`trace` reads what happens, `fleet` keeps engines and circuits, `rules` modes and caps, `queue` the waiting jobs, `run`
the clock; every decision is made by `vibey.domain`, exactly as on a live installation.
"""
