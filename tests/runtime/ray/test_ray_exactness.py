"""With `lag = "exact"` a run on a Ray cluster of two nodes has the bits of serial, also through a stop and a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.checks import assert_parts_are_the_whole
from tests.support.matrix import CARTS, TEAMS
from tests.support.pearl_runs import ENCODER, TASKS
from tests.support.replay_runs import ON_A_REPLAY, small_sac
from tests.support.runs import small_run
from tests.support.thorough import thorough

from offbeat.api.train import Run

pytestmark = pytest.mark.usefixtures("connected")


class Cell(NamedTuple):
    """A run in serial, and another one in two parts."""

    algorithm: str
    env: str
    first: str
    """The runtime of the first part, and of the second."""
    second: str
    more: dict[str, Any]

    def train(self, path: Path, **changes: Any) -> Run:
        layout = {"actors": 2, "lag": "exact", **self.more, **changes}
        if self.algorithm in ON_A_REPLAY:
            return small_sac(path, self.env, algorithm=self.algorithm, **{"utd_ratio": "1/2", **layout})
        return small_run(path, self.env, algorithm=self.algorithm, **{"steps": 512, "unroll_length": 8, **layout})


CORE = {"core": "gru", "core_size": 8}
SERVED = {**CORE, "inference": "worker"}
TWICE = {"max_lag": 2, "unrolls_per_batch": 4, "decorrelate": True, "steps": 768}
CELLS = [
    # Two tickets of each actor in a batch, which are sent together, a lag of two, and policies with their own settings.
    Cell("ppo", CARTS, "ray", "processes", {**TWICE, "policies": TEAMS}),
    Cell("sac", "Pendulum-v1", "serial", "ray", {"max_ahead": 6, "prioritized": True}),
    # Images with frames of the unroll before, and states of a core, which an inference worker computes.
    Cell("ppo", "offbeat/PixelsGoal-v0", "ray", "serial", {"max_lag": 1, "steps": 384, "frame_stack": 2, **SERVED}),
    # Visits to tasks, whose first rows are cuts, and a context that the actor keeps.
    Cell("pearl", "offbeat/PointRobot-v0", "ray", "serial", {"max_ahead": 2, **TASKS, **ENCODER, "chunk_length": 5}),
]
MORE_CELLS = [
    Cell("ppo", "CartPole-v1", "ray", "processes", TWICE),
    Cell("ppo", "offbeat/PixelsGoal-v0", "ray", "ray", {"max_lag": 1, "steps": 384, "frame_stack": 2}),
    Cell("impala", "CartPole-v1", "threads", "ray", {"max_lag": 1, **SERVED}),
    Cell("dqn", "offbeat/PixelsGoal-v0", "ray", "threads", {"max_ahead": 3, "frame_stack": 2}),
    Cell("td3", "Pendulum-v1", "ray", "serial", {"max_ahead": 3, "prioritized": True}),
    Cell("dqn", "CartPole-v1", "ray", "serial", {"max_ahead": 2, **CORE, "batch_size": 24, "burn_in": 6, "n_step": 3}),
    Cell("a2c", "CartPole-v1", "processes", "ray", {"max_lag": 0}),
]


@pytest.mark.parametrize(
    "cell", [*CELLS, *thorough(*((cell,) for cell in MORE_CELLS))], ids=lambda c: "-".join(map(str, c[:-1]))
)
def test_run_on_two_nodes_resumed_in_another_runtime_has_the_weights_and_metrics_of_serial(tmp_path, cell):
    assert_parts_are_the_whole(cell.train, cell.first, cell.second, tmp_path)
