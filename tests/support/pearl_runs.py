"""Settings of small runs of PEARL."""

from __future__ import annotations

from typing import Any

ROBOT = "offbeat/PointRobot-v0"
SMALL_PEARL: dict[str, Any] = {
    "steps": 480,
    "stop_at": 240,
    "seed": 3,
    "train_tasks": 3,
    "test_tasks": 5,
    "meta_batch": 2,
    "batch_size": 16,
    "context_size": 8,
    "prior_steps": 24,
    "extra_steps": 16,
    "latent_size": 2,
    "hidden_sizes": (8,),
    "context_hidden_sizes": (8,),
    "envs_per_actor": 1,
    "utd_ratio": 0.25,
    "warmup": 120,
    "eval_every": 120,
    "eval_prior_episodes": 2,
    "checkpoint_every": 120,
}
"""A visit has one ticket of 40 rows, and so less than two episodes with the task variable from the prior. Updates are
made after a visit to each task; the preset has many more tasks."""
VISITS = {"train_tasks": 3, "test_tasks": 2, "prior_steps": 24, "extra_steps": 6, "envs_per_actor": 1, "actors": 2}
TASKS = {
    **VISITS,
    "utd_ratio": "1/4",
    "meta_batch": 2,
    "batch_size": 16,
    "context_size": 8,
    "warmup": 128,
    "capacity": 330,
    "steps": 480,
}
ENCODER = {"context_hidden_sizes": (8,), "latent_size": 2, "temperature": None}
