"""Trackers: each metrics line for Weights & Biases or Trackio, sent by a process of its own.

`tracker` starts it and passes lines on, `follower` is what that process does, `services` knows each tracker.
Read `tracker` first.
"""
