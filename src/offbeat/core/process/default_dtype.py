"""Refuses another default dtype of torch than float32, which networks have."""

from __future__ import annotations

import sys

from offbeat.core.errors import ConfigError


def require_default_dtype(env: str) -> None:
    """Refuse another default dtype than float32. Any imported module may set it.

    Args:
        env: the env whose module has perhaps set it, for the message.

    Raises:
        ConfigError: the default dtype is another one.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_default_dtype() != torch.float32:
        raise ConfigError(
            f"torch's default dtype is {torch.get_default_dtype()}, but networks are float32: leave out "
            f"torch.set_default_dtype, which an imported module calls, perhaps that of {env}, and pass dtype= to "
            "tensors instead"
        )
