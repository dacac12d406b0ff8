"""Metrics: what happened becomes one line at a time, for files, the screen and whoever asks.

`names` lists every metric, `recorder` builds the lines, `sinks` write them, `bottleneck` says who waits for whom.
Read `recorder` first.
"""
