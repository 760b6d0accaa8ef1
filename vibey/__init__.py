"""Vibey routes long, expensive jobs to a mixed fleet of engines.

Importing this package is light and has no effects: nothing is read, opened or started.
"""

__version__ = "0.1.0"
