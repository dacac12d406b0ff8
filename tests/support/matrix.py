"""The matrix: which algorithms are trained on what, and what must hold of each of them, whatever happens.

It is read by the tests, which take one cell for each algorithm and each feature (`IN_CI`), and by
benchmarks/exactness.py, which takes them all. The checks themselves are in checks.py.

A new algorithm needs a row in `ALGORITHMS`, a new feature of envs or networks one in `FEATURES` and, in
self_checking_rows.py, how its rows show that they are whole. What an algorithm learns to take leaves `refused`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.replay_runs import ON_A_REPLAY, small_sac
from tests.support.runs import small_run

from offbeat.api.train import Run

ONE_CHOICE = "supports only one Discrete action"
BOX = {"td3": "but TD3 expects a bounded box", "crossq": "but CrossQ expects a bounded box"}
CHOICES = {"pearl": "has no tasks", **BOX}
SEVERAL = {"pearl": "has several agents", **BOX}
ENVS = ("tests.sample_envs.run_envs",)
CARTS = "offbeat.envs.testing.worlds:CartPoles"
TEAMS: dict[str, Any] = {"red": {"agents": "cart_0"}, "blue": {"agents": "cart_*", "settings": {"learning_rate": 1e-4}}}
LEAGUE: dict[str, Any] = {"window": 2, "snapshot_every": 3, "latest_ratio": 0.5, "opponents": "prioritized"}

OF_ALGORITHM: dict[str, dict[str, Any]] = {
    "pearl": {
        "train_tasks": 2,
        "test_tasks": 1,
        "meta_batch": 2,
        "context_size": 6,
        "prior_steps": 4,
        "extra_steps": 2,
        "context_hidden_sizes": (8,),
        "latent_size": 2,
    },
}
"""What an algorithm needs on every env. Tickets of PEARL are parts of a visit."""


class Feature(NamedTuple):
    """What an env, a network for it, or a setting of the pipeline asks of all that lies between env and learner."""

    env: str
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed
    refused: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Algorithm -> what it says of such an env, network or setting, which it does not take."""
    replayed: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Settings that algorithms on a replay need beside ..."""
    unrolled: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """... and the others."""


FEATURES = {
    "vector": Feature("CartPole-v1", refused=CHOICES),
    "box": Feature(
        "Pendulum-v1",
        {"normalize_observations": True},
        refused={"dqn": ONE_CHOICE, "pearl": "normalize_observations is true, which is not supported by PEARL"},
    ),
    "image": Feature("offbeat/Pixels-v0", refused=CHOICES),
    "dict": Feature("offbeat/PixelsGoal-v0", refused=CHOICES),  # an image and a vector
    "stacks": Feature("offbeat/PixelsMotion-v0", {"frame_stack": 3}, refused=CHOICES),
    "recurrent": Feature(  # in groups that do not end together: an actor that is started again is seen to begin anew
        "offbeat/Recall-v0",
        {"core": "gru", "core_size": 8},
        refused={"pearl": "core is gru, which is not supported by PEARL", **BOX},
        replayed={"batch_size": 15, "burn_in": 3},
        unrolled={"decorrelate": True, "env_groups": 2},
    ),
    "inputs": Feature(  # the previous action and reward as inputs, which a core adds up
        "offbeat/Bandit-v0",
        {"previous_action": True, "previous_reward": True, "core": "gru", "core_size": 8},
        refused={"pearl": "core is gru, which is not supported by PEARL", **BOX},
        replayed={"batch_size": 15, "burn_in": 3},
        unrolled={"decorrelate": True, "env_groups": 2},
    ),
    "mixed": Feature(
        "runs/Locks-v0",  # trees of observations and of actions, with a mask among the observations
        {"imports": ENVS},
        refused={"sac": "expects a bounded box or one discrete action", "dqn": ONE_CHOICE, **CHOICES},
    ),
    "masks": Feature("runs/Doors-v0", {"imports": ENVS}, refused=CHOICES),  # in the infos
    "world": Feature(CARTS, refused=SEVERAL),  # agents that end in different steps, all with one policy
    "policies": Feature(CARTS, {"policies": TEAMS}, refused=SEVERAL),
    # Half of the opponents are frozen.
    "league": Feature(CARTS, {"policies": TEAMS, "league": LEAGUE}, refused=SEVERAL),
    "resident": Feature(  # batches that are used again, in turns
        "CartPole-v1",
        {"resident_batches": 2, "passes": 3},
        refused=dict.fromkeys(ON_A_REPLAY, "resident_batches is a setting of ppo, impala, a2c"),
    ),
    "inference": Feature(
        "CartPole-v1",
        {"inference": "worker", "env_groups": 2},
        refused={"pearl": "an actor of PEARL infers the task itself", **BOX},
    ),
    "shards": Feature(
        "CartPole-v1",
        {"shards": 3},
        refused={**BOX, **{name: f"shards is 3, which is not supported by {name}" for name in ("pearl", "crossq")}},
    ),
    "tasks": Feature("offbeat/PointRobot-v0", refused={"dqn": ONE_CHOICE}),
}
ALGORITHMS = ("ppo", "impala", "a2c", *ON_A_REPLAY)
WARMUP, RATIO = 48, "1/4"


class Case(NamedTuple):
    """A cell, at one layout: short runs, exact unless told otherwise."""

    algorithm: str
    feature: str
    ahead: int = 1
    """max_lag; on a replay max_ahead."""
    actors: int = 2

    @property
    def replayed(self) -> bool:
        return self.algorithm in ON_A_REPLAY

    @property
    def steps(self) -> int:
        """On-policy about 10 learning steps; on a replay, so many that rows leave it."""
        return 200 if self.replayed else 10 * self.actors * 4 * 8

    @property
    def settings(self) -> dict[str, Any]:
        """Return all settings of a run, but for the runtime."""
        feature, layout = FEATURES[self.feature], {"lag": "exact", "actors": self.actors, "steps": self.steps}
        if self.replayed:
            sizes = {"warmup": WARMUP, "batch_size": 16, "capacity": 160, "utd_ratio": RATIO, "n_step": 1}
            return {
                **sizes,
                "max_ahead": max(self.ahead, self.actors - 1),
                **layout,
                **OF_ALGORITHM.get(self.algorithm, {}),
                **feature.settings,
                **feature.replayed,
            }
        return {"unroll_length": 8, "max_lag": self.ahead, **layout, **feature.settings, **feature.unrolled}

    def train(self, path: Path, env: str | None = None, **changes: Any) -> Run:
        """Train in the run directory `path`; on another env than the feature's, if one is given."""
        start = small_sac if self.replayed else small_run
        settings = {**self.settings, **changes}
        return start(path, env or FEATURES[self.feature].env, algorithm=self.algorithm, **settings)

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.feature}"


def cases() -> Iterator[Case]:
    """Yield a case for each cell that is defined."""
    for feature, asked in FEATURES.items():
        for algorithm in ALGORITHMS:
            if algorithm not in asked.refused:
                yield Case(algorithm, feature)


_IN_CI = """
             vector box        image  dict stacks recurrent inputs mixed  masks world policies league resident inference shards tasks
same_bits    ppo    td3+crossq a2c    ppo  dqn    impala    impala ppo    sac   sac   impala   dqn    a2c      sac       dqn    pearl
actor_killed a2c    td3+crossq sac    -    ppo    dqn       dqn    impala -     dqn   ppo      ppo    impala   ppo       -      pearl
run_killed   a2c    td3+crossq -      sac  dqn    impala    -      -      ppo   -     sac      impala ppo      dqn       sac    pearl
interrupted  dqn    td3+crossq impala ppo  -      sac       sac    a2c    -     ppo   dqn      a2c    impala   -         a2c    pearl
env_raises   -      td3+crossq ppo    -    -      impala    -      a2c    dqn   sac   a2c      -      ppo      impala    -      pearl
"""  # noqa: E501


def _read(table: str) -> dict[str, list[Case]]:
    header, *lines = (line.split() for line in table.strip().splitlines())
    return {check: list(_cases_of(row, header)) for check, *row in lines}


def _cases_of(row: list[str], header: list[str]) -> Iterator[Case]:
    for algorithms, feature in zip(row, header, strict=True):
        yield from (Case(algorithm, feature) for algorithm in algorithms.split("+") if algorithm != "-")


IN_CI = _read(_IN_CI)
"""Check, a function of checks.py -> the cases that CI takes."""
