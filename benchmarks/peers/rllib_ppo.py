"""PPO of RLlib on worlds with several agents and two policies; started by `two_policies.py` in its own environment.

    python benchmarks/peers/rllib_ppo.py '{"env": "benchmarks.peers.carts:Carts", ..., "seed": 1}'

Prints one JSON object: the versions, the curve [agent_steps, wall_time_s, episode_return_mean], and the CPU seconds of
all processes at each of its points. A point is taken when all agent steps so far have been learned from. `stack` and
`env_runners` in the work choose RLlib's API stack, new or old, and its processes that sample beside the learner's.
"""

from __future__ import annotations

from typing import Any

from carts import Carts
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from rllib_measuring import mean_return, measure, network

POLICIES = ("first", "second")


class RLlibCarts(MultiAgentEnv):
    """The carts as an env of RLlib."""

    def __init__(self, _config: object = None) -> None:
        super().__init__()
        self._carts = Carts()
        self.possible_agents = self.agents = list(self._carts.possible_agents)
        self.observation_spaces = {name: self._carts.observation_space(name) for name in self.agents}
        self.action_spaces = {name: self._carts.action_space(name) for name in self.agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._carts.reset(seed, options)

    def step(self, action_dict: Any) -> Any:
        observations, rewards, terminated, truncated, infos = self._carts.step(action_dict)
        over = not self._carts.agents
        return observations, rewards, {**terminated, "__all__": False}, {**truncated, "__all__": over}, infos


def policy_of(agent: str, *_others: object, **_more: object) -> str:
    """Return the policy of an agent: the first two carts have the first."""
    return POLICIES[int(agent[-1]) // 2]


def configured(work: dict[str, Any]) -> PPOConfig:
    """Return the work in RLlib's words."""
    runners, new = work["env_runners"], work["stack"] == "new"
    rows = work["envs"] * work["agents"] * work["unroll_length"]
    config = (
        PPOConfig()
        .api_stack(enable_rl_module_and_learner=new, enable_env_runner_and_connector_v2=new)
        .framework("torch")
        .environment(RLlibCarts, disable_env_checking=True)
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=work["envs"] // max(1, runners),
            rollout_fragment_length=work["unroll_length"],
            batch_mode="truncate_episodes",
        )
        .multi_agent(policies=set(POLICIES), policy_mapping_fn=policy_of, count_steps_by="agent_steps")
        .training(
            num_epochs=work["epochs"],
            minibatch_size=work["minibatch_size"],
            lr=work["learning_rate"],
            gamma=work["gamma"],
            lambda_=work["gae_lambda"],
            clip_param=work["clip"],
            vf_clip_param=float("inf"),
            vf_loss_coeff=work["value_coef"] / 2,  # here the loss is the whole squared error
            entropy_coeff=work["entropy_coef"],
            use_kl_loss=False,
            kl_coeff=0.0,
            grad_clip=work["max_grad_norm"],
        )
        .debugging(seed=work["seed"], log_level="ERROR")
    )
    if new:
        return config.rl_module(model_config=DefaultModelConfig(**network(work))).training(
            train_batch_size_per_learner=rows
        )
    return config.training(train_batch_size=rows, model=network(work))


def agent_steps(result: dict[str, Any]) -> int:
    """Return the agent steps so far."""
    if "num_agent_steps_sampled" in result:
        return int(result["num_agent_steps_sampled"])
    of_agents = result["env_runners"]["num_agent_steps_sampled_lifetime"]
    return int(sum(of_agents.values()) if isinstance(of_agents, dict) else of_agents)


def return_of(result: dict[str, Any]) -> float | None:
    """Return the mean return of an agent in the last episodes."""
    of_worlds = mean_return(result)
    return None if of_worlds is None else of_worlds / 4


if __name__ == "__main__":
    measure(configured, lambda work: 2 + int(work["env_runners"]), agent_steps, return_of)
