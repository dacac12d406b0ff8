"""The command in the message of a failed env makes the same env again."""

from __future__ import annotations

import shlex

import gymnasium as gym
import pytest

from offbeat.cli.check import Check
from offbeat.cli.main import _parse
from offbeat.config.env import EnvConfig
from offbeat.config.importing import import_modules
from offbeat.config.resolve import env_config
from offbeat.core.frozen_table import PlainTable
from offbeat.envs.reproduce import env_flags


def settings_of(command: Check) -> EnvConfig:
    """Return the table [env] of a parsed `offbeat check`, as it makes it."""
    return env_config(command.given())


@pytest.mark.parametrize(
    "settings",
    [
        EnvConfig(),
        EnvConfig(kwargs=PlainTable({"size": 8, "rate": 0.5, "on": True, "name": "a b", "number": "8", "no": "none"})),
        EnvConfig(kwargs=PlainTable({"goals": [1, 2], "texts": ["a", "it's b"]})),
        EnvConfig(kwargs=PlainTable({"texts": ["\U0001f600", "\x7f\n"], "text": '"\x7f"'})),
        EnvConfig(wrappers=("my:One", "gymnasium.wrappers:FlattenObservation")),
        EnvConfig(max_episode_steps=50, image_size=(84, 84), grayscale=True, ignore_observations=("mission", "a/b")),
        EnvConfig(info_metrics=("x",), curriculum=("gravity 0:9.8 1:12",), previous_action=True),
    ],
    ids=["nothing", "arguments", "lists", "characters", "wrappers", "numbers", "texts"],
)
def test_the_command_has_the_settings_with_which_the_env_was_made(settings: EnvConfig) -> None:
    flags = env_flags("CartPole-v1", settings.completed("CartPole-v1"))
    parsed = _parse(["check", "CartPole-v1", *shlex.split(flags)])
    assert isinstance(parsed, Check)
    assert parsed.env == "CartPole-v1"
    assert settings_of(parsed) == settings


def test_the_command_imports_the_modules_only_of_an_env_that_they_register(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registering_envs.py").write_text(
        "import gymnasium\nclass Own(gymnasium.Env): pass\ngymnasium.register('tests/Registered-v0', Own)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import_modules(("registering_envs",))
    assert "--import registering_envs" in env_flags("tests/Registered-v0", EnvConfig())
    assert "--import" not in env_flags("CartPole-v1", EnvConfig())
    assert "--import" not in env_flags("registering_envs:Own", EnvConfig())
    del gym.registry["tests/Registered-v0"]
