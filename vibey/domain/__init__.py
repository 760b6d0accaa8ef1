"""The pure core: frozen values in, values out. No clock, randomness, I/O, logging or environment.

Start reading at `vibey.domain.decide.decide`.
"""
