"""Asynchronous PPO of Sample Factory on one piece of work; started by `speed.py` in the peer's own environment.

    python benchmarks/peers/sample_factory_ppo.py '{"env": "CartPole-v1", ..., "seed": 1}'

Prints one JSON object: the versions, the policy lag and the curve [env_steps, wall_time_s, episode_return_mean].
A point is taken when the learner reports a learning step; time counts from the first report, which the learner
makes once it is ready and before any env has been stepped.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import gymnasium
from carts import Carts
from cpu_time import tree_cpu_s
from sample_factory.algo.utils.agent_policy_mapping import AgentPolicyMapping
from sample_factory.algo.utils.misc import LEARNER_ENV_STEPS
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sample_factory_run import run_to_end

OLDER = {"HalfCheetah-v5": "HalfCheetah-v4"}
"""Ids before Gymnasium 1, whose steps and rewards are the same."""
GAMES = {"PongNoFrameskip-v4": "atari_pong"}
"""Atari's games, which Sample Factory steps by EnvPool, all envs of a worker as one."""
WORLDS = {"benchmarks.peers.carts:Carts": "carts"}
"""Worlds with several agents."""
WORKERS = 2
SPLITS = 2
"""Halves of a worker's envs that are stepped by turns, while the others' actions are computed."""


def policy_of_agent(mapping: AgentPolicyMapping, agent: int, *_env: int) -> int:
    """Return the policy of an agent: each has equally many, in order."""
    return int(agent * mapping.num_policies // mapping.num_agents)


AgentPolicyMapping.get_policy_for_agent = policy_of_agent  # it would draw one at random, for all agents of a world
# This holds in the workers too: they are spawned, and import this module.


class CartsEnv(gymnasium.Env):
    """The carts as an env of Sample Factory, which starts the next episode by itself."""

    num_agents = 4
    is_multiagent = True

    def __init__(self) -> None:
        self._carts = Carts()
        self.observation_space = self._carts.observation_space("cart_0")
        self.action_space = self._carts.action_space("cart_0")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return [list(part.values()) for part in self._carts.reset(seed, options)]

    def step(self, action: Any) -> Any:
        actions = dict(zip(self._carts.agents, action, strict=True))
        observations, *others = self._carts.step(actions)
        if not self._carts.agents:
            observations, _ = self._carts.reset()
        return [list(part.values()) for part in (observations, *others)]


class Curve:
    """Takes a point at each report of a learner."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float, float | None]] = []
        self.cpu_s: list[float] = []
        """CPU seconds of all processes at each point, with several policies."""
        self.lag: tuple[float, float] | None = None
        """Mean and maximum policy lag, as last reported, in optimizer steps."""
        self._started_s: float | None = None

    def take(self, runner: Any, _message: dict[str, Any], policy: int) -> None:
        """Append [steps of all policies, wall_time_s, mean return of the last 100 training episodes of a policy]."""
        now_s = time.perf_counter()
        self._started_s = now_s if self._started_s is None else self._started_s
        returns = runner.policy_avg_stats.get("reward", {policy: ()})[policy]
        mean = float(sum(returns)) / len(returns) if returns else None
        self.points.append((sum(runner.env_steps.values()), now_s - self._started_s, mean))
        if runner.cfg.num_policies > 1:
            self.cpu_s.append(tree_cpu_s())
        lag = runner.policy_lag[policy]
        if lag:
            self.lag = (float(lag["version_diff_avg"]), float(lag["version_diff_max"]))


def arguments(work: dict[str, Any], folder: str) -> list[str]:
    """Return the work in Sample Factory's words."""
    policies = work.get("policies", 1)
    rows = work["envs"] * work.get("agents", 1) * work["unroll_length"] // policies
    options = {
        "algo": "APPO",
        "env": work["env"],
        "train_dir": folder,
        "experiment": "run",
        "device": "gpu" if work.get("device") == "cuda" else "cpu",
        "seed": work["seed"],
        "train_for_env_steps": work["steps"] // policies,  # of each
        "num_policies": policies,
        "serial_mode": False,
        "async_rl": True,
        "batched_sampling": False,
        "num_workers": WORKERS,
        "num_envs_per_worker": work["envs"] // WORKERS,
        "worker_num_splits": SPLITS,
        "rollout": work["unroll_length"],
        "recurrence": 1,
        "batch_size": work["minibatch_size"],
        "num_batches_per_epoch": rows // work["minibatch_size"],
        "num_epochs": work["epochs"],
        "with_vtrace": False,  # needs a loop over the rollout in Python: slower, and off in its own examples
        "value_bootstrap": True,
        "use_rnn": False,
        "nonlinearity": work["activation"],
        "actor_critic_share_weights": work["shared_trunk"],
        "adaptive_stddev": False,
        "learning_rate": work["learning_rate"],
        "lr_schedule": "constant",
        "adam_eps": work["adam_eps"],
        "gamma": work["gamma"],
        "gae_lambda": work["gae_lambda"],
        "ppo_clip_ratio": work["clip"],
        "ppo_clip_value": 1e6,  # none
        "value_loss_coeff": work["value_coef"] / 2,  # here the loss is the whole squared error
        "exploration_loss_coeff": work["entropy_coef"],
        "max_grad_norm": work["max_grad_norm"],
        "normalize_input": work["normalize_observations"],
        "normalize_returns": work["normalize_returns"],
    }
    if work["env"] in WORLDS:
        options["env"] = WORLDS[work["env"]]
    if work["env"] in GAMES:
        options |= {
            "env": GAMES[work["env"]],
            "env_agents": work["envs"] // WORKERS,
            "num_envs_per_worker": 1,
            "worker_num_splits": 1,
            "batched_sampling": True,
            "encoder_conv_architecture": "convnet_atari",
            "encoder_conv_mlp_layers": 512,
            "env_frameskip": 4,
            "obs_scale": 255.0,
            "summaries_use_frameskip": False,  # a step is a decision
        }
        return [f"--{name}={value}" for name, value in options.items()]
    layers = ["--encoder_mlp_layers", *map(str, work["hidden_sizes"])]
    return [f"--{name}={value}" for name, value in options.items()] + layers


def make_env(name: str, _config: object, _env_config: object, render_mode: str | None = None) -> gymnasium.Env:
    """Return one env, without Gymnasium's checker."""
    return gymnasium.make(OLDER.get(name, name), render_mode=render_mode, disable_env_checker=True)


def make_carts(_name: str, _config: object, _env_config: object, render_mode: str | None = None) -> gymnasium.Env:  # noqa: ARG001
    """Return one world."""
    return CartsEnv()


def make_game(name: str, config: object, env_config: object, render_mode: str | None = None) -> gymnasium.Env:
    """Return EnvPool's envs of a game, as Sample Factory's own example makes them."""
    from sf_examples.envpool.atari.envpool_atari_utils import make_atari_env

    env: gymnasium.Env = make_atari_env(name, config, env_config, render_mode)
    pool: Any = env
    while hasattr(pool, "env"):
        pool = pool.env
    pool.closed, pool.viewer = False, None  # which Gymnasium asks for when envs are closed, and EnvPool does not set
    return env


def train(work: dict[str, Any]) -> Curve:
    """Train to the end and return the curve.

    Raises:
        SystemExit: the run failed.
    """
    atari = work["env"] in GAMES
    if atari:
        register_env(GAMES[work["env"]], make_game)
    elif work["env"] in WORLDS:
        register_env(WORLDS[work["env"]], make_carts)
    else:
        register_env(work["env"], make_env)
    curve = Curve()
    with tempfile.TemporaryDirectory() as folder:
        given = arguments(work, folder)
        parser, _ = parse_sf_args(given)
        if atari:
            from sf_examples.envpool.atari.envpool_atari_params import add_atari_env_args

            add_atari_env_args(work["env"], parser)
        _, runner = make_runner(parse_full_cfg(parser, given))
        runner.policy_msg_handlers[LEARNER_ENV_STEPS].append(curve.take)
        run_to_end(runner)
    return curve


def main() -> None:
    """Train, then print what was measured."""
    curve = train(json.loads(sys.argv[1]))
    names = ("sample-factory", "torch", "numpy", "gymnasium", "mujoco", "envpool")
    versions = {name: version(name) for name in names if find_spec(name.replace("-", "_"))}
    report: dict[str, Any] = {"versions": versions, "policy_lag": curve.lag, "curve": curve.points}
    if curve.cpu_s:
        report["cpu_s"] = curve.cpu_s
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
