"""A whole policy as one torch module for export: from observations to the most likely actions.

The network is the one that acts in torch. The formulas of actions are in ``models/actions.py``, those of inputs
in ``tensor_inputs.py``. The conversions of ``envs/actions.py`` are repeated here with standard operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from offbeat.core.images import GREY_WEIGHTS, area_weights, becomes_grey
from offbeat.core.previous_inputs import action_parts
from offbeat.core.types import ActionSpec, Leaf
from offbeat.models.acting import ActingPolicy
from offbeat.models.actions import BOUND_ARRAYS, ToEnv, best_choices, best_numbers, to_env_range
from offbeat.models.distributions import masked
from offbeat.models.policy_network import CoreState
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.models.tensor_inputs import flatten_tensors, normalized
from offbeat.models.torch_acting import TorchNetwork

STATE, NEXT_STATE = "state", "next_state"
"""Names of the recurrent state as an input and as an output."""


def input_dtype(leaf: Leaf) -> str:
    """Return the dtype of a leaf as an input: int64 for choices, bool for a mask, else the leaf's own."""
    return "bool" if leaf.is_mask else "int64" if leaf.choices else leaf.dtype


def output_dtype(part: ActionSpec) -> str:
    """Return the dtype of a part of an action as an output: the env's."""
    return part.env_dtype or part.dtype


class ExportedPolicy(nn.Module):
    """Takes the leaves of N observations in order, [N, *shape] each, and with a core its state [N, state_size].

    Returns the parts of N actions in order, [N, *shape] each, and with a core its next state.
    """

    def __init__(self, policy: ActingPolicy) -> None:
        """Copy a policy; the copy computes in float32 whatever the precision of the policy."""
        super().__init__()
        self._spec = spec = replace(policy.spec, precision="fp32")
        self.network = deepcopy(TorchNetwork(spec, policy.vector).module)  # with its own parameters
        self.normalizer = None
        if spec.normalize:
            arrays = published_layout(spec).views(torch.from_numpy(policy.vector.copy()))
            self.normalizer = _Normalizer(arrays["observation_mean"], arrays["observation_scale"])
        self.images = nn.ModuleList(
            _ReducedImages(leaf) if leaf.env_shape else nn.Identity() for leaf in spec.observation
        )
        self.action = _GreedyAction(spec, policy.to_env)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        rows = inputs[0].shape[0]
        leaves = {
            leaf.name: _from_zero(leaf, reduce(given))
            for leaf, reduce, given in zip(self._spec.observation, self.images, inputs, strict=False)
        }
        encoded = {leaf.name: _as_stored(leaf, leaves[leaf.name]) for leaf in self._spec.encoded}
        core_state = CoreState.of_one_row(inputs[-1]) if self._spec.recurrent else None
        parameters, state = self.network(self._inputs_of(leaves, rows), encoded, core_state)
        actions = self.action(parameters, leaves.get(self._spec.mask or ""))
        return actions if state is None else (*actions, state)

    def _inputs_of(self, leaves: dict[str, Tensor], rows: int) -> Tensor:
        if not self._spec.vectors:
            return torch.zeros(rows, 0)
        x = flatten_tensors(self._spec.vectors, leaves)
        return x if self.normalizer is None else self.normalizer(x)


def _from_zero(leaf: Leaf, given: Tensor) -> Tensor:
    """Return choices counted from 0; other leaves unchanged."""
    return given - torch.tensor(leaf.start).reshape(leaf.shape) if leaf.start else given


def _as_stored(leaf: Leaf, values: Tensor) -> Tensor:
    """Return values in the dtype that training stores and that encoders expect."""
    return values.to(getattr(torch, leaf.dtype))


class _ReducedImages(nn.Module):
    """Makes images smaller and grey, with the same bytes as `core/images.py`: float64 holds all sums exactly."""

    rows: Tensor
    columns: Tensor
    colours: Tensor

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        given = leaf.as_given
        self._grey, self._channels_last = becomes_grey(leaf), given.channels_last
        height, width = given.sides
        self._pixels = height * width if leaf.sides != given.sides else 0
        self.register_buffer("rows", torch.from_numpy(area_weights(height, leaf.sides[0])).double())
        self.register_buffer("columns", torch.from_numpy(area_weights(width, leaf.sides[1]).T.copy()).double())
        self.register_buffer("colours", torch.tensor(GREY_WEIGHTS).double())

    def forward(self, images: Tensor) -> Tensor:
        """Return images [..., *shape] for images [..., *env_shape]."""
        x = images.double()
        if self._channels_last:
            x = x.movedim(-1, -3)
        if self._grey:
            red, green, blue = x.unbind(-3)
            x = red * self.colours[0] + green * self.colours[1] + blue * self.colours[2]
            x = torch.floor((x + 500) / 1000)
        if self._pixels:
            x = torch.floor((self.rows @ x @ self.columns + self._pixels // 2) / self._pixels)
        if self._channels_last and not self._grey:
            x = x.movedim(-3, -1)
        return x.to(torch.uint8)


class _Normalizer(nn.Module):
    """Normalises observations by the published statistics, and clips them."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return normalized(x, self.mean, self.scale)


class _GreedyAction(nn.Module):
    """Converts the parameters of an action distribution to the most likely action, in the env's range."""

    def __init__(self, spec: PolicySpec, to_env: ToEnv) -> None:
        super().__init__()
        self._spec = spec
        self._parts = [part for _, part in action_parts(spec.action)]
        self.numbers = _Numbers(to_env) if spec.box_size else None

    def forward(self, parameters: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the parts of actions for parameters [N, P] and a mask [N, logits]."""
        logits = parameters[:, : self._spec.logits]
        choices = iter(best_choices(self._spec, logits if mask is None else masked(logits, mask)))
        numbers = iter(self._numbers_of(parameters))
        return tuple(
            _stack_choices(part, choices) if part.nvec else _as_env_action(part, next(numbers)) for part in self._parts
        )

    def _numbers_of(self, parameters: Tensor) -> tuple[Tensor, ...]:
        """Return the numbers of each box, in the env's range, [N, size] each."""
        if self.numbers is None:
            return ()
        numbers = self.numbers(best_numbers(self._spec, parameters, torch.tanh))
        return torch.split(numbers, [part.size for part in self._parts if not part.nvec], dim=1)


def _stack_choices(part: ActionSpec, choices: Iterator[Tensor]) -> Tensor:
    """Return a part of actions that has choices; `choices` yields the choice of each component, [N]."""
    chosen = torch.stack([next(choices) for _ in part.nvec], dim=1)
    return _as_env_action(part, chosen + torch.tensor(part.start) if part.start else chosen)


def _as_env_action(part: ActionSpec, flat: Tensor) -> Tensor:
    """Return numbers [N, size] in the shape and dtype of the env."""
    values = flat.reshape(flat.shape[0], *part.shape).to(getattr(torch, output_dtype(part)))
    if part.env_dtype != "float64":
        return values
    low, high = (torch.tensor(bounds, dtype=values.dtype).reshape(part.shape) for bounds in (part.low, part.high))
    return values.clamp(low, high)  # as in envs/actions.py


class _Numbers(nn.Module):
    """Converts recorded numbers to the env's range. It has the `actions.Bounds` as torch tensors."""

    low: Tensor
    high: Tensor
    inner_low: Tensor
    inner_high: Tensor
    center: Tensor
    half_width: Tensor

    def __init__(self, to_env: ToEnv) -> None:
        super().__init__()
        self.squash, self.scales = to_env.squash, to_env.scales
        self._dtype = torch.from_numpy(to_env.low).dtype
        for name in BOUND_ARRAYS:
            self.register_buffer(name, torch.tensor(getattr(to_env, name), dtype=self._dtype).flatten())

    def forward(self, numbers: Tensor) -> Tensor:
        """Return numbers in the env's range, [N, D], for recorded numbers [N, D]."""
        scaled: Tensor = to_env_range(self, numbers.to(self._dtype), torch.tanh)
        return scaled
