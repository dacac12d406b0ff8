"""The names of all metrics, with a short description of each. docs/reference/metrics.md explains them."""

from __future__ import annotations

from functools import lru_cache

from offbeat.core.info_names import INFO
from offbeat.metrics.process_memory import PREFIX as MEMORY
from offbeat.metrics.timings import KINDS

GROUPS: dict[str, dict[str, str]] = {
    "progress": {
        "env_steps": "env steps learned from",
        "agent_steps": "decisions of agents in these env steps; with one agent per env, the env steps",
        "frames": "env_steps x frame_skip",
        "learning_step": "learning steps finished",
        "updates": "optimizer steps, refused ones included",
        "wall_time_s": "seconds of training, those before a resume included",
        "episodes": "episodes that ended in rows learned from",
        "evaluations": "evaluations finished",
    },
    "speed": {
        "sps": "env steps learned from per second",
        "ups": "updates per second",
    },
    "return": {
        "episode_return_mean": "mean return of the last training episodes (episodes_window)",
        "episode_return_min": "lowest return of these episodes",
        "episode_return_max": "highest return of these episodes",
        "episode_length_mean": "mean length of these episodes",
        "eval_env_steps": "env_steps that the weights of the last evaluation had learned from",
        "eval_return_mean": "mean return of the last evaluation; with several agents, per agent",
        "eval_return_std": "standard deviation of the returns of the last evaluation",
        "eval_return_min": "lowest return of the last evaluation",
        "eval_return_max": "highest return of the last evaluation",
        "eval_length_mean": "mean episode length of the last evaluation",
        "eval_team_return_mean": "mean over the episodes of the last evaluation of the sum of the agents' returns",
        "eval_first_return_mean": "mean return of the first episode in each new task; only with tasks",
        "eval_episodes_cut": "episodes of the last evaluation that were cut by a limit on env steps",
        "best_eval_return_mean": "highest eval_return_mean so far",
    },
    "lag": {
        "policy_lag_min": "learning steps between acting and first use, minimum",
        "policy_lag_mean": "learning steps between acting and first use, mean",
        "policy_lag_max": "learning steps between acting and first use, maximum",
    },
    "hogwild": {
        "gradient_staleness_min": "updates of other workers between reading parameters and changing them, minimum",
        "gradient_staleness_mean": "updates of other workers between reading parameters and changing them, mean",
        "gradient_staleness_max": "updates of other workers between reading parameters and changing them, maximum",
    },
    "replay": {
        "utd_ratio": "updates per transition since the end of the warm-up",
        "samples_per_insert": "average number of times that a transition is sampled: utd_ratio x batch_size",
        "replay_size": "valid transitions that can be sampled",
        "sample_age_min": "updates between acting and sampling, minimum",
        "sample_age_mean": "updates between acting and sampling, mean",
        "sample_age_max": "updates between acting and sampling, maximum",
    },
    "league": {
        "league_games": "games that have ended, of the tickets learned from",
        "elo": "Elo rating of the newest version of the policy",
        "win_rate": "mean win rate of the newest version against the snapshots of the window that it has met",
        "snapshots": "snapshots of the policy that have been taken",
    },
    "health": {
        "actor_restarts": "restarts of actor, worker or inference worker processes",
        "evaluator_restarts": "restarts of the evaluator process",
        "evaluations_failed": "evaluations without a result, because the env failed in each attempt",
        "updates_refused": "updates refused because a loss or gradient was not finite",
    },
    "time": {
        **{
            f"time_{kind}": f"time spent on '{kind}', summed over all workers, as a fraction of wall time"
            for kind in KINDS
        },
        "learner_dequeue_time_ms": "milliseconds per learning step that the learner waited for its tickets",
        "learner_load_time_ms": "milliseconds per learning step to load its rows and move them to the device",
        "learner_load_wait_time_ms": "milliseconds per learning step that the learner waited for the loader",
        "learner_prepare_time_ms": "milliseconds per learning step to compute targets and advantages",
        "learner_grad_time_ms": "milliseconds per learning step for its updates",
        "learner_exchange_time_ms": "the part of the two above for exchanges with learners on other devices",
    },
    "memory": {
        "memory_main_mb": "resident memory of the main process, in MB",
        "memory_children_mb": "resident memory of all worker processes together, in MB",
        "memory_child_max_mb": "resident memory of the largest worker process, in MB",
    },
    "waits": {
        "actor_wait_s": "seconds that actors waited for the learner, all actors together, in total",
        "learner_wait_s": "seconds that the learner waited for actors, in total",
        "actor_wait_fraction": "fraction of the actors' time that they waited for the learner",
        "learner_wait_fraction": "fraction of the learner's time that it waited for actors",
        "inference_wait_s": "seconds that actors waited for inference workers, all actors together, in total",
        "message_wait_s": "seconds that actors waited for messages and had nothing to do, all together, in total",
        "inference_batch_requests": "requests per batch of an inference worker; only with inference workers",
        "slots_filled": "fraction of the tickets that may be ahead of a learning step and are committed at its start",
        "slots_filled_min": "minimum of slots_filled",
        "slots_filled_max": "maximum of slots_filled",
        "learner_queue_size_mean": "batches committed and not yet learned from at the start of a learning step",
        "learner_queue_size_min": "minimum of these numbers",
        "learner_queue_size_max": "maximum of these numbers",
        "batch_uses": "learning steps per batch so far; only with passes > 1",
        "resident_share": "fraction of learning steps that used a batch again; only with passes > 1",
        "publish_s": "seconds that the learner took to publish weights, in total",
        "evaluation_s": "seconds that evaluations took, in total; they can run in parallel with learning",
        "env_stall_max_s": "seconds of the longest single call of an env so far",
    },
    "messages": {
        "row_bytes_per_env_step": "bytes of rows that actors on a cluster sent to the learner, per env step",
        "weight_bytes_per_env_step": "bytes of weights that the nodes of a cluster fetched, per env step",
    },
    "learning": {
        "policy_loss": "loss of the policy",
        "value_loss": "loss of the value function",
        "entropy": "entropy of the policy",
        "approx_kl": "estimated KL divergence from the policy that the clip refers to",
        "clip_fraction": "fraction of rows whose ratio was clipped",
        "ratio_mean": "mean probability ratio of the target to the behavior policy (PPO: to the clip's reference)",
        "ratio_max_deviation_first": "largest |ratio - 1| in the first minibatch of a learning step",
        "explained_variance": "fraction of the variance of value targets that the values explain",
        "grad_norm": "norm of the gradient before clipping",
        "learning_rate": "learning rate of the optimizer",
        "effective_sample_size": "effective fraction of the batch after the correction for policy lag",
    },
    "dqn": {
        "epsilon": "fraction of actions that are random",
    },
    "sac": {
        "critic_loss": "loss of the critics, summed over them (DQN: of the network)",
        "q_mean": "mean Q-value of the sampled actions",
        "temperature": "weight of the entropy (SAC's alpha)",
        "temperature_loss": "loss of the temperature",
        "grad_norm_critic": "norm of the critics' gradient before clipping",
        "grad_norm_policy": "norm of the policy's gradient before clipping",
        "grad_norm_temperature": "size of the temperature's gradient",
    },
    "tasks": {
        "kl": "KL divergence of the posterior of a task from the prior in nats, mean over the tasks of an update",
        "posterior_std": "standard deviation of the task variable given a context, mean over its components",
        "tasks_with_context": "tasks that updates can sample: those with a visit whose prior steps are complete",
        "context_size_min": "transitions in the newest context of a task, minimum over the tasks",
        "context_size_mean": "the same, mean over the tasks",
        "prior_return_mean": "return of the newest training episodes with the prior, mean over the tasks",
        "prior_return_min": "the same, lowest of all tasks",
        "prior_return_max": "the same, highest of all tasks",
        "posterior_return_mean": "return of the newest training episodes with the posterior, mean over the tasks",
        "posterior_return_min": "the same, lowest of all tasks",
        "posterior_return_max": "the same, highest of all tasks",
    },
}
"""group -> name -> description. TensorBoard shows each group as a section."""

ADAPTATION = "adaptation/"
"""Start of the names of the metrics of each episode in a new task."""
ADAPTATION_TRIALS = f"{ADAPTATION}trials"
"""Name of the number of trials in new tasks."""


def adaptation_key(episode: int, statistic: str) -> str:
    """Return the name of the "mean" or "std" over all trials of the return of an episode, numbered from 1."""
    return f"{ADAPTATION}episode_{episode}_return_{statistic}"


METRICS: dict[str, str] = {name: what for group in GROUPS.values() for name, what in group.items()}
"""name -> description: the keys of a line, in order."""

_PREFIXES_OF_RUN = (INFO, "policies/", ADAPTATION, MEMORY)
_OF_ALGORITHMS = ("learning", "dqn", "sac", "tasks")
"""The groups with metrics that algorithms report."""
_OF_RUN = frozenset(name for group, names in GROUPS.items() if group not in _OF_ALGORITHMS for name in names)


@lru_cache(maxsize=1024)
def tag_of(name: str) -> str:
    """Return a metric's name with its group as a prefix, which viewers use as sections: 'speed/sps'."""
    if "/" in name:  # an info metric, the memory of a child, or a callback's number with its own section
        return name
    return next((f"{group}/{name}" for group, names in GROUPS.items() if name in names), f"learning/{name}")


_TAGS_OF_RUN = frozenset(map(tag_of, _OF_RUN))


def is_of_run(name: str) -> bool:
    """Whether the run itself writes a metric with this name or tag: no algorithm and no callback can give it."""
    return name in _OF_RUN or name in _TAGS_OF_RUN or name.startswith(_PREFIXES_OF_RUN)
