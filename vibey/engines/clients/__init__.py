"""Clients: engines that are coding agents of a vendor's, driven by their command line.

One engine for all of them (`client`), one small module per client that says how it is started, what its stream
means and how it words a refusal. What a client shows of a refusal is judged as it arrives (`rules`, `reading`).
"""
