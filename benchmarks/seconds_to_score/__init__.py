"""Seconds from the start of a process to a score: presets for speed beside the peers' best published settings.

Read `works.py` first, then `__main__.py`.
"""
