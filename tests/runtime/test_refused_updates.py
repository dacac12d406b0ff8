"""A loss that is not finite is told at the first update that is refused, and again if it ends the run."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.runs import small_run

import offbeat
from offbeat.algorithms.base import Batch
from offbeat.algorithms.ppo import PPO


class BreaksInThirdStep(PPO):
    """A PPO whose advantages are NaN from its third learning step on."""

    steps = 0

    def prepare(self, batch: Batch) -> Batch:
        self.steps += 1
        if self.steps > 2:
            batch["reward"][:] = np.nan
        return super().prepare(batch)


def test_the_first_refused_update_is_told_once_with_what_to_look_for(tmp_path):
    run = small_run(tmp_path / "run", algorithm=f"{__name__}:BreaksInThirdStep", steps=200)
    assert run.metrics["updates_refused"] > 1
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("an update of learning step 2 had a loss or gradient that was not finite") == 1


def test_a_run_whose_updates_are_all_refused_ends_with_its_weights_saved(tmp_path):
    with pytest.raises(
        offbeat.RunFailed,
        match=r"updates of the policy were refused.* NaN or infinity\. If the encoder or the algorithm is your own,",
    ):
        small_run(tmp_path / "run", algorithm=f"{__name__}:BreaksInThirdStep", steps=10_000)
    assert offbeat.load(tmp_path / "run")(np.zeros(4, np.float32)) in (0, 1)
