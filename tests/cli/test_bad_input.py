"""What bad input gets: a clear error with the remedy, the right exit code, and nothing left behind or changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import pytest
import torch
from tests.sample_envs import run_envs
from tests.support.replay_runs import small_sac
from tests.support.runs import offbeat, our_lines, small_arguments, small_run, status_of

from offbeat import train as train_in_python
from offbeat.core.errors import ConfigError
from offbeat.run_directory.checkpoint import load

ENVS = "tests.sample_envs.run_envs"
ZOO = "tests.sample_envs.env_zoo"
LINKS = "tests.sample_envs.linked_envs"


class Row(NamedTuple):
    arguments: str
    """As typed in a folder that holds `kept`, a run on CartPole-v1, and runs that were tampered with."""
    code: int
    says: list[str]
    """Fragments of the message: what was given, what is expected, what to type."""


def train(rest: str, code: int, *says: str) -> Row:
    return Row(f"train ppo CartPole-v1 {rest}", code, list(says))


def train_on(env: str, module: str, code: int, *says: str) -> Row:
    small = "--set envs_per_actor=2 unroll_length=16 minibatch_size=32 steps=4096 eval_every=0"
    return Row(f"train ppo {env} --import {module} {small}", code, list(says))


def train_sac(rest: str, *says: str, env: str = "Pendulum-v1") -> Row:
    return Row(f"train sac {env} {rest}", 2, list(says))


NAMES = [
    Row("tran ppo CartPole-v1", 2, ["'tran'", "'train'", "--help"]),
    Row("train pppo CartPole-v1", 2, ["'pppo'", "'ppo'", "list algorithms"]),
    Row("train ppo CartPol-v1", 2, ["'CartPol-v1'", "'CartPole-v1'", "list envs"]),
    Row("train ppo envpol:Pong-v5", 2, ["envpol"]),
    Row("bench ppo CartPol-v1", 2, ["'CartPole-v1'"]),
    Row("check CartPol-v1", 2, ["'CartPole-v1'"]),
    train("--preset ppo-cartpol", 2, "'ppo-cartpol'", "'ppo-cartpole-v1'", "list presets"),
    train("--step 100", 2, "--step", "--steps"),
    train("--env-kwargs render_mode=\udcff", 2, r"'render_mode=\udcff'", "LC_ALL"),
    train("--set learning_rat=0.1", 2, "'learning_rat'", "'learning_rate'", "offbeat list settings ppo"),
    Row("check CartPole-v1 --set max_episode_step=9", 2, ["unknown key", "'max_episode_steps'", "table [env]"]),
    Row("check CartPole-v1 --set kwargs.size=1", 2, ["'kwargs.size': it is", "env.kwargs.size=VALUE", "table [env]"]),
    Row("check CartPole-v1 --set learning_rate=1", 2, ["unknown key 'learning_rate'", "Only settings of the env"]),
    Row("check CartPole-v1 --max-episode-steps 9", 2, ["--set max_episode_steps=9"]),
    train("--import no_such_module", 2, "no_such_module", "PYTHONPATH"),
    train(f"--run-dir {'n' * 300}", 2, "the path 'nnn", "File name too long", "pass another path"),
    Row(f"eval kept --checkpoint {'n' * 300}", 2, ["is not the name of a checkpoint", "latest, best or step-"]),
    train("--progress dashbord", 2, "dashbord", "dashboard"),
    train("--learning-rate 0.1", 2, "--learning-rate", "--set learning_rate=0.1"),
    Row("train ppo BreakuotNoFrameskip-v4", 2, ["'BreakuotNoFrameskip-v4'"]),
    Row("list presents", 2, ["presents", "presets"]),
    *(
        Row(
            f"{command} late/Cart-v0 --import {ENVS}",
            2,
            [
                "unknown env 'late/Cart-v0'",
                f"is not registered by importing {ENVS}: call gymnasium.register at",
                "For an env of another package, type its module too: module:ID.",
                "my_module:MyEnv",
            ],
        )
        for command in ("train ppo", "check", "bench ppo", "list settings ppo --env")
    ),
    Row(
        f"train ppo CartPol-v1 --import {ENVS}",
        2,
        ["Did you mean 'CartPole-v1'? Run `offbeat list envs` for a list. For an env of another package, type its"],
    ),
]
VALUES = [
    train("--steps -5", 2, "steps", "-5", "at least 1"),
    train("--steps 0", 2, "steps", "at least 1"),
    train("--steps abc", 2, "steps", "'abc'", "whole number"),
    train("--steps 1.5", 2, "steps", "'1.5'", "whole number"),
    train("--actors 0", 2, "actors", "at least 1"),
    train("--seed -1", 2, "seed", "at least 0"),
    train("--time -3", 2, "time", "more than 0"),
    train("--time 2m", 2, "a number of seconds more than 0 or none is expected", "--time 600"),
    train("--max-lag -1", 2, "max_lag", "at least 0"),
    train("--runtime threds", 2, "runtime", "'threds'", "serial, threads, processes"),
    train("--policies sharde", 2, "policies is 'sharde'", "--policies shared", "--policies FILE.toml"),
    train("--policies nowhere.toml", 2, "nowhere.toml cannot be read"),
    train("--policies text/config.toml", 2, "text/config.toml is not TOML"),
    train("--policies kept/config.toml", 2, "kept/config.toml has no policy", "only tables [policies.NAME]"),
    train("--policies shared --set policies=separate", 2, "policies is given twice"),
    Row("bench ppo CartPole-v1 --policies sharde", 2, ["policies is 'sharde'"]),
    train("--set actor_nice=-1", 2, "actor_nice", "at least 0"),
    train("--set actor_nice=20", 2, "actor_nice", "at most 19"),
    train("--set reward_scale=0", 2, "reward_scale", "more than 0"),
    Row("train ppo ALE/Pong-v5 --set repeat_action_probability=2", 2, ["repeat_action_probability", "at most 1"]),
    train("--set tracker=wandbb", 2, "tracker", "'wandbb'", "wandb, trackio or none"),
    train("--set split=best", 2, "split", "given, measured"),
    train("--set step_timeout_s=0", 2, "step_timeout_s", "a number of seconds more than 0"),
    train("--set checkpoint_every_s=5m", 2, "checkpoint_every_s", "a number of seconds at least 0"),
    train("--set restart_budget=-1", 2, "restart_budget", "at least 0"),
    train("--set start_together=0", 2, "start_together", "at least 1"),
    Row("resume kept --steps 4000 --runtime threds", 2, ["runtime", "'threds'", "serial, threads, processes"]),
    train("--lag exactly", 2, "lag", "bounded, exact"),
    train("--device tpu", 2, "device", "auto, cpu, cuda"),
    train("--set learning_rate=fast", 2, "learning_rate", "'fast'", "number"),
    train("--set learning_rate=nan", 2, "learning_rate", "'nan'", "number"),
    train("--set gamma=2", 2, "gamma", "at most 1"),
    train("--set hidden_sizes=64,x", 2, "hidden_sizes", "comma-separated"),
    train("--set activation=tan", 2, "activation", "tanh"),
    train("--set normalize_returns=maybe", 2, "normalize_returns", "true or false"),
    train("--set learning_rate", 2, "'learning_rate'", "key=value"),
    train("--set gamma=0.9 gamma=0.8", 2, "gamma twice", "'0.9'", "'0.8'"),
    train("--set gamma=0.9 --set gamma=0.8", 2, "gamma twice"),
    train("--steps 100 --set steps=200", 2, "steps is given twice"),
    Row("resume kept --steps many", 2, ["steps", "'many'", "whole number"]),
    Row("resume kept --steps 4000 --set steps=5000", 2, ["steps is given twice"]),
    Row("resume kept --stop-at 1 --set stop_at=2", 2, ["stop_at is given twice"]),
    Row("resume kept --stop-at-return 1 --set stop_at_return=2", 2, ["stop_at_return is given twice"]),
    Row("resume kept --time 1 --set time=2", 2, ["time is given twice"]),
    Row("resume kept --eval-every 1 --set eval_every=2", 2, ["eval_every is given twice"]),
    Row("resume kept --device cpu --set device=auto", 2, ["device is given twice"]),
    Row("resume kept --time 60s", 2, ["time is '60s'", "--time 600"]),
    Row("resume kept --steps 4000 --learning-rate 0.1", 2, ["--set learning_rate=0.1"]),
    Row(
        "resume kept --seed 7", 2, ["--seed is not a flag, but a setting: pass --set seed=7, if a resume may change it"]
    ),
    Row("resume kept --learning-rate", 2, ["--learning-rate is not a flag", "--set learning_rate=VALUE"]),
    Row("resume kept --steps 1e99", 2, ["steps is '1e99', but a whole number has at most 128 bits", "--steps N"]),
    Row("resume kept --steps 4000 --set progress=lines", 2, ["unknown key 'progress'"]),
    Row("resume kept --steps 4000 --set seed=7", 2, ["seed is 0 in kept", "cannot change it to 7", "--init-from kept"]),
    Row("eval kept --episodes 0", 2, ["episodes is 0", "at least 1"]),
    Row("eval kept --episodes few", 2, ["few"]),
    Row("eval kept --seed -1", 2, ["seed is -1", "at least 0"]),
    Row("bench ppo CartPole-v1 --init-from runs/none", 2, ["init_from is runs/none", "leave it out"]),
    Row("bench ppo CartPole-v1 --seconds -1", 2, ["seconds", "-1"]),
]
FOR_ACTORS = [
    *(("learner_cores", "0"), ("learner_nice", "1"), ("actor_cores", "0")),
    *(("actor_nice", "1"), ("actor_threads", "1"), ("start_together", "1")),
]
"""Settings that are not supported by serial."""
COMBINATIONS = [
    train("--set episodic_life=true", 2, "episodic_life is true", "is not supported by CartPole-v1", "ALE/Pong-v5"),
    Row(
        "train ppo offbeat.envs.testing.games:Nim --set frame_skip=4",
        2,
        ["frame_skip is 4", "only envs with one agent"],
    ),
    train("--set minibatch_size=1000", 2, "minibatch_size is 1000", "= 256 rows", "minibatch_size=256"),
    train("--set shards=0", 2, "shards is '0'", "at least 1"),
    train("--set shards=300", 2, "shards is 300", "envs_per_actor = 1 x 32 x 8 = 256 rows", "--set shards=256"),
    train("--set shards=65 minibatch_size=64", 2, "shards is 65", "256 rows, 64 in each of 4 minibatches", "shards=64"),
    train("--set shards=9 core=gru", 2, "shards is 9", "envs_per_actor = 1 x 8 = 8 envs", "shards=8 or less"),
    train_sac("--set shards=65 batch_size=64", "shards is 65", "batch_size is 64 transitions", "shards=64 or less"),
    train_sac(
        "--set shards=3 core=gru batch_size=32",
        "shards is 3",
        "chunk_length is 32 / 16 = 2 sequences",
        "shards=2 or less",
    ),
    train("--actors 3 --set unrolls_per_batch=1", 2, "actors is 3", "--actors 1"),
    *(
        train(
            f"--runtime {runtime} --max-lag 2 --actors 7 --set unrolls_per_batch=2 lag={lag}",
            2,
            "actors is 7",
            "(max_lag + 1) x unrolls_per_batch = (2 + 1) x 2 = 6 tickets",
            "--actors 6",
            "max_lag",
        )
        for runtime, lag in (("serial", "exact"), ("threads", "bounded"))
    ),
    *(
        train(
            f"--set {key}={value}",
            2,
            f"{key} is {value}, which is not supported by the serial runtime",
            "--runtime processes",
        )
        for key, value in FOR_ACTORS
    ),
    *(
        train(
            f"--runtime threads --actors 1 --set {key}={value}",
            2,
            f"{key} is {value}, which is not supported by the threads runtime",
            "--runtime processes",
        )
        for key, value in FOR_ACTORS
        if key in ("actor_threads", "start_together")
    ),
    *(
        train(f"--runtime {runtime} --actors 1 --set {key}=0,4000", 2, f"{key} names 4000", "this process may run on")
        for runtime, key in (("threads", "actor_cores"), ("processes", "learner_cores"))
    ),
    train("--runtime processes --lag exact --set split=measured", 2, "split is measured", "lag exact", "leave it out"),
    train(
        "--runtime processes --lag exact --set actor_threads=2", 2, "actor_threads", "learner_threads", "leave it out"
    ),
    train("--set split=measured", 2, "split is measured", "serial", "leave it out"),
    train("--runtime processes --actors 2 --set split=measured", 2, "split is measured", "actors is given too"),
    *(
        train(
            f"--runtime {runtime} --max-lag 9 --set unroll_length=2000000000 envs_per_actor=8 unrolls_per_batch=1",
            2,
            "(9 + 1) x 1 slots",
            "2000000001 x 8 rows need",
            "GB of memory are free",
            "a smaller unroll_length",
        )
        for runtime in ("serial", "threads", "processes")
    ),
    train(
        "--set hidden_sizes=10000000,10000000",
        2,
        "4 inputs besides images, 2 outputs and 100,000,080,000,0",
        "GB of memory are free: pass smaller hidden_sizes",
    ),
    train("--set env_groups=3", 2, "env_groups is 3", "env_groups=1", "envs_per_actor=8"),
    train("--set learning_rate_schedule=kl", 2, "--set kl_target=0.01"),
    train("--set action_distribution=squashed", 2, "action_distribution=auto"),
    Row("train ppo Pendulum-v1 --set exploration=symmetric_kl entropy_coef=0.01", 2, ["exploration=entropy"]),
    train("--set kernels=numba exploration=symmetric_kl", 2, "numba, which supports only exploration=entropy, but"),
    Row("train ppo Pendulum-v1 --preset ppo-cartpole-v1 --run-dir kept", 2, ["kept exists", "--run-dir"]),
]
LATE = {"envs_per_actor": 2, "unroll_length": 512, "steps": 4096}
"""The env fails in the first unroll: nothing was learned yet."""
ON_A_REPLAY = [
    *(
        train_sac(f"--set {key}={value}", f"{key} is '{value}'", "a fraction such as 1/4, more than 0", f"--set {key}=")
        for key, value in (
            *(("utd_ratio", value) for value in ("0", "-1/4", "abc", "1/0", "nan")),
            ("steps_per_update", "0"),
        )
    ),
    train_sac(
        "--set utd_ratio=2 steps_per_update=1/2", "utd_ratio is 2", "steps_per_update is 1/2", "pass only one of them"
    ),
    train("--set utd_ratio=1", 2, "is a setting of sac, crossq, td3, ", "leave it out", "offbeat list settings ppo"),
    train("--set warmup=100 capacity=200", 2, "is a setting of sac, crossq, td3, pearl, dqn, "),
    train_sac("--set resident_batches=2", "resident_batches is a setting of ppo, impala, a2c, ", "leave it out"),
    train_sac("--set warmup=100", "warmup is 100", "the first sample needs 256", "--set warmup=256"),
    train_sac("--set warmup=2000 capacity=1000", "warmup is 2000", "--set capacity=2000", "--set warmup=1000"),
    train_sac(
        "--actors 3 --envs-per-actor 4 --set capacity=255 max_ahead=5 chunk_length=8 batch_size=100 warmup=100",
        "capacity is 255",
        "max_ahead + actors = 5 + 3 tickets of chunk_length x envs_per_actor = 8 x 4 rows",
        "--set capacity=256",
    ),
    *(
        train_sac(
            f"--runtime {runtime} --set capacity=2000000000000",
            "2000000000000 +",
            "GB of memory are free",
            "a smaller capacity",
        )
        for runtime in ("serial", "threads", "processes")
    ),
    train_sac("--set n_step=301 capacity=300", "n_step is 301", "300 successive rows", "n_step=300", "capacity=301"),
    train_sac("--set n_step=0", "n_step", "at least 1"),
    train_sac(
        "--actors 3 --set max_ahead=1",
        "actors is 3",
        "tickets can be acted at one time",
        "max_ahead + 1 = 2",
        "--set max_ahead=3",
    ),
    train_sac("--runtime threads --actors 3 --set max_ahead=1", "actors is 3", "--set max_ahead=3"),
    train_sac("--actors 2 --set max_ahead=0", "actors is 2", "--set max_ahead=2"),
    train_sac("--set learner_threads=3", "learner_threads is 3", "plain MLPs among at most 2", "learner_threads=2"),
    train_sac("--set target_entropy=1", "target_entropy is 1", "less than 0.6931 nats", "target_entropy=-1"),
    train_sac("--set target_entropy=0.7", "target_entropy is 0.7", "target_entropy=0.4852", env="CartPole-v1"),
    train_sac(f"--import {ZOO}", "MultiDiscrete", "offbeat train ppo zoo/ManyChoices-v0", env="zoo/ManyChoices-v0"),
    train_sac(f"--import {LINKS}", "[-inf] to [inf]", "finite bounds", "train ppo", env="links/Boundless-v0"),
    *(
        train_sac(given, f"{key} is given, which is not supported by sac", instead)
        for key, given, instead in (
            ("max_lag", "--max-lag 1", "--set max_ahead=N"),
            ("max_lag", "--max-lag 0", "--set max_ahead=N"),
            ("unroll_length", "--set unroll_length=8", "--set chunk_length=N"),
            ("unrolls_per_batch", "--set unrolls_per_batch=2", "--set batch_size=N"),
            ("split", "--set split=measured", "--actors N"),
            ("decorrelate", "--set decorrelate=true", "leave it out"),
        )
    ),
    Row("resume soft-relaid --steps 500", 2, ["envs_per_actor is 2 in the checkpoint and 1 now", "--init-from"]),
    *(
        Row(f"resume soft-{key} --steps 500", 2, [key, "--init-from"])
        for key in ("capacity", "chunk_length", "max_ahead", "prioritized", "utd_ratio", "warmup")
    ),
    Row("train td3 Pendulum-v1 --init-from soft", 2, ["algorithm is sac in the checkpoint and td3 now"]),
    Row(
        "train sac Pendulum-v1 --init-from soft --set critics=3",
        2,
        [
            "critics is 2 in the checkpoint and 3 now",
            "hidden_sizes is 16,16 in",
            "pass --set hidden_sizes=16,16 critics=2",
        ],
    ),
    Row("train sac Pendulum-v1 --init-from kept", 2, ["CartPole-v1", "does not fit Pendulum-v1"]),
    Row(
        "train sac Pendulum-v1 --init-from soft --set temperature=0.2",
        2,
        ["temperature is 0.2, but in soft,", "it was none", "pass --set temperature=none"],
    ),
    Row("resume soft-cut", 2, ["is damaged", "replay.safetensors"]),
]
FREE = "--runtime hogwild --workers 2"
HOGWILD = [
    train("--runtime hogwild --workers 0", 2, "workers is '0'", "at least 1", "--workers"),
    train("--runtime hogwild --workers 1.5", 2, "workers is '1.5'", "whole number"),
    train("--runtime hogwild --workers many", 2, "workers is 'many'", "whole number"),
    train(f"{FREE} --set hogwild=fast", 2, "hogwild is 'fast'", "shared, synced", "--set hogwild="),
    train(f"{FREE} --set hogwild_moments=mine", 2, "hogwild_moments is 'mine'", "shared, per_worker"),
    *(
        Row(
            f"train {algorithm} --runtime hogwild --workers 100000",
            2,
            ["workers is 100000", "each needs 300 MB for its process", "GB of memory are free", "fewer --workers"],
        )
        for algorithm in ("a2c CartPole-v1", "sac Pendulum-v1 --set batch_size=1 warmup=1000000")
    ),
    Row(
        "train impala CartPole-v1 --runtime hogwild",
        2,
        ["runtime is hogwild", "impala cannot run lock-free", "Pass another --runtime", "A2C"],
    ),
    *(
        train(f"{FREE} {given}", 2, f"{told}, which is not supported by the hogwild runtime", *instead)
        for given, told, instead in (
            ("--actors 2", "actors is 2", ["--workers N"]),
            ("--max-lag 1", "max_lag is 1", ["gradient_staleness", "Leave it out"]),
            ("--lag exact", "lag is exact", ["depends on timing", "Leave it out"]),
            ("--set split=measured", "split is measured", ["--workers N"]),
            ("--set shards=2", "shards is 2", ["each worker makes updates of its own", "Leave it out"]),
            ("--set learner_cores=0", "learner_cores is 0", ["--runtime threads or --runtime processes"]),
            ("--set learner_nice=1", "learner_nice is 1", ["--runtime threads or --runtime processes"]),
            ("--set actor_threads=1", "actor_threads is 1", ["--runtime processes"]),
        )
    ),
    train_sac(f"{FREE} --set max_ahead=2", "max_ahead is 2", "is not supported by the hogwild runtime", "Leave it out"),
    *(
        train(
            f"--runtime {runtime} {given}",
            2,
            f"{told}, which is not supported by the {runtime} runtime",
            "or pass --runtime hogwild",
        )
        for runtime, given, told in (
            ("serial", "--workers 2", "workers is 2"),
            ("threads", "--set hogwild=synced", "hogwild is synced"),
            ("processes", "--set hogwild_moments=shared", "hogwild_moments is shared"),
        )
    ),
    train_sac(
        "--runtime hogwild --workers 3 --set warmup=600",
        "warmup is 600 transitions, 200 for each of 3 workers",
        "batch_size = 256",
        "--set warmup=768",
        "fewer --workers",
    ),
    train_sac(
        f"{FREE} --set core=gru chunk_length=16 burn_in=64 batch_size=32 envs_per_actor=1 warmup=127",
        "each has capacity 500000 and warmup 63",
        "the first sample needs 64",
        "For the whole run pass 2 times as much",
    ),
    train_sac(f"{FREE} --set warmup=4000 capacity=2000", "warmup is 4000", "capacity is 2000", "capacity=4000"),
    train_sac(
        f"{FREE} --set n_step=300 capacity=500 warmup=500 batch_size=200 envs_per_actor=1",
        "n_step is 300",
        "divided among the 2 workers",
        "capacity and warmup are divided",
    ),
    train(f"{FREE} --set minibatch_size=1000", 2, "minibatch_size is 1000", "= 256 rows", "minibatch_size=256"),
]
ENVIRONMENTS = [
    train_on("zoo/TextActions-v0", ZOO, 2, "zoo/TextActions-v0", "Text"),
    train_on("zoo/MaskOfAnotherSize-v0", ZOO, 2, "zoo/MaskOfAnotherSize-v0", "one flag for each of the 3 choices"),
    train_on("zoo/TextObservations-v0", ZOO, 2, "zoo/TextObservations-v0", "Text"),
    train_on("zoo/CannotBeMade-v0", ZOO, 2, "zoo/CannotBeMade-v0", "level.json"),
    train_on("runs/RaisesInReset-v0", ENVS, 2, "runs/RaisesInReset-v0", "reset()", "wave.dat"),
    train(
        "--set env.kwargs.wings=2", 2, "CartPole-v1 has no argument 'wings'", "Its arguments are sutton_barto_reward"
    ),
    train("--set kwargs=wings", 2, "kwargs is 'wings'", "--env-kwargs NAME=VALUE"),
    Row(
        "train ppo ALE/Pong-v5 --set env.kwargs.frameskip=2",
        2,
        ["env.kwargs.frameskip is 2", "the other keys of [env] determine this argument (4)"],
    ),
    train_on("zoo/Raises-v0", ZOO, 2, "zoo/Raises-v0", "step()", "the cart has no mass", "offbeat check"),
    train_on("zoo/LateNaN-v0", ZOO, 2, "zoo/LateNaN-v0", "NaN"),
    train_on("zoo/NaNReward-v0", ZOO, 2, "zoo/NaNReward-v0", "reward", "NaN"),
    train_on("zoo/WrongShape-v0", ZOO, 2, "zoo/WrongShape-v0", "(1,)", "(3,)"),
    train_on("zoo/OldStep-v0", ZOO, 2, "zoo/OldStep-v0", "step()"),
    Row(
        "train ppo tests/Lambda-v0 --runtime processes --actors 1 --run-dir new",
        2,
        ["tests/Lambda-v0 cannot be sent to another process", "a lambda", "--import", "--runtime threads"],
    ),
]
CARTS, MIXED = "offbeat.envs.testing.worlds:CartPoles", "offbeat.envs.testing.worlds:MixedSpaces"
POLICIES = {
    "none.toml": {"cat": "cart_*", "dog": "bird_*"},
    "some.toml": {"cat": "cart_1"},
    "all.toml": {"cat": "*"},
    "late.toml": {"cat": "*", "dog": "cart_1"},
}
"""File -> the patterns of its policies."""
WRONG = "tests.sample_envs.wrong_worlds"
SEVERAL_AGENTS = [
    Row(
        f"train ppo {CARTS} --policies none.toml", 2, ["the policy dog has no agents", "cart_0", "or remove the table"]
    ),
    Row(f"train ppo {CARTS} --policies late.toml", 2, ["the policy dog has no agents", "that of cat", "above it"]),
    Row(f"train ppo {CARTS} --policies some.toml", 2, ["agent 'cart_0' belongs to no policy", 'agents = "*"']),
    *(
        Row(f"train ppo {MIXED} {policies}", 2, ["scout and driver", "observations differ", "--policies separate"])
        for policies in ("", "--policies all.toml")
    ),
    train("--policies separate", 2, "CartPole-v1 has one agent", "leave out --policies"),
    train("--set league.window=3", 2, "a game of at least 2 sides", "CartPole-v1 has 1 agent", "leave the league out"),
    train("--set league.opponents=latest league.latest_ratio=0", 2, "draws no snapshots", "league.opponents=uniform"),
    Row("train ppo pettingzoo:mpe2/simple_sprea_v3", 2, ["simple_sprea_v3'", "simple_spread_v3'", "list envs"]),
    *(
        Row(f"train ppo {WRONG}:{env}", 2, [f"world 0: step {step} of the episode", agent, says, "offbeat check"])
        for env, step, agent, says in (
            ("Revives", 4, "agent a", "is alive again"),
            ("RewardsTheDead", 4, "agent a", "got a reward of 2.0"),
            ("LeavesWithoutAnEnd", 5, "agent b", "neither terminated nor truncated"),
            ("HasNaN", 2, "agent b", "observation is NaN"),
        )
    ),
]
RUNS = [
    train("--run-dir kept", 2, "kept exists", "offbeat resume kept"),
    train("--run-dir notes.txt", 2, "notes.txt exists"),
    train("--run-dir notes.txt/run", 2, "notes.txt/run cannot be created", "--run-dir"),
    train("--init-from nowhere", 2, "nowhere is not a run directory"),
    train("--init-from cut", 2, "is damaged", "weights.safetensors"),
    Row("train ppo Pendulum-v1 --init-from kept", 2, ["CartPole-v1", "does not fit Pendulum-v1", "action"]),
    train("--init-from kept --set hidden_sizes=8", 2, "hidden_sizes is 16 in the checkpoint and 8 now"),
    Row("resume kept", 2, ["nothing is left to do", "offbeat resume kept --steps"]),
    Row("resume kept --steps 100", 2, ["nothing is left to do"]),
    Row("resume empty", 2, ["empty is not a run directory"]),
    Row("eval nowhere", 2, ["nowhere is not a run directory (it does not exist)"]),
    Row("eval empty", 2, ["empty is not a run directory (it has no config.toml)"]),
    Row("watch empty --video a.gif", 2, ["empty is not a run directory"]),
    Row("watch kept --video a.avi", 2, ["a.avi", ".mp4", ".gif"]),
    Row("eval kept --checkpoint bets", 2, ["has no checkpoint 'bets'", "latest", "--checkpoint"]),
    Row("plot nowhere", 2, ["nowhere is not a run directory (it does not exist)"]),
    Row("plot empty", 2, ["empty"]),
    Row("plot", 2, ["RUN"]),
    Row(f"plot kept --metric {'n' * 300}", 2, ["the path 'kept/nnn", "File name too long"]),
    *(Row(f"{command} {damaged}", 2, ["is damaged", file])
      for command in ("eval", "resume", "watch --video a.gif")
      for damaged, file in (("cut", "weights.safetensors"), ("tampered", "policy.json"), ("missing", "policy.json"))),
    *(Row(f"{command} other", 2, ["trained on CartPole-v1", "config.toml has Pendulum-v1"])
      for command in ("eval", "resume", "watch --video a.gif")),
    *(Row(f"{command} text", 2, ["config.toml is not TOML"]) for command in ("eval", "resume")),
    Row("export nowhere", 2, ["nowhere is not a run directory"]),
    Row("export cut", 2, ["is damaged", "weights.safetensors"]),
    Row("export kept --checkpoint step-000000000001", 2, ["no checkpoint 'step-000000000001'", "latest"]),
    Row("export kept --format onx", 2, ["onx", "onnx", "torchscript"]),
    Row("export kept --out notes.txt", 2, ["notes.txt exists", "--out"]),
    Row("export kept --out a.pt", 2, ["a.pt has the suffix of torchscript", "onnx: pass --format torchscript, or"]),
    Row("export kept --format torchscript --out a.onnx", 2, ["a.onnx has the suffix of onnx", "pass --format onnx"]),
    Row("export kept --out empty", 2, ["empty is a folder", "--out empty/policy"]),
    Row("export kept --format torchscript --out notes.txt/policy.pt", 2, ["notes.txt/policy.pt cannot", "another"]),
    Row("resume relaid --steps 4000", 2, ["envs_per_actor is 4 in the checkpoint and 2 now", "--init-from"]),
    Row("resume mistyped", 2, ["unknown key 'gama'", "'gamma'"]),
]  # fmt: skip
TABLE = [*NAMES, *VALUES, *COMBINATIONS, *ON_A_REPLAY, *HOGWILD, *ENVIRONMENTS, *SEVERAL_AGENTS, *RUNS]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with a sound run, damaged ones, an empty folder and a file."""
    folder = tmp_path_factory.mktemp("prepared")
    small_run(folder / "kept", steps=512)
    for name in ("cut", "tampered", "missing", "other", "text", "mistyped", "relaid"):
        shutil.copytree(folder / "kept", folder / name, symlinks=True)
    latest = "checkpoints/latest"
    change(folder / "cut" / latest / "weights.safetensors", lambda data: data[:-1])
    change(folder / "tampered" / latest / "policy.json", lambda data: data.replace(b"16", b"17"))
    (folder / "missing" / latest / "policy.json").unlink()
    change(folder / "other" / "config.toml", lambda data: data.replace(b"CartPole-v1", b"Pendulum-v1"))
    change(folder / "text" / "config.toml", lambda data: b"[run\n" + data)
    change(folder / "mistyped" / "config.toml", lambda data: data.replace(b"gamma", b"gama"))
    change(folder / "relaid" / "config.toml", lambda data: data.replace(b"envs_per_actor = 4", b"envs_per_actor = 2"))
    prepare_on_a_replay(folder)
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("mine")
    for name, patterns in POLICIES.items():
        tables = (f'[policies.{policy}]\nagents = "{pattern}"\n' for policy, pattern in patterns.items())
        (folder / name).write_text("".join(tables))
    return folder


def prepare_on_a_replay(folder: Path) -> None:
    """Make a run of SAC, and copies whose config says something else."""
    small_sac(folder / "soft", max_ahead=1, stop_at=200, utd_ratio="1")
    edits = [
        *(("relaid", "envs_per_actor = 2", "envs_per_actor = 1"), ("capacity", "capacity = 240", "capacity = 300")),
        *(("max_ahead", "max_ahead = 1", "max_ahead = 2"), ("chunk_length", "chunk_length = 3", "chunk_length = 2")),
        *(("warmup", "warmup = 64", "warmup = 150"), ("utd_ratio", 'utd_ratio = "1"', 'utd_ratio = "3"')),
        ("prioritized", "prioritized = false", "prioritized = true"),
    ]
    for name, before, after in edits:
        shutil.copytree(folder / "soft", folder / f"soft-{name}", symlinks=True)
        text = (folder / f"soft-{name}" / "config.toml").read_text()
        assert before in text, before
        (folder / f"soft-{name}" / "config.toml").write_text(text.replace(before, after))
    shutil.copytree(folder / "soft", folder / "soft-cut", symlinks=True)
    change(folder / "soft-cut" / "checkpoints/latest/replay.safetensors", lambda data: data[:-1])


@pytest.fixture(scope="module")
def before(prepared) -> dict[str, Entry]:
    """What is in that folder: every test of the table leaves it as it is."""
    return entries_of(prepared)


Entry = tuple[int, int, int] | None
"""Number, size and time of the last change of a file or a link."""


def entries_of(folder: str | Path) -> dict[str, Entry]:
    """Return what is in a folder. A file that was written again has another time, with the same content too."""
    found: dict[str, Entry] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found |= {entry.path: None, **entries_of(entry.path)}
            else:
                state = entry.stat(follow_symlinks=False)
                found[entry.path] = state.st_ino, state.st_size, state.st_mtime_ns
    return found


@pytest.fixture(autouse=True)
def _unsendable_env():
    nameless: Any = lambda: run_envs.Wave()  # noqa: E731, PLW0108 - that it has no name is the point
    gym.register("tests/Lambda-v0", nameless)
    yield
    del gym.registry["tests/Lambda-v0"]


def change(file: Path, how: Any) -> None:
    file.write_bytes(how(file.read_bytes()))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.arguments)
def test_bad_input_gets_a_clear_error_and_changes_nothing(prepared, before, monkeypatch, row):
    monkeypatch.chdir(prepared)
    said = offbeat(*row.arguments.split())

    assert said.code == row.code, said
    assert [fragment for fragment in row.says if fragment not in said.err + said.out] == [], said
    assert our_lines(said.err) == []
    after = entries_of(prepared)
    assert after == before, set(after.items()) ^ set(before.items())


def test_a_current_folder_that_was_deleted_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    said = offbeat("list", "presets")
    assert (said.code, said.err) == (
        2,
        "offbeat: the current folder was deleted: go to another one, or again to one of its name\n",
    )
    with pytest.raises(ConfigError, match="the current folder was deleted"):
        train_in_python("ppo", "CartPole-v1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("layout", ["serial --actors 1", "threads --actors 1", "processes --actors 1", "hogwild"])
def test_device_cuda_without_a_gpu_is_refused(tmp_path, layout):
    given = ["--device", "cuda", "--runtime", *layout.split()]
    said = offbeat("train", "ppo", "CartPole-v1", *given, "--run-dir", tmp_path / "run")
    assert said.code == 2
    assert "no CUDA GPU" in said.err
    assert "--device cpu" in said.err
    assert not any(tmp_path.iterdir())


# --- what can only show later -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "says"),
    [("RaisesLate", ["step()", "the wave has no length"]), ("NaNLate", ["env 0", "reward is NaN"])],
)
def test_an_env_that_fails_before_the_first_learning_step_fails_the_run_with_a_traceback_in_its_log(
    tmp_path, env, says
):
    path = tmp_path / "run"
    said = offbeat(*small_arguments(path, f"runs/{env}-v0", imports=(ENVS,), **LATE))
    assert said.code == 1
    assert our_lines(said.err) == []
    log = (path / "log.txt").read_text()
    assert "Traceback" in log
    assert all(fragment in said.err and fragment in log for fragment in says)
    assert load(path / "checkpoints" / "latest").policy["env_steps"] == 0


@pytest.mark.parametrize("env", ["runs/RaisesLate-v0", "runs/NaNLate-v0"])
@pytest.mark.parametrize("checkpoint_every", [0, 64])
def test_an_env_that_fails_after_learning_started_fails_the_run_and_keeps_the_learned_weights(
    tmp_path, env, checkpoint_every
):
    path = tmp_path / "run"
    arguments = small_arguments(path, env, imports=(ENVS,), checkpoint_every=checkpoint_every, envs_per_actor=2)
    said = offbeat(*arguments)
    assert said.code == 1
    assert f"offbeat check {env}" in said.err
    assert our_lines(said.err) == []
    assert status_of(path)["state"] == "failed"
    assert env in status_of(path)["reason"]
    assert "Traceback" in (path / "log.txt").read_text()
    assert load(path / "checkpoints" / "latest").policy["env_steps"] > 0


def test_a_failed_run_can_be_resumed_once_its_env_works(tmp_path, monkeypatch):
    path = tmp_path / "run"
    arguments = small_arguments(path, "runs/RaisesLate-v0", imports=(ENVS,), checkpoint_every=64, envs_per_actor=2)
    assert offbeat(*arguments).code == 1
    monkeypatch.setattr(run_envs, "FAULTY", False)
    assert offbeat("resume", path, "--progress", "none").code == 0
    assert status_of(path)["state"] == "finished"
