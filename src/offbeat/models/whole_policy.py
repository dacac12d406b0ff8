"""All that a policy does, as one module in torch, of which files are made: observations in, the likeliest actions out.

What an `ActingPolicy` does in NumPy around its network stands here a second time, in operators that every runtime has:
`inputs.py` is in ``tensor_inputs.py``; the rest of it, and `sampling.greedy`, `sampling.ToEnv` and
``envs/encoding.py``, are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from offbeat.core.types import ActionSpec, Leaf
from offbeat.models.dense import Unfilled
from offbeat.models.distributions import masked
from offbeat.models.numpy_policy import OBSERVATION_CLIP, ActingPolicy
from offbeat.models.policy_network import PolicyNetwork, Remembered
from offbeat.models.published import parameter_shapes, published_layout
from offbeat.models.sampling import ToEnv
from offbeat.models.spec import PolicySpec
from offbeat.models.tensor_inputs import flatten_tensors

STATE, NEXT_STATE = "state", "next_state"
"""What a core's memory is called, as it goes in and as it comes out."""


def input_dtype(leaf: Leaf) -> str:
    """Return what a leaf is given as: choices as whole numbers, the env's own; a mask as flags; all else as it is."""
    return "bool" if leaf.is_mask else "int64" if leaf.choices else leaf.dtype


def output_dtype(part: ActionSpec) -> str:
    """Return what a part of an action comes as: the env's own dtype."""
    return part.env_dtype or part.dtype


def action_parts(spec: ActionSpec, name: str = "action") -> Iterator[tuple[str, ActionSpec]]:
    """Yield the parts of an action by name, those of Dicts and Tuples as leaves of observations are called."""
    if spec.kind != "mixed":
        yield name, spec
        return
    for key, part in zip(spec.keys or range(len(spec.parts)), spec.parts, strict=True):
        yield from action_parts(part, f"{name}/{key}")


class WholePolicy(nn.Module):
    """Takes the leaves of N observations in their order, [N, *shape] each, and a core's state [N, state_size].

    It returns the parts of N actions in their order, [N, *shape] each, and the state to go on from.
    """

    def __init__(self, policy: ActingPolicy) -> None:
        """Make a copy of a policy; it computes in float32 whatever the policy does."""
        super().__init__()
        self._spec = spec = replace(policy.spec, precision="fp32")
        arrays = {
            name: torch.from_numpy(view.copy())
            for name, view in published_layout(policy.spec).views(policy.vector).items()
        }
        self.network = PolicyNetwork(spec, Unfilled(), head_gain=1.0).requires_grad_(False)
        self.network.load_state_dict({name: arrays[name] for name, _ in parameter_shapes(spec)}, assign=True)
        self.normalizer = _Normalizer(arrays) if spec.normalize else None
        self.action = _GreedyAction(spec, policy.to_env)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        rows = inputs[0].shape[0]
        leaves = {
            leaf.name: _from_zero(leaf, given) for leaf, given in zip(self._spec.observation, inputs, strict=False)
        }
        encoded = {leaf.name: _as_stored(leaf, leaves[leaf.name]) for leaf in self._spec.encoded}
        remembered = None
        if self._spec.recurrent:  # one row of time, which ends nothing
            remembered = Remembered(inputs[-1], torch.zeros(1, rows, dtype=torch.bool))
        parameters, state = self.network.moved_on(self._vector(leaves, rows), encoded, remembered)
        actions = self.action(parameters, leaves.get(self._spec.mask or ""))
        return actions if state is None else (*actions, state)

    def _vector(self, leaves: dict[str, Tensor], rows: int) -> Tensor:
        if not self._spec.vectors:
            return torch.zeros(rows, 0)
        x = flatten_tensors(self._spec.vectors, leaves)
        return x if self.normalizer is None else self.normalizer(x)


def _from_zero(leaf: Leaf, given: Tensor) -> Tensor:
    """Return choices counted from 0, and all else as it is."""
    return given - torch.tensor(leaf.start).reshape(leaf.shape) if leaf.start else given


def _as_stored(leaf: Leaf, values: Tensor) -> Tensor:
    """Return values in the dtype that training stores, and that an encoder is made for."""
    return values.to(getattr(torch, leaf.dtype))


class _Normalizer(nn.Module):
    """Observations by the published statistics, clipped."""

    mean: Tensor
    scale: Tensor

    def __init__(self, arrays: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.register_buffer("mean", arrays["observation_mean"])
        self.register_buffer("scale", arrays["observation_scale"])

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * self.scale).clamp(-float(OBSERVATION_CLIP), float(OBSERVATION_CLIP))


class _GreedyAction(nn.Module):
    """From the parameters of an action distribution to the likeliest action, as the env accepts it."""

    def __init__(self, spec: PolicySpec, to_env: ToEnv) -> None:
        super().__init__()
        self._spec = spec
        self._parts = [part for _, part in action_parts(spec.action)]
        self.numbers = _Numbers(spec, to_env) if spec.box_size else None

    def forward(self, parameters: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the parts of actions for parameters [N, P] and a mask [N, logits]."""
        logits = parameters[:, : self._spec.logits]
        if mask is not None:
            logits = masked(logits, mask)
        choices = iter(torch.split(logits, list(self._spec.action.nvec), dim=1))
        numbers = iter(self._numbers_of(parameters))
        return tuple(_choose(part, choices) if part.nvec else _put(part, next(numbers)) for part in self._parts)

    def _numbers_of(self, parameters: Tensor) -> tuple[Tensor, ...]:
        """Return the numbers of each box, [N, size]."""
        if self.numbers is None:
            return ()
        means = parameters[:, self._spec.logits : self._spec.logits + self._spec.box_size]
        return torch.split(self.numbers(means), [part.size for part in self._parts if not part.nvec], dim=1)


def _choose(part: ActionSpec, components: Iterator[Tensor]) -> Tensor:
    """Return the highest choice of each of a part's components, which are taken from those to come."""
    chosen = torch.stack([next(components).argmax(dim=1) for _ in part.nvec], dim=1)
    return _put(part, chosen + torch.tensor(part.start) if part.start else chosen)


def _put(part: ActionSpec, flat: Tensor) -> Tensor:
    """Return numbers [N, size] in the shape and dtype of the env's."""
    return flat.reshape(flat.shape[0], *part.shape).to(getattr(torch, output_dtype(part)))


_WITH_TANH = ("squashed", "tanh_gaussian")


class _Numbers(nn.Module):
    """From the means of boxes to the env's numbers: `sampling.ToEnv` after `sampling.greedy`."""

    low: Tensor
    high: Tensor
    inner_low: Tensor
    inner_high: Tensor
    center: Tensor
    half_width: Tensor

    def __init__(self, spec: PolicySpec, to_env: ToEnv) -> None:
        super().__init__()
        self._tanh, self._clips, self._scales = spec.distribution in _WITH_TANH, not to_env.squash, to_env.scales
        for name in ("low", "high", "inner_low", "inner_high", "center", "half_width"):
            self.register_buffer(name, torch.tensor(getattr(to_env, name), dtype=torch.float32).flatten())

    def forward(self, means: Tensor) -> Tensor:
        """Return [N, numbers] for means of that shape."""
        inner = means.tanh() if self._tanh else means
        if self._clips:
            inner = inner.clamp(self.inner_low, self.inner_high)
        if not self._scales:
            return inner
        return (inner * self.half_width + self.center).clamp(self.low, self.high)
