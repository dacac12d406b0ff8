"""Metrics: the lines that a run writes to files and trackers; `progress/` is what the screen shows.

`names` lists every metric, `recorder` builds the lines, `sinks` writes them, `speed_model` computes how fast a run can
be, `bottleneck` reports what limits it. The recorder collects in `episode_window`, `period_metrics` and `info_metrics`.
Read `recorder` first.
"""
