"""Trains with Sample Factory, in its own environment."""

from __future__ import annotations

from typing import Any

from sample_factory.algo.utils.misc import ExperimentStatus


def run_to_end(runner: Any) -> None:
    """Start the processes of a runner from `make_runner`, and train to the end.

    Raises:
        SystemExit: the run failed.
    """
    status = runner.init()
    if status == ExperimentStatus.SUCCESS:
        status = runner.run()
    if status != ExperimentStatus.SUCCESS:
        raise SystemExit(f"Sample Factory ended with status {status}")
