"""Postgres: the truth. Tables on one page, one module of named statements per aggregate, and the migrations.

Lock order everywhere, sorted by key within each kind, always `FOR NO KEY UPDATE`:
installation → engines → accounts → credits → projects → notes → jobs → runs.
"""
