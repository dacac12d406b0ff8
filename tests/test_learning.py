"""It learns: values that are known in closed form, and scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.known_values import exact_values
from tests.support.league_players import latest_player, probabilities_of, snapshot_players
from tests.support.runs import offbeat, small_run
from tests.support.thorough import thorough

from offbeat.api.playing.load import load as load_policy
from offbeat.api.train import train
from offbeat.envs.testing.bandit import BanditVectorEnv
from offbeat.envs.testing.known_values import CHAIN, RING
from offbeat.league.average import average_policy
from offbeat.models.mlp import MLP, Layers
from offbeat.run_directory.checkpoint import load

# --- values -------------------------------------------------------------------------------------------------

FOUR_EPOCHS: dict[str, Any] = {"epochs": 4, "normalize_observations": False, "normalize_returns": False}
"""Of PPO in small envs, whose observations and returns have one scale."""
GAMMA = 0.9
CRITIC: dict[str, Any] = {
    "steps": 8_000,
    "gamma": GAMMA,
    "gae_lambda": 0.5,
    "learning_rate": 6e-3,
    "hidden_sizes": (32,),
    "normalize_observations": False,
    "normalize_returns": False,
}


@pytest.mark.parametrize(
    ("env", "positions", "max_lag"),
    [
        ("ChainTruncates", RING, 0),
        ("ChainTerminates", CHAIN, 2),
        *thorough(
            ("FailsOnLastStep", CHAIN, 0),
            ("OneStep", CHAIN, 2),
            ("ChainTruncates", RING, 2),
            ("ChainTerminates", CHAIN, 0),
            ("FailsOnLastStep", CHAIN, 2),
            ("OneStep", CHAIN, 0),
        ),
    ],
)
def test_the_critic_converges_to_values_known_in_closed_form(tmp_path, env, positions, max_lag):
    run = small_run(tmp_path / "run", f"offbeat/{env}-v0", max_lag=max_lag, lag="exact", **CRITIC)
    weights = load(run.path / "checkpoints" / "latest").weights
    layers = Layers.of(weights, ["critic_body.0", "critic_head"])
    observations = np.array([(place, noise) for place in range(positions) for noise in (0.1, 0.5, 0.9)], np.float32)
    values = MLP(layers.sizes, "tanh").forward(layers, observations)[:, 0]
    # A truncation that is taken for a termination, or the other way round, is off by several times as much.
    np.testing.assert_allclose(values, exact_values(f"offbeat/{env}-v0", observations, GAMMA), atol=0.4)


# --- scores -------------------------------------------------------------------------------------------------

HALF_OF_THE_PRESET = 100_000
"""Env steps, and all that the preset's source takes."""


def solved(path: Path, steps: int, seed: int, **layout: Any) -> float:
    train("ppo", "CartPole-v1", run_dir=path, steps=steps, eval_every=0, seed=seed, **layout)
    said = offbeat("eval", path, "--episodes", 20, "--json")
    score: float = json.loads(said.out)["return_mean"]
    return score


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seed", "layout"),
    [
        *((1, {}), (2, {}), (3, {}), (4, {"max_lag": 1})),
        (5, {"actors": 2, "envs_per_actor": 4, "max_lag": 1}),
    ],
    ids=str,
)
def test_the_preset_solves_cartpole(tmp_path, seed, layout: dict[str, Any]):
    assert solved(tmp_path / "run", HALF_OF_THE_PRESET, seed, **layout) >= 475


def test_the_preset_with_lag_learns_cartpole_in_a_fifth_of_its_env_steps(tmp_path):
    score = solved(tmp_path / "run", 40_000, 4, max_lag=3, lag="exact")
    assert score > 400  # of the seeds of benchmarks/policy_lag all do, and few with clip_reference=proximal


# --- games --------------------------------------------------------------------------------------------------

NIM: dict[str, Any] = {
    "steps": 12_000,
    "envs_per_actor": 32,
    "unroll_length": 8,
    "minibatch_size": 128,
    **FOUR_EPOCHS,
    "learning_rate": 3e-3,
    "learning_rate_schedule": "linear",
    "gamma": 1.0,
    "entropy_coef": 0.05,
    "normalize_advantages": False,
    "hidden_sizes": (32,),
    "activation": "relu",
    "eval_every": 0,
    "league": {"window": 10, "snapshot_every": 5},
}


def test_a_league_learns_perfect_play_and_its_value_where_both_players_see_the_same(tmp_path):
    """In Nim, an observation does not say who is on turn: it has opposite values for the two players."""
    run = train("ppo", "offbeat.envs.testing.games:Nim", run_dir=tmp_path / "run", seed=1, **NIM)
    stones = np.arange(1, 8)
    observation: dict[str, Any] = {
        "observation": np.eye(8, dtype=np.float32)[stones],
        "action_mask": np.ones((7, 2), np.int8),
    }
    observation["action_mask"][0, 1] = 0
    taken = np.asarray(load_policy(run.path)(observation)) + 1
    wins = stones % 3 != 0
    assert ((stones - taken)[wins] % 3 == 0).all()
    layers = Layers.of(load(run.path / "checkpoints" / "latest").weights, ["critic_body.0", "critic_head"])
    values = MLP(layers.sizes, "relu").forward(layers, observation["observation"])[:, 0]
    np.testing.assert_allclose(values, np.where(wins, 1, -1), atol=0.4)


KUHN: dict[str, Any] = {
    "env": "openspiel:kuhn_poker",
    "seed": 1,
    "envs_per_actor": 16,
    "unroll_length": 16,
    "minibatch_size": 256,
    **FOUR_EPOCHS,
    "learning_rate_schedule": "linear",
    "gamma": 1.0,
    "gae_lambda": 1.0,
    "normalize_advantages": False,
    "hidden_sizes": (128, 128),
    "activation": "relu",
    "eval_every": 0,
}


@pytest.mark.thorough
def test_the_newest_and_the_average_policy_of_a_league_come_close_to_the_equilibrium_of_kuhn_poker(tmp_path):
    """NashConv of uniform players is 0.917. With more env steps it is below 0.1: benchmarks/results/leagues.md."""
    from open_spiel.python.algorithms.exploitability import nash_conv

    settings: dict[str, Any] = {"steps": 80_000, "learning_rate": 2e-2, "adam_eps": 0.1, "entropy_coef": 0.2}
    train("ppo", run_dir=tmp_path / "run", league={"window": 200, "snapshot_every": 5}, **KUHN, **settings)
    game = kuhn_poker()
    old = [probabilities_of(player) for _, player in snapshot_players(tmp_path / "run")]
    average = average_policy(game, old, list(range(len(old))))
    assert nash_conv(game, average) < 0.2
    assert nash_conv(game, average_policy(game, [probabilities_of(latest_player(tmp_path / "run"))])) < 0.25


@pytest.mark.thorough  # once: a league, above, and policies that are not trained in runtime/test_several_policies.py
def test_a_policy_finds_the_best_response_to_one_that_is_not_trained(tmp_path):
    from open_spiel.python.algorithms.best_response import BestResponsePolicy
    from open_spiel.python.algorithms.expected_game_score import policy_value

    settings: dict[str, Any] = {**KUHN, "steps": 12_000, "entropy_coef": 0.01}
    policies: dict[str, Any] = {"first": {"agents": "player_0"}, "second": {"agents": "player_1"}}
    uniform = train(
        "ppo", run_dir=tmp_path / "uniform", **settings, policies=policies, stop_at=1, learning_rate=1e-9
    ).path
    policies["first"] |= {"train": False, "init_from": str(uniform)}
    run = train("ppo", run_dir=tmp_path / "run", **settings, policies=policies, learning_rate=3e-3).path
    game = kuhn_poker()
    both = probabilities_of({0: latest_player(run, "first"), 1: latest_player(run, "second")})
    profile, root = average_policy(game, [both]), game.new_initial_state()
    best = BestResponsePolicy(game, 1, profile).value(root)  # 0.5 against a uniform player
    assert best > 0.4
    assert policy_value(root, [profile, profile])[1] > best - 0.05


def kuhn_poker() -> Any:
    import pyspiel

    return pyspiel.load_game("kuhn_poker")


# --- memory and images --------------------------------------------------------------------------------------

AT_THE_END: dict[str, Any] = {"evaluator": "inline", "eval_every": 10**6}
"""One evaluation, in this process: starting another one takes longer than to evaluate."""

REMEMBERS: dict[str, Any] = {
    "steps": 26_000,
    "envs_per_actor": 64,
    "unroll_length": 16,
    "learning_rate": 2e-3,
    "learning_rate_schedule": "linear",
    "minibatch_size": 256,
    **FOUR_EPOCHS,
    "entropy_coef": 0.01,
    "gamma": 0.95,
    "hidden_sizes": (32,),
    **AT_THE_END,
    "eval_episodes": 200,
}


@pytest.mark.thorough
@pytest.mark.parametrize(("core", "seed"), [("gru", 1), ("lstm", 2), ("gru", 2), ("gru", 3), ("lstm", 1), ("lstm", 3)])
def test_ppo_with_a_core_solves_recall(tmp_path, core, seed):
    run = train("ppo", "offbeat/Recall-v0", run_dir=tmp_path / "run", seed=seed, core=core, core_size=32, **REMEMBERS)
    assert run.metrics["eval_return_mean"] > 0.95  # of 1, see docs/reference/envs.md


@pytest.mark.thorough
def test_ppo_without_a_core_does_not_solve_recall(tmp_path):
    run = train("ppo", "offbeat/Recall-v0", run_dir=tmp_path / "run", **REMEMBERS)
    assert run.metrics["eval_return_mean"] < 0.4  # at most 1 / 4 on average, whatever the policy


REPLAYS: dict[str, Any] = {
    "steps": 6_000,
    "envs_per_actor": 16,
    "warmup": 500,
    "utd_ratio": "1/8",
    "learning_rate": 2e-3,
    "gamma": 0.95,
    "hidden_sizes": (32,),
    **AT_THE_END,
    "eval_episodes": 200,
}
CORE: dict[str, Any] = {"core_size": 32, "chunk_length": 8}
SIDE: dict[str, Any] = {**REPLAYS, "imports": ("tests.sample_envs.remembering_envs",)}


def test_dqn_with_a_core_solves_recall_in_training_and_in_eval(tmp_path):
    path = tmp_path / "run"
    quick: dict[str, Any] = {**REPLAYS, "steps": 3_500, "batch_size": 64, "learning_rate": 4e-3, "eval_every": 0}
    train("dqn", "offbeat/Recall-v0", run_dir=path, core="gru", **CORE, **quick)
    said = offbeat("eval", path, "--episodes", 100, "--json")
    assert json.loads(said.out)["return_mean"] > 0.95


@pytest.mark.thorough
def test_dqn_without_a_core_does_not_solve_recall(tmp_path):
    run = train("dqn", "offbeat/Recall-v0", run_dir=tmp_path / "run", **REPLAYS)
    assert run.metrics["eval_return_mean"] < 0.4


@pytest.mark.parametrize(
    ("algorithm", "core", "seed"),
    thorough(("dqn", "gru", 1), ("dqn", "lstm", 2), ("sac", "gru", 2), ("sac", "lstm", 3)),
)
def test_replay_algorithms_with_a_core_solve_recall(tmp_path, algorithm, core, seed):
    settings = {**REPLAYS, "steps": 12_000, "seed": seed, "core": core}
    run = train(algorithm, "offbeat/Recall-v0", run_dir=tmp_path / "run", **CORE, **settings)
    assert run.metrics["eval_return_mean"] > 0.95


@pytest.mark.thorough
def test_sac_with_a_core_solves_recall_with_box_actions(tmp_path):
    run = train("sac", "memory/Side-v0", run_dir=tmp_path / "run", core="gru", **CORE, **SIDE)
    assert run.metrics["eval_return_mean"] > 0.6


@pytest.mark.thorough
def test_sac_without_a_core_does_not_solve_recall_with_box_actions(tmp_path):
    run = train("sac", "memory/Side-v0", run_dir=tmp_path / "run", **{**SIDE, "steps": 3_000})
    assert abs(run.metrics["eval_return_mean"]) < 0.2  # 0 on average, whatever the policy


EXPLORES: dict[str, Any] = {
    **REMEMBERS,
    "steps": 20_000,
    "learning_rate": 6e-3,
    "gamma": 0.8,
    "previous_action": True,
    "previous_reward": True,
    "eval_episodes": 500,
}
"""A trial on a new bandit per episode: the best return is 11.4, and 5.3 without the previous action and reward."""


@pytest.mark.parametrize(("core", "seed"), [("gru", 1), *thorough(("gru", 2), ("gru", 3), ("lstm", 1))])
def test_ppo_with_a_core_and_the_previous_action_and_reward_learns_to_explore_new_bandits(tmp_path, core, seed):
    assert BanditVectorEnv().optimal_return == pytest.approx(11.386, abs=1e-3)
    settings = {**EXPLORES, "seed": seed, "core": core, "core_size": 32}
    run = train("ppo", "offbeat/Bandit-v0", run_dir=tmp_path / "run", **settings)
    assert run.metrics["eval_return_mean"] > 9.5


@pytest.mark.thorough
def test_a_core_without_the_previous_reward_does_not_learn_to_explore_new_bandits(tmp_path):
    settings = {**EXPLORES, "previous_reward": False, "core": "gru", "core_size": 32}
    run = train("ppo", "offbeat/Bandit-v0", run_dir=tmp_path / "run", **settings)
    assert BanditVectorEnv().impaired_return == pytest.approx(5.333, abs=1e-3)
    assert run.metrics["eval_return_mean"] < 6


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_replay_algorithms_with_a_core_learn_to_explore_new_bandits(tmp_path, algorithm):
    inputs = {"previous_action": True, "previous_reward": True, "gamma": 0.8, "eval_episodes": 500}
    settings = {**REPLAYS, "steps": 20_000, "core": "gru", **CORE, **inputs}
    run = train(algorithm, "offbeat/Bandit-v0", run_dir=tmp_path / "run", **settings)
    assert run.metrics["eval_return_mean"] > 9.5


SEES: dict[str, Any] = {
    "seed": 1,
    "envs_per_actor": 32,
    "unroll_length": 16,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "constant",
    "minibatch_size": 128,
    **FOUR_EPOCHS,
    "gamma": 0.5,
    **AT_THE_END,
    "eval_episodes": 50,
}


LATE_STEPS_ARE_SMALL: dict[str, Any] = {"learning_rate_schedule": "linear"}
"""So that a score does not depend on where the last steps of a constant size led."""


@pytest.mark.parametrize(
    ("env", "encoder", "steps", "settings", "score"),
    [
        (
            "PixelsGoal", "nature_cnn", 6_000, {**LATE_STEPS_ARE_SMALL, "learning_rate": 4e-3}, 5.3,
        ),
        *thorough(*(("Pixels", name, 3_000, {}, 7.5) for name in ("simple_cnn", "nature_cnn", "impala_resnet"))),
    ],
)  # fmt: skip
def test_algorithms_learn_from_images_and_from_images_with_vectors(tmp_path, env, encoder, steps, settings, score):
    given = {**SEES, "steps": steps, "encoder": encoder, **settings}
    run = train("ppo", f"offbeat/{env}-v0", run_dir=tmp_path / "run", **given)
    assert run.metrics["eval_return_mean"] > score  # of 8; at most 4 without the image, or without the goal


@pytest.mark.thorough
def test_ppo_with_stacked_frames_solves_pixels_motion(tmp_path):
    given = {**SEES, "steps": 6_000, "frame_stack": 2, **LATE_STEPS_ARE_SMALL}
    run = train("ppo", "offbeat/PixelsMotion-v0", run_dir=tmp_path / "run", **given)
    assert run.metrics["eval_return_mean"] > 7  # of 8; see below


def test_ppo_with_stacked_frames_learns_with_one_policy_for_two_agents_whose_episodes_end_apart(tmp_path):
    given = {**SEES, "steps": 2_000, "learning_rate": 2e-3, "frame_stack": 2, **LATE_STEPS_ARE_SMALL}
    run = train("ppo", "offbeat.envs.testing.worlds:Cameras", run_dir=tmp_path / "run", **given)
    assert run.metrics["eval_return_mean"] > 3.6  # of 4; 2 on average without the history


@pytest.mark.thorough
def test_ppo_with_single_frames_does_not_solve_pixels_motion(tmp_path):
    run = train("ppo", "offbeat/PixelsMotion-v0", run_dir=tmp_path / "run", steps=2_000, **SEES)
    assert run.metrics["eval_return_mean"] < 5  # 4 on average, whatever the policy


SEES_REPLAYED: dict[str, Any] = {
    "seed": 1,
    "steps": 2_500,
    "frame_stack": 2,
    "envs_per_actor": 16,
    "chunk_length": 4,
    "capacity": 3_000,
    "warmup": 500,
    "utd_ratio": "1/8",
    "batch_size": 64,
    "learning_rate": 1e-3,
    "exploration_fraction": 0.5,
    "gamma": 0.5,
    **AT_THE_END,
    "eval_episodes": 50,
}


@pytest.mark.thorough  # once: DQN with a core, above, and the stacks of a replay in memory/replay
def test_dqn_with_stacked_frames_solves_pixels_motion(tmp_path):
    run = train("dqn", "offbeat/PixelsMotion-v0", run_dir=tmp_path / "run", **SEES_REPLAYED)
    assert run.metrics["eval_return_mean"] > 7
