"""A run warns of booleans in the infos of steps that are averaged over steps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.sample_envs.evaluated_variants import Sized
from tests.support.runs import small_run

import offbeat
from offbeat.core.errors import MeanOverSteps


class Solved(Sized):
    """Says in each step whether it is solved, and how far it is."""

    def step(self, action: Any) -> Any:
        *outcome, _ = super().step(action)
        return (*outcome, {"solved": outcome[2], "distance": 0.5})


def train(path: Path, *names: str) -> offbeat.Run:
    return small_run(path, f"{__name__}:Solved", steps=128, info_metrics=names)


def test_a_run_warns_once_of_a_boolean_that_is_averaged_over_steps_and_names_the_last_one(tmp_path):
    with pytest.warns(MeanOverSteps, match="info/solved_mean is the share of the steps") as found:
        run = train(tmp_path / "run", "distance", "solved")
    assert len([warning for warning in found if warning.category is MeanOverSteps]) == 1
    log = (run.path / "log.txt").read_text()
    assert log.count("pass --set info_metrics=distance,solved:last") == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", MeanOverSteps)
        offbeat.resume(run.path, steps=256, progress="none")


@pytest.mark.parametrize("names", [["distance", "solved:last"], ["solved", "solved:max"]])
def test_a_run_does_not_warn_of_a_boolean_of_episodes(tmp_path, names):
    with warnings.catch_warnings():
        warnings.simplefilter("error", MeanOverSteps)
        train(tmp_path / "run", *names)
