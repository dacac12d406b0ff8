"""Names in `info_metrics`: a key of the env's infos, or a key and how the numbers of an episode become one.

info_metrics       what it is                          in metrics lines        in scores of an evaluation
distance           mean over the steps that have it    info/distance_mean      info/distance
is_success:last    mean over episodes of the last one  info/is_success_last    info/is_success_last
"""

from __future__ import annotations

INFO = "info/"
"""Start of the names of these metrics and scores."""
REDUCTIONS = ("last", "max", "sum")
"""What can be after the colon: the number of an episode is the last, the largest, or the sum of those in its infos."""


def key_of(name: str) -> str:
    """Return the key in the infos; a/b is the key b of the dict a."""
    return name.partition(":")[0]


def reduction_of(name: str) -> str:
    """Return how the numbers of an episode become one; '' if each step counts by itself."""
    return name.partition(":")[2]


def score_of(name: str) -> str:
    """Return the name of the score of an evaluation."""
    return INFO + name.replace(":", "_")


def metric_of(name: str) -> str:
    """Return the name of the metric of training."""
    return score_of(name) if reduction_of(name) else f"{score_of(name)}_mean"
