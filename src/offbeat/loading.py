"""A trained policy, from a run to a function: the normaliser is included, and no algorithm is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.models.numpy_policy import ActingPolicy, make_policy
from offbeat.models.spec import PolicySpec
from offbeat.run_directory import RunDirectory
from offbeat.types import Array, Tree


@dataclass(frozen=True)
class Trained:
    """What a policy was trained on, and how far."""

    env: str
    algorithm: str
    env_steps: int
    learning_step: int
    updates: int


class LoadedPolicy:
    """Call it with an observation, or a batch of them, to get the action to hand to the env."""

    def __init__(self, policy: ActingPolicy, trained: Trained) -> None:
        self.policy = policy
        self.trained = trained

    def __call__(self, observation: Any, *, random: np.random.Generator | None = None) -> Any:
        """Choose an action.

        Args:
            observation: as the env gives it, for one env or for N: an array, or a dict of arrays.
            random: sample with this generator; None takes the most likely action.

        Returns:
            The action of one env ([*shape], an int for Discrete), or [N, *shape].

        Raises:
            ValueError: the observation does not have the shape that the policy was trained on.
        """
        leaves, single = self._leaves(observation)
        action = self.policy.greedy(leaves) if random is None else self.policy.act(leaves, random).action
        chosen = self._numbered(self.policy.to_env(action))
        return _single(chosen) if single else chosen.copy()

    def _numbered(self, action: Array) -> Array:
        """Count discrete choices as the env does."""
        start = self.policy.spec.action.start
        return action + np.array(start).reshape(self.policy.spec.action.shape) if start else action

    def _leaves(self, observation: Any) -> tuple[Tree, bool]:
        """Return the leaves with a column axis, and whether that axis was added here."""
        given = observation if isinstance(observation, Mapping) else {"": observation}
        leaves, single = {}, False
        for leaf in self.policy.spec.observation:
            key = leaf.name.partition("/")[2]
            if key not in given:
                raise ValueError(f"the observation lacks {key!r}: it has {', '.join(map(repr, given))}")
            array = np.asarray(given[key])
            single = array.shape == leaf.shape
            if not single and array.shape[1:] != leaf.shape:
                raise ValueError(
                    f"{leaf.name} has shape {array.shape}, but {leaf.shape} or (N, *{leaf.shape}) is expected"
                )
            leaves[leaf.name] = array[None] if single else array
        return leaves, single


def _single(actions: Array) -> Any:
    action = actions[0]
    return action.copy() if isinstance(action, np.ndarray) else action.item()


def load(run: Path | str, name: str = "latest") -> LoadedPolicy:
    """Load the policy of a run.

    Args:
        run: a run directory.
        name: latest, best or step-<12 digits>.

    Raises:
        ConfigError: there is no such run or checkpoint, or it is damaged.
    """
    saved = RunDirectory.open(Path(run)).read_checkpoint(name)
    data = dict(saved.policy)
    spec = PolicySpec.from_json(data.pop("policy"))
    return LoadedPolicy(policy_of(spec, saved.weights), Trained(**data))


def policy_of(spec: PolicySpec, weights: Tree) -> ActingPolicy:
    """Return the policy with these weights, as a checkpoint keeps them: all else in them is left out."""
    layout = spec.layout()
    vector = np.zeros(layout.size, np.float32)
    for name, view in layout.views(vector).items():
        view[...] = weights[name]
    policy = make_policy(spec)
    policy.load(vector)
    return policy
