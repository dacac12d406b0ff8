"""A user's own encoder: a module from the whole observation to features, with tests of what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from offbeat.config.registry import encoder_factory
from offbeat.core.errors import (
    ConfigError,
    RunFailed,
    type_and_text,
    with_notes_of,
    with_traceback_of,
    without_full_stop,
)
from offbeat.core.frozen_table import EMPTY, thawed
from offbeat.core.types import Leaf
from offbeat.models.dense import Initializer


class OwnEncoder(nn.Module):
    """The user's own encoder, whose input is the whole observation."""

    def __init__(
        self, leaves: tuple[Leaf, ...], name: str, init: Initializer, kwargs: Mapping[str, Any] = EMPTY
    ) -> None:
        """Create the module, also with the arguments `kwargs`, and test it on observations of zeros. A lazy layer makes
        its weights in the first test.

        Raises:
            ConfigError: it cannot be made, is not a torch module, has buffers, changes its observations, draws random
                numbers, or does not return features [M, F].
        """
        super().__init__()
        self._name = name
        self._contract = f"Its forward(observations) gets {_described(leaves)}, and returns features, a tensor [M, F]"
        self._env_numbers = {leaf.name: _EnvNumbers(leaf) for leaf in leaves if leaf.choices and leaf.env_dtype}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(init.seed())
            self.module = _made(name, leaves, thawed(kwargs))
            self.features = self._tested_features(leaves)

    def _tested_features(self, leaves: tuple[Leaf, ...]) -> int:
        """Return the number of features F, after tests of the module on one and on two observations of zeros."""
        features = self._count(leaves, 1)
        before = torch.get_rng_state()
        more = self._count(leaves, 2)
        if more != features:
            raise ConfigError(
                f"encoder {self._name} returned {min(features, more)} and {max(features, more)} features for one and "
                f"for two observations, but the same number is expected. {self._contract}"
            )
        if not torch.equal(torch.get_rng_state(), before):
            raise ConfigError(
                f"encoder {self._name} draws random numbers, so the features of an observation would differ between "
                "acting and learning, and between runs: leave out what draws them, such as noise or RReLU, and give "
                "dropout the probability 0, also that of nn.TransformerEncoderLayer"
            )
        return features

    def _count(self, leaves: tuple[Leaf, ...], rows: int) -> int:
        """Return the number of features for observations of zeros."""
        zeros = {leaf.name: torch.zeros(rows, *leaf.stacked_shape, dtype=getattr(torch, leaf.dtype)) for leaf in leaves}
        try:
            with torch.no_grad():
                features: Any = self._encoded(zeros)
        except RunFailed as error:
            raise with_notes_of(ConfigError(str(error)), error) from error
        if any(x._version for x in zeros.values()):  # noqa: SLF001 - counts changes in place
            raise ConfigError(
                f"encoder {self._name} changes its observations in place, but they are also recorded and learned from: "
                "compute new tensors, such as x * 2 instead of x.mul_(2)"
            )
        given = f"for {rows} observations of zeros" if rows > 1 else "for an observation of zeros"
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != rows or not features.shape[1]:
            raise ConfigError(
                f"encoder {self._name} returned {_kind(features)} {given}, but features [{rows}, F] are expected. "
                f"{self._contract}"
            )
        if not features.is_floating_point():
            raise ConfigError(
                f"encoder {self._name} returned features of {features.dtype} {given}, which have no gradient: return "
                "floats"
            )
        if not features.isfinite().all():
            raise ConfigError(
                f"encoder {self._name} returned NaN or infinite features {given}: a division by zero, for example, "
                "becomes finite with a small number added to the divisor"
            )
        return features.shape[1]

    def forward(self, encoded: Mapping[str, Tensor]) -> Tensor:
        """Return [M, features] in float32, of whatever precision the module's are, for leaf -> [M, *stacked_shape].

        Raises:
            RunFailed: the module raises an exception.
        """
        return self._encoded(encoded).float()

    def _encoded(self, encoded: Mapping[str, Tensor]) -> Tensor:
        """Return what the module returns; arguments and errors are as in `forward`."""
        given = {name: self._env_numbers[name](x) if name in self._env_numbers else x for name, x in encoded.items()}
        try:
            features: Tensor = self.module(env_structure(given))
        except Exception as error:
            rows = len(next(iter(encoded.values())))
            failed = RunFailed(
                f"encoder {self._name} raised {type(error).__name__} for M = {rows} observations "
                f"({without_full_stop(error)}). {self._contract}"
            )
            raise with_traceback_of(failed, error) from error
        return features


def _made(name: str, leaves: tuple[Leaf, ...], kwargs: Mapping[str, Any]) -> nn.Module:
    """Return the module that an encoder's class or function makes, which is called with the arguments `kwargs` too.

    Raises:
        ConfigError: it raises an exception, or what it makes is no module, has buffers, or parameters of another dtype
            than float32.
    """
    make = encoder_factory(name)
    try:
        module = make(env_structure({leaf.name: _as_env_gives(leaf) for leaf in leaves}), **kwargs)
    except Exception as error:
        refused = ConfigError(
            f"encoder {name} cannot be made ({without_full_stop(type_and_text(error))}): it is called with "
            f"the description of the observation, {_described(leaves, rows=())}" + f"; and with {kwargs}" * bool(kwargs)
        )
        raise with_traceback_of(refused, error) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"encoder {name} made {module!r}, but a torch.nn.Module is expected: return one")
    if others := {str(each.dtype) for each in module.parameters()} - {"torch.float32"}:
        raise ConfigError(
            f"encoder {name} has parameters of {', '.join(sorted(others))}, but networks are float32: pass "
            "dtype=torch.float32 to its layers, or leave out torch.set_default_dtype"
        )
    if buffers := [key for key, _ in module.named_buffers()]:
        raise ConfigError(
            f"encoder {name} has buffers ({', '.join(buffers)}), which are not published to actors: use layers "
            "without running statistics, such as LayerNorm; for a constant of floats nn.Parameter(value, "
            "requires_grad=False); and make other constants in forward()"
        )
    return module


def _kind(features: object) -> str:
    """Return what an encoder returned, in words."""
    if isinstance(features, Tensor):
        return f"a tensor of shape {list(features.shape)}"
    return f"a tuple of {len(features)}" if isinstance(features, tuple) else type(features).__name__


def _described(leaves: tuple[Leaf, ...], rows: tuple[str, ...] = ("M",)) -> str:
    """Return the observations that an encoder gets, in words: name, shape and dtype of each leaf."""
    given = env_structure({leaf.name: _as_env_gives(leaf) for leaf in leaves})
    parts = given if isinstance(given, Mapping) else {"observation": given}
    words = ", ".join(
        f"{name} [{', '.join(map(str, (*rows, *leaf.stacked_shape)))}] {leaf.dtype}" for name, leaf in parts.items()
    )
    return f"a dict of {words}" if isinstance(given, Mapping) else words


def _as_env_gives(leaf: Leaf) -> Leaf:
    """Return the description of a leaf as the user's own encoder gets it: with the dtype of the env's choices."""
    return replace(leaf, dtype=leaf.env_dtype) if leaf.env_dtype else leaf


class _EnvNumbers:
    """Converts stored choices, which count from 0 in the smallest dtype, to the env's own numbers in its own dtype."""

    def __init__(self, leaf: Leaf) -> None:
        self._dtype: torch.dtype = getattr(torch, leaf.env_dtype)
        self._start = torch.tensor(leaf.start).reshape(leaf.shape) if leaf.start else None

    def __call__(self, stored: Tensor) -> Tensor:
        """Return [M, *shape] for [M, *shape]."""
        if self._start is None:
            return stored.to(self._dtype)
        self._start = self._start.to(stored.device)
        return (stored.to(torch.int64) + self._start).to(self._dtype)


def env_structure(leaves: Mapping[str, Any]) -> Any:
    """Return the values of leaves as a dict with the keys of the env's Dict space; for a single leaf, its value."""
    if list(leaves) == ["observation"]:
        return leaves["observation"]
    return {name.removeprefix("observation/"): part for name, part in leaves.items()}
