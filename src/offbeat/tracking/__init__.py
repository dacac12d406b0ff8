"""Trackers: send metrics to Weights & Biases or Trackio from a separate process.

`tracker` starts and notifies the process, `follower` is its main function, `starters` has one function per tracker, and
`tracker_file` is what a resume continues.
Read `tracker` first.
"""
