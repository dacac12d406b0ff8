"""Checks of what a user's algorithm returns: each error names the method that returned it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.types import EnvSpec
from offbeat.losses.advantages import Targets
from offbeat.metrics.checks import refused_name
from offbeat.metrics.names import is_of_run
from offbeat.models.spec import PolicySpec
from offbeat.models.spec_file import contradictions


def policy_of(settings: AlgorithmSettings, env: EnvSpec) -> PolicySpec:
    """Return the policy that an algorithm's settings make for an env.

    Raises:
        ConfigError: the settings do not support the env, or `settings.policy_spec` does not return a `PolicySpec`, or
            one that contradicts itself.
    """
    spec = settings.policy_spec(env)
    if not isinstance(spec, PolicySpec):
        raise ConfigError(f"{type(settings).__qualname__}.policy_spec returned {spec!r}, but a PolicySpec is expected")
    for wrong in contradictions(spec):
        raise ConfigError(f"{type(settings).__qualname__}.policy_spec does not support {env.id}: {wrong}")
    return spec


def require_loss_result(result: object, method: Callable[..., Any]) -> LossResult:
    """Return the result of a loss, which may be a method of the user's.

    Raises:
        RunFailed: it is not a `LossResult`, or its metrics are no dict by name.
    """
    if isinstance(result, LossResult):
        require_metrics(result.metrics, method)
        return result
    raise RunFailed(
        f"{name_of(method)} returned a {type(result).__name__}, but a LossResult is expected: write "
        "`return LossResult(loss, {})`, a class of offbeat.algorithms.base. The loss is a scalar tensor, and the dict "
        "has metrics to report"
    )


def require_scalar(loss: object, method: Callable[..., Any]) -> torch.Tensor:
    """Return a loss, which a method, perhaps the user's, has computed.

    Raises:
        RunFailed: it is not a scalar tensor.
    """
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss
    given = f"of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else f"that is a {type(loss).__name__}"
    raise RunFailed(
        f"{name_of(method)} returned a loss {given}, but a scalar tensor is expected, such as `losses.mean()`"
    )


def require_other_names(metrics: Collection[str], taken: Collection[str], method: Callable[..., Any]) -> None:
    """Refuse metrics of a method, which may be the user's, with no name, or with that of another metric.

    Args:
        metrics: their names.
        taken: names of metrics that are reported beside them, in addition to those of the run.
        method: the method.

    Raises:
        RunFailed: with the first of them.
    """
    for name in metrics:
        if not name or name in taken or is_of_run(name):
            raise refused_name(name_of(method), name)


def require_minibatches(result: object, method: Callable[..., Any]) -> Iterable[Minibatch]:
    """Return the result of `minibatches`, which may be the user's.

    Raises:
        RunFailed: it is no iterator of minibatches.
    """
    if isinstance(result, Iterable) and not isinstance(result, Mapping):
        return result
    raise RunFailed(
        f"{name_of(method)} returned a {type(result).__name__}, but an iterator of minibatches is expected: write "
        "`yield minibatch`, or `return super().minibatches(batch, random)`"
    )


def require_targets(result: object, shape: torch.Size, method: Callable[..., Any]) -> Targets:
    """Return the result of `estimate`, which may be the user's; `shape`: that of a batch, [T, B].

    Raises:
        RunFailed: it is no `Targets`, or has no tensors, or tensors of other shapes.
    """
    given = f"a {type(result).__name__}"
    if isinstance(result, Targets):
        if all(isinstance(each, torch.Tensor) and each.shape == shape for each in result):
            return result
        given = f"Targets of {' and '.join(map(_described, result))}"
    raise RunFailed(
        f"{name_of(method)} returned {given}, but Targets(advantages, value_targets), a class of "
        f"offbeat.losses.advantages, with two tensors [T, B] = {list(shape)} is expected"
    )


def _described(each: object) -> str:
    shape = f" {list(each.shape)}" if isinstance(each, torch.Tensor | np.ndarray) else ""
    return f"a {type(each).__name__}{shape}"


def require_metrics(metrics: object, method: Callable[..., Any]) -> None:
    """Refuse metrics of a method, which may be the user's, that are no dict, or have a name that is no text.

    Raises:
        RunFailed: with the type, or the name.
    """
    if not isinstance(metrics, Mapping):
        raise RunFailed(
            f"{name_of(method)} returned a {type(metrics).__name__}, but a dict of metrics is expected, such as "
            "{'my_metric': value}, or {} for none"
        )
    for name in metrics:
        if not isinstance(name, str):
            raise RunFailed(f"{name_of(method)} returned a metric with the name {name!r}, but a string is expected")


def require_gradients(loss: object, method: Callable[..., Any]) -> torch.Tensor:
    """Return a loss that can be differentiated; `method` is the one that returned it.

    Raises:
        RunFailed: it is not a scalar tensor, or depends on no parameter.
    """
    scalar = require_scalar(loss, method)
    if scalar.requires_grad:
        return scalar
    raise RunFailed(
        f"{name_of(method)} returned a loss without gradients: it depends on no parameter. Compute it outside of "
        "torch.no_grad(), from tensors that are not detached. A generator, such as `minibatches`, must not yield "
        "inside of torch.no_grad(): gradients would be off in the loss too. For a loss without effect, return 0 "
        "times a loss with gradients"
    )


def name_of(method: Callable[..., Any]) -> str:
    """Return the qualified name of a method, for messages."""
    return getattr(method, "__qualname__", None) or repr(method)
