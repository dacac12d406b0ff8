"""Metrics: what happened becomes one line at a time, for files, the screen and whoever asks.

`names` lists every metric, `recorder` builds the lines, `sinks` write them, `speed_model` computes how fast a
run can be, `bottleneck` reports what limits it.
Read `recorder` first.
"""
