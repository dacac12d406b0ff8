"""A trained policy, from a run to a function: the normaliser is included, and no algorithm is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.checkpoint import MANIFEST, POLICY, WEIGHTS, Checkpoint
from offbeat.checkpoint import load as read_checkpoint
from offbeat.errors import ConfigError
from offbeat.models.numpy_policy import NumpyPolicy
from offbeat.models.spec import PolicySpec
from offbeat.run_directory import RunDirectory
from offbeat.types import Array, Tree

HUB = "hf://"
"""What the name of a policy on the Hugging Face hub begins with."""


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

    def __init__(self, policy: NumpyPolicy, trained: Trained) -> None:
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
    """Load the policy of a run, or one that `offbeat push` put on the Hugging Face hub.

    Args:
        run: a run directory; or, as text, "hf://USER/NAME".
        name: latest, best or step-<12 digits>. On the hub there is one alone.

    Raises:
        ConfigError: there is no such run or checkpoint, or it is damaged.
    """
    if isinstance(run, str) and run.startswith(HUB):
        return loaded_from(read_checkpoint(_downloaded(run.removeprefix(HUB))))
    return loaded_from(RunDirectory.open(Path(run)).read_checkpoint(name))


def loaded_from(saved: Checkpoint) -> LoadedPolicy:
    """Return the policy of a checkpoint."""
    data = dict(saved.policy)
    spec = PolicySpec.from_json(data.pop("policy"))
    return LoadedPolicy(policy_of(spec, saved.weights), Trained(**data))


def require_hub() -> None:
    """Raise ConfigError if huggingface_hub is missing."""
    if find_spec("huggingface_hub") is None:
        raise ConfigError('the hub needs huggingface_hub, which is not installed: type pip install "offbeat[hub]"')


def _downloaded(repo: str) -> Path:
    """Return the folder of a policy from the hub, in huggingface_hub's cache.

    Raises:
        ConfigError: there is no such policy, or the hub cannot be reached.
    """
    require_hub()
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repo, allow_patterns=[MANIFEST, WEIGHTS, POLICY]))
    except Exception as error:
        words = " ".join(str(error).split())
        raise ConfigError(
            f"{HUB}{repo} cannot be loaded ({type(error).__name__}: {words}): give USER/NAME as `offbeat push` was "
            "given it; a private one needs hf auth login"
        ) from error
    if not (folder / MANIFEST).is_file():
        raise ConfigError(f"{HUB}{repo} has no {MANIFEST}: give a repository that `offbeat push` has made")
    return folder


def policy_of(spec: PolicySpec, weights: Tree) -> NumpyPolicy:
    """Return the policy with these weights, as a checkpoint keeps them: all else in them is left out."""
    layout = spec.layout()
    vector = np.zeros(layout.size, np.float32)
    for name, view in layout.views(vector).items():
        view[...] = weights[name]
    policy = NumpyPolicy(spec)
    policy.load(vector)
    return policy
