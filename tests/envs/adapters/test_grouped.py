"""Libraries with vector envs of their own: their exceptions are reported with the env."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offbeat.core.errors import EnvFailed
from offbeat.core.types import ActionSpec, EnvSpec
from offbeat.envs.adapters.grouped import GroupedEnvs
from offbeat.envs.rows import empty_rows


class Failing:
    """Columns of a library that asserts without a text."""

    def reset(self, *_: Any) -> Any:
        raise AssertionError

    send = recv = reset

    def close(self) -> None:
        pass


@pytest.mark.parametrize("call", ["reset", "send", "recv"])
def test_an_exception_of_a_library_names_the_env_and_the_call(call: str) -> None:
    spec = EnvSpec("pool:Game-v0", (), ActionSpec("discrete", (), (2,)), columns=2)
    envs = GroupedEnvs(spec, [slice(0, 2)], empty_rows((), 2, ()), [Failing()])
    arguments = [np.zeros(2)] if call == "send" else []
    says = rf"^pool:Game-v0, env 0: {call}\(\) of the vector env .* raised AssertionError\. Run"
    with pytest.raises(EnvFailed, match=says):
        getattr(envs, call)(*arguments)
