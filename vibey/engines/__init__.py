"""Engines: one adapter per kind behind one small contract, and the supervision every run gets.

Start reading at `vibey.engines.contract`; how a process tree is kept and killed is told in
`vibey.engines.supervisor`.
"""
