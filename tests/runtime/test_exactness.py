"""With `lag = "exact"` the bits follow from the config alone: in every runtime, and through a stop and a resume.

This is the one place where that is proven. Each cell below is trained whole in serial, and once more in two parts, in
other runtimes; both ends must be equal. Together the cells have every algorithm, runtime, feature and kind of layout.
What envs and networks are like is a cell of tests/support/matrix.py; its mishaps are in tests/chaos/test_matrix.py.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.checks import assert_parts_are_the_whole, assert_same, same_bits
from tests.support.compiled import WITH_NUMBA
from tests.support.hogwild_runs import assert_whole
from tests.support.matrix import CARTS, IN_CI, LEAGUE, TEAMS
from tests.support.pearl_runs import ENCODER, TASKS
from tests.support.replay_runs import ON_A_REPLAY, SMALL_SAC, assert_ratio, small_sac
from tests.support.runs import Started, lines_of, offbeat, small_arguments, small_run, stop_from, weights_of
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.config.config_file import load
from offbeat.config.registry import ALGORITHMS

STEPS, REPLAYED_STEPS = 384, 180
ENVS = "tests.sample_envs.run_envs"
CURIOUS = "tests.sample_envs.curious_envs"
PAID = "tests.sample_envs.paid_envs"
PAID_POLICIES = {"first": {"agents": "paid_0"}, "others": {"agents": "paid_*"}}
BOTH = ("threads", "processes")


class Cell(NamedTuple):
    """A run in serial, and another one in two parts. On-policy ..."""

    algorithm: str
    env: str
    lag: int
    """max_lag, or max_ahead on a replay."""
    actors: int
    batch: int
    """unrolls_per_batch; 0 on a replay."""
    first: str
    """The runtime of the first part ..."""
    second: str
    """... and of the second."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed
    parts: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Settings of the run in two parts alone."""

    @property
    def on_a_replay(self) -> bool:
        return self.algorithm in ON_A_REPLAY

    def train(self, path: Path, **changes: Any) -> Run:
        if self.on_a_replay:
            layout: dict[str, Any] = {"max_ahead": self.lag, "actors": self.actors, "utd_ratio": "1/2"}
            layout |= {"steps": REPLAYED_STEPS, "capacity": 140}  # rows leave the replay
            start: Callable[..., Run] = small_sac
        else:
            layout = {"max_lag": self.lag, "actors": self.actors, "unrolls_per_batch": self.batch}
            layout |= {"steps": STEPS, "unroll_length": 8}
            start = small_run
        return start(path, self.env, algorithm=self.algorithm, lag="exact", **{**layout, **self.more, **changes})


INLINE = {"evaluator": "inline"}
OFTEN = {"checkpoint_every": 100, "eval_every": 200, "eval_episodes": 1}
OFTEN_ON_A_REPLAY = {"checkpoint_every": 40, "eval_every": 100, "eval_episodes": 1}
"""Checkpoints and evaluations on the way change no bit."""
CORE = {"core": "gru", "core_size": 8}
TOLD = {
    "info_metrics": ("place", "success", "sign/positive", "progress", "wind", "sign/positive:last", "place:sum"),
    "curriculum": ("wind 0:0 0.2:0 0.7:0.5",),
    "imports": (CURIOUS,),
}
WIDE = {"hidden_sizes": (128, 128), "envs_per_actor": 16, "steps": 384, "epochs": 1}
SCHEDULED = {
    "learning_rate_schedule": "0:0.5 0.2:1 0.8:0.1",
    "clip_schedule": "0:1 0.5:1 0.5:0.5",
    "entropy_coef": 0.01,
    "entropy_coef_schedule": "0:1 0.6:0",
}
EXPLORES = {"exploration": "symmetric_kl"}
ADAPTED = {"learning_rate_schedule": "kl", "kl_target": 0.01, "recompute_advantages": True}
CELLS = [
    Cell("ppo", "CartPole-v1", 0, 1, 1, "serial", "threads", ADAPTED),
    Cell("ppo", "CartPole-v1", 3, 2, 3, "processes", "processes", {"steps": 1024, **SCHEDULED, **EXPLORES}),
    Cell("impala", "CartPole-v1", 1, 1, 2, "threads", "serial", {"decorrelate": True}),
    Cell("impala", "Pendulum-v1", 3, 2, 1, "processes", "serial", {"env_groups": 2}, OFTEN),
    Cell("a2c", "HalfCheetah-v5", 1, 2, 2, "serial", "serial", {"shared_trunk": True}, {"checkpoint_every": 100}),
    # Wide enough that OpenBLAS really uses both threads.
    Cell("ppo", "CartPole-v1", 1, 1, 1, "serial", "processes", {"learner_threads": 2, **WIDE}),
    # Envs that report numbers, and are told how far the training has come.
    Cell("ppo", "curious/Learning-v0", 1, 2, 1, "processes", "threads", {**TOLD, "decorrelate": True}),
    # Episodes of agents that end in different steps, whose numbers are sums.
    Cell(
        "a2c", f"{PAID}:PaidWorld", 1, 2, 1, "processes", "threads",
        {"info_metrics": ("paid:sum", "success:last", "age"), "policies": PAID_POLICIES, "decorrelate": True}, OFTEN,
    ),
    # Envs that sample from their spaces, which Gymnasium's seed does not reach.
    Cell("a2c", "curious/Sampling-v0", 1, 2, 1, "threads", "processes", {"imports": (CURIOUS,)}, OFTEN),
    Cell(
        "sac", "Pendulum-v1", 6, 3, 0, "serial", "processes",
        {"policy_delay": 2, "learner_threads": 2, "prioritized": True}, OFTEN_ON_A_REPLAY,
    ),
    # Without the fast path all products are divided among the learner's threads.
    Cell(
        "sac", "CartPole-v1", 2, 1, 0, "serial", "processes",
        {"learner_threads": 2, "hidden_sizes": (256, 256), "warmup": 40, "steps": 80},
    ),
    Cell(
        "dqn", "CartPole-v1", 4, 2, 0, "processes", "serial",
        {"exploration_fraction": 0.7, "ema_rate": 1.0, "ema_every": 7, "n_step": 3, "normalize_observations": True},
    ),
    Cell(
        "td3", "Pendulum-v1", 3, 2, 0, "processes", "serial",
        {"prioritized": True, "n_step": 3, "normalize_observations": True, "layer_norm": True}, OFTEN_ON_A_REPLAY,
    ),
    Cell(
        "crossq", "Pendulum-v1", 3, 2, 0, "threads", "processes",
        {"prioritized": True, "n_step": 2, "normalize_observations": True, "learner_threads": 2}, OFTEN_ON_A_REPLAY,
    ),
]  # fmt: skip
TASK_CELLS = [
    # Tickets that are parts of a visit, which runs are cut in. Whole visits are in `MORE_CELLS`.
    Cell(
        "pearl", "offbeat/PointRobot-v0", 2, 2, 0, "threads", "processes",
        {**TASKS, **ENCODER, "chunk_length": 5, "utd_ratio": "1/8", "steps": 360},
    ),
]  # fmt: skip
CELLS += TASK_CELLS
SEQUENCES = {
    **CORE, "batch_size": 24, "burn_in": 6, "n_step": 3, "prioritized": True, "steps": 200, "capacity": 160,
    "utd_ratio": "1/4",
}  # fmt: skip
SHARD_CELLS = [
    # Minibatches of rows, of which some train only the critic, as there is nothing to decide; of transitions; of
    # columns; and of sequences, whose states go on over tickets and stops.
    Cell(
        "ppo", "curious/Waiting-v0", 1, 2, 1, "threads", "processes",
        {"shards": 3, "imports": (CURIOUS,), "clip_reference": "proximal", "steps": 240}, OFTEN | INLINE,
    ),
    Cell("td3", "Pendulum-v1", 1, 2, 0, "threads", "processes", {"shards": 3}),
    Cell("a2c", "CartPole-v1", 1, 1, 2, "serial", "threads", {**CORE, "shards": 3}),
    Cell(
        "dqn", "CartPole-v1", 2, 2, 0, "threads", "processes",
        {**SEQUENCES, "shards": 2},
    ),
]  # fmt: skip
CELLS += SHARD_CELLS
RESIDENT_CELLS = [
    # Batches that are used several times; the run is cut where some of them still have passes to come. The second one
    # has a core, and columns in which an agent is absent for whole unrolls.
    Cell("impala", "CartPole-v1", 3, 2, 1, "threads", "processes", {"resident_batches": 2, "passes": 3}, OFTEN),
    Cell(
        "ppo", CARTS, 2, 1, 2, "processes", "serial",
        {**CORE, "resident_batches": 3, "passes": 2, "clip_reference": "proximal", "epochs": 1},
    ),
]  # fmt: skip
CELLS += RESIDENT_CELLS
PREVIOUS = {"previous_action": True, "previous_reward": True}
SERVED = {"inference": "worker"}
TWO_WORKERS = {**SERVED, "inference_workers": 2}
SERVED_CELLS = [
    # Inference groups of two actors and of one; their env groups are stepped while the other one waits.
    Cell("impala", "CartPole-v1", 1, 3, 3, "threads", "processes", {**TWO_WORKERS, "env_groups": 2}, OFTEN),
    Cell(
        "ppo",
        "offbeat/PixelsGoal-v0",
        1,
        2,
        2,
        "processes",
        "serial",
        {**SERVED, **CORE, "steps": 160, "envs_per_actor": 2},
    ),
    # Two policies with their previous actions and rewards as inputs.
    Cell("a2c", CARTS, 1, 2, 1, "processes", "threads", {**SERVED, **PREVIOUS, "policies": TEAMS, "env_groups": 2}),
    # Uniform actions first, which need no network.
    Cell("sac", "Pendulum-v1", 3, 2, 0, "serial", "processes", {**SERVED, "layer_norm": True}, OFTEN_ON_A_REPLAY),
]
CELLS += SERVED_CELLS
COMPILED = {"kernels": "numba", "unroll_length": 40, "steps": 1024}
COMPILED_CELLS = [
    # Minibatches of several blocks of rows, and updates that use the forward pass of the targets again.
    Cell("ppo", "CartPole-v1", 1, 2, 2, "processes", "threads", {"minibatch_size": 160, **COMPILED}, OFTEN),
    Cell("a2c", "Pendulum-v1", 1, 2, 2, "threads", "processes", COMPILED),
    Cell("impala", "Pendulum-v1", 2, 2, 1, "processes", "serial", {"shards": 2, **COMPILED}),
]
REMEMBERS = {"core_size": 8, "batch_size": 24, "burn_in": 6, "n_step": 3}
SOFT = {"exploration_fraction": 0.9, "ema_rate": 0.05, "ema_every": 1}
MORE_CELLS = [
    Cell(
        "pearl",
        "offbeat/PointRobot-v0",
        1,
        2,
        0,
        "processes",
        "serial",
        {**TASKS, **ENCODER, "chunk_length": 30, "layer_norm": True, "learner_threads": 2},
    ),
    Cell("impala", "Pendulum-v1", 1, 2, 2, "processes", "threads", {"shards": 2}),
    Cell("sac", "Pendulum-v1", 2, 2, 0, "processes", "serial", {"shards": 3, "learner_threads": 2}),
    *(
        Cell("ppo", env, lag, actors, batch, "serial", "serial")
        for env in ("CartPole-v1", "HalfCheetah-v5")
        for lag, batch, actors in ((0, 2, 1), (0, 2, 2), (1, 1, 2), (3, 1, 1), (3, 2, 2))
    ),
    Cell("ppo", "CartPole-v1", 1, 2, 2, "threads", "threads"),
    Cell("ppo", "curious/Waiting-v0", 1, 2, 1, "threads", "processes", {"imports": (CURIOUS,)}, OFTEN | INLINE),
    Cell("ppo", CARTS, 1, 2, 1, "processes", "threads", CORE),
    Cell("dqn", "CartPole-v1", 2, 2, 0, "processes", "threads", SEQUENCES),
    Cell("ppo", "Pendulum-v1", 0, 2, 2, "threads", "processes", {}, OFTEN),
    Cell("ppo", "Pendulum-v1", 1, 3, 2, "processes", "serial"),
    Cell("ppo", "Pendulum-v1", 3, 1, 2, "serial", "processes"),
    Cell("impala", "CartPole-v1", 0, 3, 3, "processes", "threads"),
    Cell("impala", "Pendulum-v1", 1, 2, 3, "threads", "processes"),
    Cell("a2c", "CartPole-v1", 3, 1, 1, "processes", "threads"),
    Cell("a2c", "CartPole-v1", 0, 2, 3, "threads", "threads", {"learner_threads": 2}),
    Cell("a2c", "Pendulum-v1", 1, 3, 2, "serial", "processes", {"learner_threads": 2, "env_groups": 4}),
    Cell("a2c", "Pendulum-v1", 3, 3, 1, "processes", "serial", {"decorrelate": True}),
    # What more features of envs and networks meet: all of them, one by one, are in the matrix.
    Cell("impala", "Pendulum-v1", 1, 2, 1, "threads", "processes", {"core": "lstm", "core_size": 8}),
    Cell("ppo", "runs/Locks-v0", 1, 2, 1, "threads", "processes", {"decorrelate": True, "imports": (ENVS,)}),
    Cell("impala", "curious/WaitingCue-v0", 1, 2, 2, "threads", "serial", {**CORE, "imports": (CURIOUS,)}),
    Cell(
        "a2c",
        "curious/LearningVector-v0",
        2,
        2,
        2,
        "serial",
        "processes",
        {**TOLD, "info_metrics": ("age:max", "wind")},
    ),
    Cell("ppo", "offbeat/OneStep-v0", 1, 2, 1, "threads", "processes"),
    Cell("sac", "Pendulum-v1", 0, 1, 0, "serial", "threads", {"n_step": 3, "max_grad_norm": 1.0}),
    Cell("sac", "Pendulum-v1", 1, 1, 0, "threads", "processes", {"prioritized": True}),
    Cell("sac", "Pendulum-v1", 2, 2, 0, "processes", "serial", {"normalize_observations": True}),
    Cell("sac", "CartPole-v1", 3, 2, 0, "processes", "threads", {"prioritized": True, "n_step": 2}, OFTEN_ON_A_REPLAY),
    Cell("dqn", "CartPole-v1", 1, 2, 0, "threads", "processes", {**SOFT, "prioritized": True}),
    Cell("sac", "Pendulum-v1", 3, 2, 0, "serial", "processes", {**REMEMBERS, "core": "lstm"}),
    Cell("td3", "Pendulum-v1", 3, 2, 0, "serial", "processes", {**REMEMBERS, "core": "gru"}),
    Cell("td3", "Pendulum-v1", 3, 2, 0, "threads", "serial", SERVED, OFTEN_ON_A_REPLAY),
    Cell("crossq", "Pendulum-v1", 3, 2, 0, "serial", "processes", {**REMEMBERS, "core": "gru"}),
    Cell("dqn", "curious/Learning-v0", 3, 2, 0, "threads", "processes", {**TOLD, "n_step": 2}),
    Cell(
        "impala", "offbeat/Recall-v0", 1, 2, 1, "serial", "processes", {**TWO_WORKERS, "core": "lstm", "core_size": 8}
    ),
    Cell("ppo", "runs/Locks-v0", 1, 3, 3, "processes", "threads", {**SERVED, "env_groups": 4, "imports": (ENVS,)}),
    Cell("ppo", "CartPole-v1", 0, 2, 2, "serial", "processes", {**SERVED, "precision": "bf16"}),
    Cell("dqn", "CartPole-v1", 3, 2, 0, "processes", "serial", {**TWO_WORKERS, **CORE, "n_step": 3, "batch_size": 24}),
    # The previous action and reward as inputs: beside stacks of images, of box and mixed actions, of rows without a
    # decision.
    Cell(
        "dqn", "offbeat/PixelsMotion-v0", 2, 2, 0, "processes", "threads", {**PREVIOUS, "frame_stack": 3, "n_step": 2}
    ),
    Cell("sac", "Pendulum-v1", 2, 2, 0, "serial", "processes", {**PREVIOUS, "normalize_observations": True}),
    Cell("ppo", "runs/Locks-v0", 1, 2, 1, "threads", "serial", {**PREVIOUS, "decorrelate": True, "imports": (ENVS,)}),
    Cell("ppo", "curious/Waiting-v0", 1, 2, 1, "serial", "processes", {**PREVIOUS, **CORE, "imports": (CURIOUS,)}),
]


def test_the_matrix_has_every_algorithm_and_every_pair_of_runtimes():
    assert {cell.algorithm for cell in CELLS} == set(ALGORITHMS)
    assert {(cell.first, cell.second) for cell in CELLS} >= {
        (one, other) for one in ("serial", *BOTH) for other in ("serial", *BOTH) if one != other
    }


@pytest.mark.parametrize(
    "cell",
    [
        *CELLS,
        *(pytest.param(cell, marks=WITH_NUMBA) for cell in COMPILED_CELLS),
        *thorough(*((cell,) for cell in MORE_CELLS)),
    ],
    ids=lambda c: "-".join(map(str, c[:-2])),
)
def test_a_run_resumed_in_another_runtime_has_the_weights_and_metrics_of_serial(tmp_path, cell):
    whole, resumed = assert_parts_are_the_whole(cell.train, cell.first, cell.second, tmp_path, **cell.parts)
    assert load(resumed.path / "config.toml").runtime.runtime == cell.second
    assert resumed.metrics["evaluations"] > 0 or "eval_every" not in cell.parts
    if cell.on_a_replay:
        assert_ratio(
            whole.path, Fraction(cell.more.get("utd_ratio", "1/2")), cell.more.get("warmup", SMALL_SAC["warmup"])
        )


IN_CELLS = (
    *("vector", "box", "image", "dict", "recurrent", "inputs", "world"),
    *("policies", "resident", "inference", "shards", "tasks"),
)
"""Features that the cells above have."""
FEATURES = [case for case in IN_CI["same_bits"] if case.feature not in IN_CELLS]
COVERED = [case for case in IN_CI["same_bits"] if case.feature in IN_CELLS]


@pytest.mark.parametrize("case", [*FEATURES, *thorough(*((case,) for case in COVERED))], ids=str)
def test_a_run_resumed_in_another_runtime_has_the_bits_of_serial_for_every_env_and_network(tmp_path, case):
    same_bits(case, tmp_path)


@pytest.mark.skipif(not find_spec("ale_py"), reason="needs ale-py")
@pytest.mark.parametrize("runtime", ["processes", *thorough("threads")])
def test_a_run_on_atari_has_the_bits_of_serial(tmp_path, runtime):
    settings: dict[str, Any] = {"steps": 48, "unroll_length": 6, "minibatch_size": 12, "epochs": 1, "max_frames": 30}
    settings |= {"actors": 1, "envs_per_actor": 2, "env_groups": 2, "lag": "exact", "max_lag": 1, "noop_max": 3}
    settings |= {"normalize_observations": False}
    serial, run = (
        small_run(tmp_path / name, "BreakoutNoFrameskip-v4", runtime=name, **settings) for name in ("serial", runtime)
    )
    assert serial.metrics["episodes"] > 0
    assert serial.metrics["frames"] == 4 * serial.metrics["env_steps"]
    assert_same(run, serial)


# --- one worker of the lock-free runtime --------------------------------------------------------------------


class HogwildCell(NamedTuple):
    algorithm: str
    env: str
    hogwild: str
    moments: str
    at_once: bool
    """Whether it is stopped as by a signal, not at a number of env steps."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def steps(self) -> int:
        """Env steps; where it is stopped at once, so many that it cannot be over before."""
        if self.algorithm in ON_A_REPLAY:
            return 600 if self.at_once else 220
        return {"a2c": 12_000, "ppo": 4096}[self.algorithm] if self.at_once else 2048

    def train(self, path: Path, **changes: Any) -> Run:
        settings = {"algorithm": self.algorithm, "steps": self.steps, **self.more, **changes}
        if self.algorithm in ON_A_REPLAY:
            return small_sac(path, self.env, capacity=160, **settings)  # full before the end
        return small_run(path, self.env, **settings)


KL = {"learning_rate_schedule": "kl", "kl_target": 0.01}
PRIORITIZED_CORE = {**CORE, **INLINE, "batch_size": 24, "prioritized": True, "utd_ratio": "1/4"}
NORMALIZED = {"normalize_observations": True, "prioritized": True}
HOGWILD = [
    HogwildCell("ppo", "CartPole-v1", "shared", "per_worker", True, KL),
    HogwildCell("ppo", "CartPole-v1", "shared", "per_worker", False, SCHEDULED),
    HogwildCell("sac", "CartPole-v1", "synced", "shared", False, {**PRIORITIZED_CORE}),
]
MORE_HOGWILD = [
    HogwildCell("td3", "Pendulum-v1", "shared", "per_worker", False, {"policy_delay": 3}),
    HogwildCell("ppo", "offbeat/Bandit-v0", "shared", "per_worker", False, {**CORE, **PREVIOUS}),
    HogwildCell("crossq", "Pendulum-v1", "synced", "shared", False, {"policy_delay": 2}),
    HogwildCell("a2c", "Pendulum-v1", "synced", "per_worker", True),
    HogwildCell("sac", "Pendulum-v1", "shared", "shared", True, NORMALIZED),
    HogwildCell("dqn", "CartPole-v1", "synced", "per_worker", False, {**SOFT, "ema_every": 7}),
    HogwildCell("a2c", "CartPole-v1", "shared", "shared", False, {"unrolls_per_batch": 2}),
    HogwildCell("ppo", "Pendulum-v1", "synced", "shared", False, {"unrolls_per_batch": 2}),
    HogwildCell("sac", "Pendulum-v1", "synced", "per_worker", False, {"policy_delay": 2, "n_step": 3}),
    HogwildCell("sac", "CartPole-v1", "synced", "shared", True, {"prioritized": True, "utd_ratio": "1/2"}),
    HogwildCell("sac", "CartPole-v1", "shared", "per_worker", False, {"normalize_observations": True}),
    HogwildCell("dqn", "CartPole-v1", "shared", "shared", True, {**SOFT, "prioritized": True}),
    HogwildCell("a2c", "curious/Learning-v0", "synced", "shared", False, {**TOLD, "info_metrics": ("place", "wind")}),
    HogwildCell("sac", "curious/Learning-v0", "shared", "shared", True, {**TOLD, "info_metrics": ("place", "wind")}),
]
COUNTED = ("env_steps", "frames", "learning_step", "updates", "updates_refused", "episodes", "episode_return_mean")


@pytest.mark.parametrize(
    "cell",
    [*HOGWILD, *thorough(*((cell,) for cell in MORE_HOGWILD))],
    ids=lambda cell: "-".join(map(str, cell[:-1])),
)
def test_one_stopped_and_resumed_hogwild_worker_has_the_bits_of_serial(tmp_path, cell):
    serial = cell.train(tmp_path / "serial")
    layout: dict[str, Any] = {"runtime": "hogwild", "workers": 1, "hogwild": cell.hogwild}
    layout |= {
        "hogwild_moments": cell.moments,
        **(OFTEN_ON_A_REPLAY if cell.algorithm in ("sac", "td3", "crossq") else {}),
    }
    half = cell.steps // 2
    stop: dict[str, Any] = {"callbacks": [stop_from(100)]} if cell.at_once else {"stop_at": half}
    stopped = cell.train(tmp_path / "run", **layout, **stop)
    assert (stopped.state, stopped.exit_code) == ("interrupted", 0)
    assert (100 if cell.at_once else half) <= stopped.metrics["env_steps"] < serial.metrics["env_steps"]
    assert weights_of(stopped.path) != weights_of(serial.path)
    assert_whole(stopped.path)
    resumed = resume(stopped.path)
    assert (resumed.state, resumed.exit_code) == ("finished", 0)
    assert weights_of(resumed.path) == weights_of(serial.path)
    for name in COUNTED:
        assert resumed.metrics[name] == serial.metrics[name], name
    log = (resumed.path / "log.txt").read_text()
    assert "unfinished episodes continue" in log
    assert ("the replay restored" in log) == (cell.algorithm in ON_A_REPLAY)
    assert {line["gradient_staleness_max"] for line in lines_of(resumed.path)} <= {None, 0}


# --- stops, threads and the command line --------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["threads", *thorough("serial", "processes")])
def test_a_run_resumed_repeatedly_across_runtimes_has_the_bits_of_serial(tmp_path, runtime):
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "lag": "exact", "steps": 1280, "unroll_length": 8}
    whole = small_run(tmp_path / "whole", **layout)
    path = small_run(tmp_path / "run", **layout, runtime=runtime, callbacks=[stop_from(200)]).path
    for env_steps, other in ((450, "serial"), (700, runtime), (950, "processes")):
        assert resume(path, runtime=other, callbacks=[stop_from(env_steps)]).state == "interrupted"
    assert resume(path, runtime=runtime).state == "finished"
    assert weights_of(path) == weights_of(whole.path)


CONSTANT = {"learning_rate_schedule": "constant"}
CLIPS = {**CONSTANT, "clip_schedule": "constant"}
USED_AGAIN = {"resident_batches": 2, "passes": 3}


@pytest.mark.parametrize(
    ("cell", "ends"),
    [
        # Some rows are resets, so the last learning step is not known from the start.
        (Cell("ppo", "CartPole-v1", 3, 2, 1, "threads", "serial", CLIPS), [300]),
        (Cell("sac", "Pendulum-v1", 6, 3, 0, "serial", "threads"), [90]),
        *thorough(
            (Cell("ppo", "offbeat/OneStep-v0", 3, 2, 1, "processes", "threads", CLIPS), [100, 300]),
            (
                Cell("impala", "CartPole-v1", 3, 2, 1, "serial", "processes", {**CONSTANT, **USED_AGAIN}),
                [130, 200, 310],
            ),
            (
                Cell("ppo", CARTS, 2, 2, 2, "threads", "processes", {**CLIPS, "policies": TEAMS, "league": LEAGUE}),
                [70, 150],
            ),
        ),
    ],
    ids=lambda value: value.algorithm if isinstance(value, Cell) else "",
)
def test_a_finished_run_that_is_trained_for_longer_has_the_bits_of_a_longer_run(tmp_path, cell, ends):
    whole = cell.train(tmp_path / "whole")
    run = cell.train(tmp_path / "run", runtime=cell.first, steps=ends[0])
    for end in [*ends[1:], REPLAYED_STEPS if cell.on_a_replay else STEPS]:
        assert run.state == "finished"
        run = resume(run.path, steps=end, runtime=cell.second)
    log = (run.path / "log.txt").read_text()
    assert log.count("unfinished episodes continue") == len(ends)
    assert weights_of(run.path) == weights_of(whole.path)


def test_a_resume_in_another_runtime_drops_unsupported_settings(tmp_path):
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "lag": "exact", "steps": 512, "unroll_length": 8}
    whole = small_run(tmp_path / "whole", **layout)
    only: dict[str, Any] = {"runtime": "processes", "restart_budget": 2, "start_together": 1, "step_timeout_s": 50}
    path = small_run(tmp_path / "run", **layout, **only, stop_at=200).path
    assert offbeat("resume", path, "--runtime", "serial", "--progress", "none").code == 0
    assert weights_of(path) == weights_of(whole.path)
    kept = load(path / "config.toml").runtime
    assert (kept.runtime, kept.restart_budget, kept.start_together) == ("serial", 2, None)


THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.mark.parametrize("runtime", ["processes", *thorough("threads")])
def test_the_command_line_gives_the_bits_of_serial_without_thread_variables(tmp_path, monkeypatch, runtime):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "lag": "exact", "hidden_sizes": (64, 64), "steps": 512}
    serial = small_run(tmp_path / "serial", **layout)  # in this process, which had loaded torch before
    said = Started([*small_arguments(tmp_path / runtime, **layout), f"runtime={runtime}"], tmp_path, threads=None).end()
    assert said.code == 0, said
    assert weights_of(tmp_path / runtime) == weights_of(serial.path)


@pytest.mark.parametrize("algorithm", ["ppo", *thorough("a2c", "impala")])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path, algorithm):
    first, again, other = (
        weights_of(small_run(tmp_path / name, algorithm=algorithm, steps=192, seed=seed).path)
        for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    )
    assert first == again != other


# --- envs of irregular speed --------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["processes", *thorough("threads")])
def test_envs_of_irregular_speed_change_no_bit(tmp_path, runtime):
    settings: dict[str, Any] = {"imports": (ENVS,), "steps": 512, "lag": "exact", "max_lag": 1, "actors": 3}
    serial = small_run(tmp_path / "serial", "runs/Irregular-v0", **settings)
    irregular = small_run(tmp_path / "run", "runs/Irregular-v0", **settings, runtime=runtime)
    assert weights_of(irregular.path) == weights_of(serial.path)


@pytest.mark.parametrize("runtime", ["threads", *thorough("processes")])
def test_envs_of_irregular_speed_change_no_bit_of_a_replay_run_with_a_large_max_ahead(tmp_path, runtime):
    layout: dict[str, Any] = {"imports": (ENVS,), "lag": "exact", "max_ahead": 9, "actors": 3, "utd_ratio": "1/8"}
    serial = small_sac(tmp_path / "serial", "runs/Irregular-v0", **layout)
    irregular = small_sac(tmp_path / "run", "runs/Irregular-v0", **layout, runtime=runtime)
    assert weights_of(irregular.path) == weights_of(serial.path)
