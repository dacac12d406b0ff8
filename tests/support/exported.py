"""Acting with an exported file by its runtime alone, as one without offbeat would; and episodes to compare it in."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import torch
from gymnasium import spaces

from offbeat.core.types import Array, Tree


def named(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of dicts and tuples by the names that inputs and outputs have."""
    if isinstance(tree, dict | tuple):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from named(f"{name}/{key}", part)
    else:
        yield name, tree


def as_input(name: str, values: Any) -> Array:
    """Return what an env gave in the dtype that the documentation names."""
    values = np.asarray(values)
    if name.endswith("action_mask"):
        return values.astype(np.bool_)
    if np.issubdtype(values.dtype, np.floating):
        return values.astype(np.float32)
    return values if values.dtype == np.uint8 else values.astype(np.int64)


class FileActor:
    """Gives the actions of N envs for their observations. It knows of the policy what the file tells."""

    def __init__(self, file: Path, actions: gym.Space[Any]) -> None:
        self._space = actions
        self._run, self.inputs, self.outputs = (_open_onnx if file.suffix == ".onnx" else _open_torchscript)(file)
        self._state_size = self.inputs.get("state", 0)
        self._state: Array | None = None

    def begin(self) -> None:
        self._state = None

    def __call__(self, observation: Any, action_mask: Any = None, previous: Tree | None = None) -> Any:
        """Return N actions in the dicts and tuples of the env; `previous`: the last actions by key, and the reward."""
        found = dict(named("observation", observation))
        for name, part in (previous or {}).items():
            found["previous_reward" if name == "reward" else f"previous_action/{name}"] = part
        if "action_mask" in self.inputs:
            found["action_mask"] = action_mask
        given = {name: as_input(name, part) for name, part in found.items()}
        if self._state_size:
            rows = len(next(iter(given.values())))
            given["state"] = np.zeros((rows, self._state_size), np.float32) if self._state is None else self._state
        answers = self._run({name: given[name] for name in self.inputs})
        self._state = answers.get("next_state")
        return _tree("action", self._space, answers)


def _tree(name: str, space: gym.Space[Any], answers: Tree) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _tree(f"{name}/{key}", part, answers) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(f"{name}/{i}", part, answers) for i, part in enumerate(space))
    return answers[name]


Opened = tuple[Callable[[Tree], Tree], dict[str, int], list[str]]
"""What runs it, its inputs with the length of the last axis where that is fixed, and its outputs."""


def _open_onnx(file: Path) -> Opened:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # more would spin beside other tests
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    outputs = [port.name for port in session.get_outputs()]
    inputs = {port.name: port.shape[-1] if len(port.shape) > 1 else 0 for port in session.get_inputs()}
    return (lambda given: dict(zip(outputs, session.run(None, given), strict=True))), inputs, outputs


def _open_torchscript(file: Path) -> Opened:
    notes: dict[str, Any] = {"offbeat.json": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(file, _extra_files=notes)
    told = json.loads(notes["offbeat.json"])
    outputs = [port["name"] for port in told["outputs"]]

    def run(given: Tree) -> Tree:
        answers = module(*map(torch.from_numpy, given.values()))
        return {name: part.numpy() for name, part in zip(outputs, answers, strict=True)}

    return run, {port["name"]: (port["shape"] or [0])[-1] for port in told["inputs"]}, outputs


# --- to compare ---------------------------------------------------------------------------------------------


def stacked(space: gym.Space[Any], each: list[Any]) -> Any:
    """Return the observations of several envs as a vector env has them."""
    batch: Any = gym.vector.utils.create_empty_array(space, len(each))
    return gym.vector.utils.concatenate(space, each, batch)


def episode(env: gym.Env[Any, Any], act: Callable[[Any, Any], Any], seed: int) -> tuple[list[Array], float]:
    """Play one, of 50 steps at most; return the actions, flattened, and what they earned."""
    observation, info = env.reset(seed=seed)
    actions, total = [], 0.0
    for _ in range(50):
        action = act(observation, info.get("action_mask"))
        assert env.action_space.contains(action), action
        actions.append(np.asarray(spaces.flatten(env.action_space, action), np.float64))
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    return actions, total


def alone(env: gym.Env[Any, Any], act: FileActor) -> Callable[[Any, Any], Any]:
    """Return what acts in one env by a file, which always takes several."""

    def act_in_one(observation: Any, mask: Any) -> Any:
        batch = stacked(env.observation_space, [observation])
        actions = act(batch, None if mask is None else np.asarray(mask)[None])
        return next(iter(gym.vector.utils.iterate(gym.vector.utils.batch_space(env.action_space, 1), actions)))

    return act_in_one
