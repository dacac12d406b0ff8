"""Metrics: the lines that a run writes to files and trackers, and what the screen shows.

`names` lists every metric, `recorder` builds the lines, `sinks` writes them, `bottleneck` says who waits for whom.
Read `recorder` first.
"""
