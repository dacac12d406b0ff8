"""The network of a policy in torch: encoders, hidden layers, a core and a head, as described by a `PolicySpec`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.models.cores import CORES
from offbeat.models.dense import Dense, Initializer, Unfilled
from offbeat.models.image_encoders import IMAGE_ENCODERS, Encoders
from offbeat.models.own_encoder import OwnEncoder
from offbeat.models.spec import PolicySpec

NONE_ENCODED: Mapping[str, Tensor] = MappingProxyType({})


class CoreState(NamedTuple):
    """The recurrent state and the episode ends for a core, in addition to its inputs."""

    state: Tensor
    """[B, state_size], before the first row."""
    resets: Tensor
    """[T, B], bool: the row is the last of its episode."""

    @classmethod
    def of_one_row(cls, state: Tensor) -> CoreState:
        """Return the input of the core for one row without an episode end."""
        return cls(state, torch.zeros(1, state.shape[0], dtype=torch.bool, device=state.device))


class Body(nn.Module):
    """The network from observations to features: encoders, hidden layers, core.

    The hidden layers get the leaves without an encoder, joined with the encoders' features. Hidden layer
    i has the name `{i}`, as in the NumPy network.
    """

    def __init__(self, spec: PolicySpec, init: Initializer) -> None:
        super().__init__()
        self.encoders = _encoders_of(spec, init)
        size = spec.inputs + (self.encoders.features if self.encoders else 0)
        self._depth = len(spec.hidden_sizes)
        for i, units in enumerate(spec.hidden_sizes):
            self.add_module(str(i), Dense(size, units, init))
            size = units
        self.norms = nn.ModuleList([nn.LayerNorm(units) for units in spec.hidden_sizes]) if spec.layer_norm else None
        self.core = CORES[spec.core](size, spec.core_size, init) if spec.recurrent else None
        self.features = spec.core_size if spec.recurrent else size
        self._activation: Callable[[Tensor], Tensor] = torch.tanh if spec.activation == "tanh" else functional.relu

    def forward(
        self, inputs: Tensor, encoded: Mapping[str, Tensor], core_state: CoreState | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return features [M, F], and with a core its state after the last row; arguments as in `PolicyNetwork`."""
        x = inputs
        if self.encoders is not None:
            x = torch.cat((inputs, self.encoders(encoded)), dim=1) if inputs.shape[1] else self.encoders(encoded)
        for i in range(self._depth):
            x = getattr(self, str(i))(x)
            x = self._activation(self.norms[i](x) if self.norms is not None else x)
        if self.core is None:
            return x, None
        assert core_state is not None
        rows = core_state.resets.shape
        outputs, state = self.core(x.reshape(*rows, -1), core_state.state, core_state.resets)
        return outputs.flatten(0, 1), state


class PolicyNetwork(nn.Module):
    """The network of a policy, without a critic. Its parameters have the names and order of
    `published.parameter_shapes`.
    """

    def __init__(self, spec: PolicySpec, init: Initializer, *, head_gain: float, log_std_init: float = 0.0) -> None:
        super().__init__()
        self.spec = spec
        self.policy_body = Body(spec, init)
        self.policy_head = Dense(self.policy_body.features, spec.outputs, init, head_gain)
        self.log_std = nn.Parameter(torch.full((spec.box_size,), float(log_std_init))) if spec.has_log_std else None

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the policy's parameters first, in the order of the published layout."""
        by_name = dict(super().named_parameters(*args, **kwargs))
        first = [name for name in by_name if name.startswith(("policy_body.", "policy_head."))]
        first += ["log_std"] if self.log_std is not None else []
        yield from ((name, by_name.pop(name)) for name in first)
        yield from by_name.items()

    def forward(
        self, inputs: Tensor, encoded: Mapping[str, Tensor] = NONE_ENCODED, core_state: CoreState | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the parameters of the action distribution, [M, outputs], and with a core its state after the last row,
        [B, state_size].

        Args:
            inputs: [M, inputs], the leaves without an encoder, normalised and joined.
            encoded: the leaves with an encoder, leaf -> [M, *stacked_shape], with the env's values.
            core_state: the input state of the core, if there is one: M is then T * B rows in temporal order.
        """
        with self.precision():
            features, state = self.policy_body(inputs, encoded, core_state)
        head: Tensor = self.policy_head(features.float())
        return head, None if state is None else state.float()

    def precision(self) -> AbstractContextManager[Any]:
        """Return the context in which the body computes: bf16 autocast if the spec has bf16.

        The heads always compute in fp32: their cost is small, and probability ratios need the precision. Weights that
        were converted are not cached, because threads share the cache: whether the rows of a core used the same
        converted weights, and so how their gradients were rounded, would depend on other threads that act or learn.
        """
        if self.spec.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.policy_head.weight.device.type, dtype=torch.bfloat16, cache_enabled=False)


# --- initialisation -----------------------------------------------------------------------------------------


class Orthogonal:
    """Orthogonal weights scaled by the gain (arXiv:1312.6120), and zero biases."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def fill(self, weight: Tensor, bias: Tensor, fan_in: int, gain: float) -> None:  # noqa: ARG002
        nn.init.orthogonal_(weight, gain, generator=self._generator)
        nn.init.zeros_(bias)

    def seed(self) -> int:
        return seed_of(self._generator)


class Uniform:
    """The initialisation of torch.nn.Linear: uniform in +- 1 / sqrt(inputs); the gain is not used."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def fill(self, weight: Tensor, bias: Tensor, fan_in: int, gain: float) -> None:  # noqa: ARG002
        uniform_(weight, fan_in, self._generator)
        uniform_(bias, fan_in, self._generator)

    def seed(self) -> int:
        return seed_of(self._generator)


def seed_of(generator: torch.Generator) -> int:
    """Return a random seed from a generator."""
    return int(torch.randint(2**62, (), generator=generator))


def uniform_(parameter: Tensor, inputs: int, generator: torch.Generator) -> Tensor:
    """Initialise a parameter like torch.nn.Linear does in a layer with this number of inputs; return it."""
    bound = 1 / math.sqrt(inputs)
    return nn.init.uniform_(parameter, -bound, bound, generator=generator)


def shapes_of(spec: PolicySpec) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return name and shape of each of a policy's parameters: those of the body, of the head, then log_std."""
    # The meta device allocates no memory: the spec may be from a file of unknown origin, with sizes of any magnitude.
    # But an own encoder may not support it.
    with nullcontext() if spec.has_own_encoder else torch.device("meta"):
        network = PolicyNetwork(spec, Unfilled(), head_gain=1.0)
    return tuple((name, tuple(parameter.shape)) for name, parameter in network.named_parameters())


def _encoders_of(spec: PolicySpec, init: Initializer) -> Encoders | OwnEncoder | None:
    """Return the encoders of a policy; None if no leaf needs one."""
    if not spec.encoded:
        return None
    if spec.encoder in IMAGE_ENCODERS:
        return Encoders(spec.encoded, spec.encoder, init)
    return OwnEncoder(spec.encoded, spec.encoder, init, spec.encoder_kwargs)
