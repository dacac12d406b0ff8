"""Trackers: sends metrics to Weights & Biases or Trackio from a separate process.

`tracker` starts and notifies the process, `follower` is its main function, `services` has one function per tracker.
Read `tracker` first.
"""
