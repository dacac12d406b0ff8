from __future__ import annotations

import time

import pytest
from tests.reference.compiled import WITH_NUMBA

from offbeat.api import compiled_modules
from offbeat.config.resolve import resolve


@WITH_NUMBA
@pytest.mark.parametrize(("takes_s", "messages"), [(0.5, 1), (0.0, 0)])
def test_the_user_is_told_of_a_slow_compilation_only(monkeypatch, takes_s, messages):
    imported: list[str] = []
    told: list[str] = []

    def import_module(name):
        imported.append(name)
        time.sleep(takes_s)

    monkeypatch.setattr(compiled_modules, "SLOW_S", 0.1)
    monkeypatch.setattr(compiled_modules, "import_module", import_module)
    compiled_modules.import_compiled(resolve("ppo", "CartPole-v1", flags={"kernels": "numba"}), told.append)
    time.sleep(0.3)  # a reminder that was not stopped would come now
    assert imported == ["offbeat.fastpath.compiled"]
    assert [message.split(":")[0] for message in told] == ["compiling the gradients for this machine"] * messages


def test_without_compiled_kernels_nothing_is_imported(monkeypatch):
    monkeypatch.setattr(compiled_modules, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    for algorithm, env in (("ppo", "CartPole-v1"), ("sac", "Pendulum-v1")):
        compiled_modules.import_compiled(resolve(algorithm, env), pytest.fail)
