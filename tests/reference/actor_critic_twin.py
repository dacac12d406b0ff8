"""What the slow twins of algorithms on a replay share: ordinary modules in float64, with optimizers of torch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from offbeat.algorithms.dqn import DQNConfig
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.td3_config import TD3Config

Rows = NDArray[Any]


class NetworkTwin:
    """A policy as an ordinary module."""

    def __init__(self, config: SACConfig | TD3Config | DQNConfig, weights: Mapping[str, Rows]) -> None:
        """Start with the weights of a checkpoint."""
        self._activation = config.activation
        self._max_grad_norm, self._ema_rate = config.max_grad_norm, config.ema_rate
        self._layers = len((256, 256) if config.hidden_sizes is None else config.hidden_sizes) + 1
        self.policy = self.policy_of(weights)
        self.optimizers = {"policy": torch.optim.Adam(self.policy.parameters(), eps=config.adam_eps)}

    def policy_of(self, weights: Mapping[str, Rows], prefix: str = "") -> nn.Sequential:
        names = [*(f"policy_body.{i}" for i in range(self._layers - 1)), "policy_head"]
        return self._stack([(weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"]) for name in names])

    def _stack(self, arrays: list[tuple[Rows, Rows]], norms: list[tuple[Rows, Rows]] | None = None) -> nn.Sequential:
        modules: list[nn.Module] = []
        for i, (weight, bias) in enumerate(arrays):
            layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
            layer.weight.data, layer.bias.data = torch.tensor(weight).double(), torch.tensor(bias).double()
            modules.append(layer)
            if norms and i < len(norms):
                norm = nn.LayerNorm(weight.shape[0], dtype=torch.float64)
                norm.weight.data, norm.bias.data = (torch.tensor(array).double() for array in norms[i])
                modules.append(norm)
            modules.append(nn.Tanh() if self._activation == "tanh" else nn.ReLU())
        return nn.Sequential(*modules[:-1])

    def step(self, group: str, loss: Any, rates: Mapping[str, float]) -> None:
        """Make a step of torch's Adam, with the norm of the gradients clipped if the config says so."""
        adam_step(self.optimizers[group], loss, rates[group], self._max_grad_norm)

    @torch.no_grad()
    def follow(self, slow: nn.Module, fast: nn.Module) -> None:
        """Move the parameters of a slow copy towards those of its network."""
        for slow_one, fast_one in zip(slow.parameters(), fast.parameters(), strict=True):
            slow_one.copy_((1 - self._ema_rate) * slow_one + self._ema_rate * fast_one)

    def policy_arrays(self, policy: nn.Sequential, prefix: str) -> dict[str, Rows]:
        """Return the parameters of a policy, by their names with a prefix."""
        return {f"{prefix}{name}": tensor.detach().numpy() for name, tensor in self._policy_arrays(policy)}

    def _policy_arrays(self, policy: nn.Sequential) -> Iterator[tuple[str, Tensor]]:
        linear = [layer for layer in policy if isinstance(layer, nn.Linear)]
        for i, layer in enumerate(linear):
            name = f"policy_body.{i}" if i < len(linear) - 1 else "policy_head"
            yield from ((f"{name}.weight", layer.weight), (f"{name}.bias", layer.bias))


class ActorCriticTwin(NetworkTwin):
    """A policy and a list of critics, each an ordinary module, and the slow copies of the critics."""

    def __init__(self, config: SACConfig | TD3Config, weights: Mapping[str, Rows]) -> None:
        """Start with the weights of a checkpoint."""
        super().__init__(config, weights)
        self._critics, self._layer_norm = config.critics, config.layer_norm
        self.critics, self.ema = (self._ensemble(weights, name) for name in ("critics", "ema_critics"))
        self.optimizers["critic"] = torch.optim.Adam(self.critics.parameters(), eps=config.adam_eps)

    def _ensemble(self, weights: Mapping[str, Rows], name: str) -> nn.ModuleList:
        stacks = []
        for e in range(self._critics):
            arrays = [
                (weights[f"{name}.weights.{i}"][e], weights[f"{name}.biases.{i}"][e]) for i in range(self._layers)
            ]
            hidden = range(self._layers - 1 if self._layer_norm else 0)
            norms = [(weights[f"{name}.scales.{i}"][e], weights[f"{name}.shifts.{i}"][e]) for i in hidden]
            stacks.append(self._stack(arrays, norms))
        return nn.ModuleList(stacks)

    def arrays(self) -> dict[str, Rows]:
        """Return all that is learned, by the names of a checkpoint."""
        arrays: dict[str, Tensor] = dict(self._policy_arrays(self.policy))
        for name, ensemble in (("critics", self.critics), ("ema_critics", self.ema)):
            stacks = [[part for part in stack.children() if isinstance(part, nn.Linear)] for stack in ensemble]
            for i, members in enumerate(zip(*stacks, strict=True)):
                arrays[f"{name}.weights.{i}"] = torch.stack([layer.weight for layer in members])
                arrays[f"{name}.biases.{i}"] = torch.stack([layer.bias for layer in members])
            normed = [[part for part in stack.children() if isinstance(part, nn.LayerNorm)] for stack in ensemble]
            for i, norms in enumerate(zip(*normed, strict=True)):
                arrays[f"{name}.scales.{i}"] = torch.stack([norm.weight for norm in norms])
                arrays[f"{name}.shifts.{i}"] = torch.stack([norm.bias for norm in norms])
        return {name: tensor.detach().numpy() for name, tensor in arrays.items()}


def adam_step(optimizer: torch.optim.Optimizer, loss: Any, rate: float, max_grad_norm: float | None) -> None:
    """Make a step of torch's Adam, with the norm of the gradients clipped if one is given."""
    optimizer.zero_grad()
    loss.backward()
    [parameters] = optimizer.param_groups
    parameters["lr"] = rate
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(parameters["params"], max_grad_norm)
    optimizer.step()


def rows_of(minibatch: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the rows of a prepared minibatch, in float64."""
    return [
        {name: tensor[i].double() if tensor.is_floating_point() else tensor[i] for name, tensor in minibatch.items()}
        for i in range(len(minibatch["reward"]))
    ]


def mean(losses: list[Tensor]) -> Tensor:
    return torch.stack(losses).mean()
