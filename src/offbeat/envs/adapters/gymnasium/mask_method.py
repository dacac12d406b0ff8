"""Masks from a method of a single env: `action_masks()`, as sb3-contrib reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from offbeat.core.frozen_table import is_bool
from offbeat.core.types import INFO_MASK

MASK_METHOD = "action_masks"


class MaskInInfos(gym.Wrapper[Any, Any, Any, Any]):
    """Puts the mask into the infos that have none. It is not read after a step that terminates the episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the env."""
        return self._with_mask(self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        """Step the env."""
        returned: Any = self.env.step(action)
        return returned if _is_terminated(returned) else self._with_mask(returned)

    def _with_mask(self, returned: Any) -> Any:
        """Return the values of a call, with the mask in the info; wrong ones as they are: they are refused later."""
        is_tuple = isinstance(returned, tuple) and len(returned) > 0
        if not is_tuple or not isinstance(returned[-1], Mapping) or INFO_MASK in returned[-1]:
            return returned
        return *returned[:-1], {**returned[-1], INFO_MASK: self.env.get_wrapper_attr(MASK_METHOD)()}


def _is_terminated(returned: Any) -> bool:
    """Whether these values of `step` say so; wrong ones do not."""
    return isinstance(returned, tuple) and len(returned) == 5 and is_bool(returned[2]) and bool(returned[2])


def with_masks_in_infos(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return an env that has the method in `MaskInInfos`; other ones, and ones whose masks are observed, unchanged."""
    seen, actions = env.observation_space, env.action_space
    is_observed = isinstance(seen, gym.spaces.Dict) and INFO_MASK in seen.spaces
    if is_observed or isinstance(actions, gym.spaces.Box) or not env.has_wrapper_attr(MASK_METHOD):
        return env
    return MaskInInfos(env) if callable(env.get_wrapper_attr(MASK_METHOD)) else env
