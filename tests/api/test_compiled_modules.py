from __future__ import annotations

import threading
from typing import Any

import pytest

from offbeat.api.running import compiled_modules
from offbeat.cli.main import run
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError

COMPILED: dict[str, Any] = {"kernels": "numba"}


def test_the_user_is_notified_of_a_slow_compilation(monkeypatch):
    messages, notified = list[str](), threading.Event()

    def notify(message: str) -> None:
        messages.append(message)
        notified.set()

    monkeypatch.setattr(compiled_modules, "SLOW_S", 0.01)
    monkeypatch.setattr(compiled_modules, "import_module", lambda _name: notified.wait(timeout=60))
    compiled_modules.import_compiled(resolve("ppo", "CartPole-v1", flags=COMPILED), notify)
    assert [message.partition(":")[0] for message in messages] == ["compiling the gradients for this machine"]


def test_the_user_is_not_notified_of_a_fast_import_then_or_later(monkeypatch):
    imported: list[str] = []
    monkeypatch.setattr(compiled_modules, "SLOW_S", 60.0)
    monkeypatch.setattr(compiled_modules, "import_module", imported.append)
    before = set(threading.enumerate())
    compiled_modules.import_compiled(resolve("ppo", "CartPole-v1", flags=COMPILED), pytest.fail)
    assert imported == ["offbeat.fastpath.compiled"]
    assert set(threading.enumerate()) <= before


def test_bench_imports_compiled_modules_before_it_measures(monkeypatch, capsys):
    def import_module(name: str) -> None:
        raise ConfigError(f"{name} is imported first")

    monkeypatch.setattr(compiled_modules, "import_module", import_module)
    assert run(["bench", "ppo", "CartPole-v1", "--set", "kernels=numba"]) == 2
    assert "offbeat: offbeat.fastpath.compiled is imported first" in capsys.readouterr().err


def test_without_compiled_kernels_nothing_is_imported(monkeypatch):
    monkeypatch.setattr(compiled_modules, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    for algorithm, env in (("ppo", "CartPole-v1"), ("sac", "Pendulum-v1")):
        compiled_modules.import_compiled(resolve(algorithm, env), pytest.fail)
