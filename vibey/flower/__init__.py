"""Flower: the router's own pages in it, and how it is configured when Vibey runs it; `seam` says how they meet."""
