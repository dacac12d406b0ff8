"""The losses of SAC and TD3 for a box on raw tensors, differentiated by autograd, close to the equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn import functional

Parameters = Sequence[tuple[Tensor, ...]]
"""(weight, bias) of each layer of one network; with layer normalisation (weight, bias, scale, shift) of hidden ones."""


def network(x: Tensor, layers: Parameters, activation: str) -> Tensor:
    *hidden, last = layers
    for weight, bias, *norm in hidden:
        x = getattr(torch, activation)(normalized(functional.linear(x, weight, bias), *norm))
    return functional.linear(x, *last)


def normalized(x: Tensor, scale: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
    """Return x [M, n] after layer normalisation, if there is one."""
    if scale is None or shift is None:
        return x
    variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
    return scale * (x - mean) / (variance + 1e-5).sqrt() + shift


def draw(observation: Tensor, noise: Tensor, policy: Parameters, activation: str) -> tuple[Tensor, Tensor]:
    """Return the action [M, A] and its log-probability [M]."""
    mean, log_std = network(observation, policy, activation).chunk(2, dim=1)
    std = log_std.clamp(-20, 2).exp()
    u = mean + std * noise
    log_slope = 2 * (torch.log(torch.tensor(2.0)) - u - functional.softplus(-2 * u))
    # u in place of the draw's own noise: log_prob is differentiated through mean, std and u, as in the paper.
    return u.tanh(), (Normal(mean, std, validate_args=False).log_prob(u) - log_slope).sum(dim=1)


def values(observation: Tensor, action: Tensor, critics: Sequence[Parameters], activation: str) -> Tensor:
    """Return [E, M]."""
    x = torch.cat((observation, action), dim=1)
    return torch.stack([network(x, critic, activation)[:, 0] for critic in critics])


def sac_targets(
    rows: Mapping[str, Tensor], policy: Parameters, ema: Sequence[Parameters], alpha: float, activation: str
) -> Tensor:
    with torch.no_grad():
        action, log_prob = draw(rows["next_observation"], rows["next_noise"], policy, activation)
        least = values(rows["next_observation"], action, ema, activation).min(dim=0).values
        return rows["reward"] + rows["discount"] * (least - alpha * log_prob)


def critic_loss(
    rows: Mapping[str, Tensor], critics: Sequence[Parameters], target: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the loss and the mean size of each row's errors, [M]."""
    errors = values(rows["observation"], rows["action"], critics, activation) - target
    weight = rows.get("weight", torch.ones_like(target))
    return (0.5 * weight * errors.square()).mean(dim=1).sum(), errors.detach().abs().mean(dim=0)


def sac_policy_loss(
    rows: Mapping[str, Tensor], policy: Parameters, critics: Sequence[Parameters], alpha: float, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the loss and the log-probabilities [M]."""
    action, log_prob = draw(rows["observation"], rows["noise"], policy, activation)
    # torch.min by dimension gives the whole gradient to one critic where several agree.
    least = values(rows["observation"], action, critics, activation).min(dim=0).values
    return (alpha * log_prob - least).mean(), log_prob.detach()


def smoothed(
    observation: Tensor, noise: Tensor, policy: Parameters, smoothing: tuple[float, float], activation: str
) -> Tensor:
    """Return the action with clipped noise, [M, A]; smoothing: the standard deviation and the largest size."""
    std, clip = smoothing
    bound, one = torch.full_like(noise, clip), torch.ones_like(noise)
    within = torch.minimum(torch.maximum(std * noise, -bound), bound)
    return torch.minimum(torch.maximum(network(observation, policy, activation).tanh() + within, -one), one)


def td3_targets(rows: Mapping[str, Tensor], action: Tensor, ema: Sequence[Parameters], activation: str) -> Tensor:
    with torch.no_grad():
        least = values(rows["next_observation"], action, ema, activation).min(dim=0).values
        return rows["reward"] + rows["discount"] * least


def td3_policy_loss(
    rows: Mapping[str, Tensor], policy: Parameters, critics: Sequence[Parameters], activation: str
) -> Tensor:
    action = network(rows["observation"], policy, activation).tanh()
    return -values(rows["observation"], action, critics[:1], activation).mean()


def least_deviation(x: Tensor, layers: Parameters, activation: str) -> float:
    """Return the smallest standard deviation that a layer normalisation divides by: it makes rounding errors larger."""
    least = float("inf")
    for weight, bias, *norm in layers[:-1]:
        x = functional.linear(x, weight, bias)
        least = min(least, float(x.std(dim=1, correction=0).min())) if norm else least
        x = getattr(torch, activation)(normalized(x, *norm))
    return least


def nearest_kink(x: Tensor, layers: Parameters, activation: str) -> float:
    """Return how near the input of some ReLU is to 0: where it is very near, the gradient is rounding's to decide."""
    nearest = float("inf")
    for weight, bias, *norm in layers[:-1]:
        x = normalized(functional.linear(x, weight, bias), *norm)
        nearest = min(nearest, float(x.abs().min())) if activation == "relu" else nearest
        x = getattr(torch, activation)(x)
    return nearest
