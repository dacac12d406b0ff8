"""Ids that were typed without the module of their package, and messages about envs that cannot be used."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.support.registries import registries_kept

from offbeat.core.errors import ConfigError
from offbeat.envs.checking.check import check_env
from offbeat.envs.checking.preflight import preflight
from offbeat.envs.make import cannot_make
from offbeat.envs.packages import package_of
from offbeat.envs.registration import registry_entry


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("mo-hopper-v5", "env of mo-gymnasium, which is not installed"),
        ("cartpole_v1", "Did you mean 'CartPole-v1'?"),
        ("simple_spread_v3", "have a prefix, as in pettingzoo:mpe2/simple_spread_v3"),
    ],
)
def test_an_unknown_id_is_answered_with_its_package_or_the_nearest_id_or_a_prefix(env_id, expected):
    with pytest.raises(ConfigError, match=re.escape(expected)):
        registry_entry(env_id)


def test_a_well_known_id_names_the_package_to_install():
    message = package_of("MiniGrid-Empty-5x5-v0")
    assert "run pip install minigrid, and type minigrid:MiniGrid-Empty-5x5-v0" in message
    assert 'pip install "shimmy[dm-control]", and type shimmy:dm_control/' in package_of(
        "dm_control/cartpole-balance-v0"
    )


def test_an_unknown_id_of_a_module_is_answered_with_the_ids_that_it_registers(tmp_path, monkeypatch):
    """Not with the function `register`, which the module has only imported."""
    registers = "from gymnasium import register\nregister('bogland/{0}-v1', 'bogland:{0}')\n"
    (tmp_path / "bogland.py").write_text(registers.format("Bog") + registers.format("Fen"))
    monkeypatch.syspath_prepend(tmp_path)
    with registries_kept("bogland"), pytest.raises(ConfigError) as refused:
        registry_entry("bogland:Bog-v0")
    assert "Did you mean 'bogland:bogland/Bog-v1'?" in str(refused.value)
    assert "It registers bogland/Bog-v1, bogland/Fen-v1." in str(refused.value)


@pytest.mark.parametrize("old", [False, True])
def test_an_env_of_gym_is_told_how_it_becomes_one_of_gymnasium(tmp_path, monkeypatch, old):
    (tmp_path / "moor.py").write_text("import gym\n\nclass MoorEnv: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = {"Moor-v0": None}
    gym = SimpleNamespace(envs=SimpleNamespace(registry=SimpleNamespace(env_specs=registry) if old else registry))
    monkeypatch.setitem(sys.modules, "gym", gym)
    with registries_kept("moor"), pytest.raises(ConfigError, match="is registered with gym") as refused:
        registry_entry("moor:Moor-v0")
    assert "shimmy:GymV26Environment-v0 --import moor --env-kwargs env_id=Moor-v0" in str(refused.value)


def test_an_unlike_name_is_not_suggested():
    with pytest.raises(ConfigError) as refused:
        registry_entry("Quicksand-v0")
    assert "Did you mean" not in str(refused.value)
    assert "type its module too: module:ID" in str(refused.value)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import no_such_package\n", "it was found, but it needs no_such_package, which is not installed"),
        ("raise ValueError('not here.')\n", "(ValueError: not here): it was found, but raised this"),
        (None, "check the name; install its package with pip, or see that its folder is on PYTHONPATH"),
    ],
    ids=["needs a package", "raises", "does not exist"],
)
def test_the_remedy_for_a_module_that_cannot_be_imported_is_that_of_its_error(tmp_path, monkeypatch, source, expected):
    if source is not None:
        (tmp_path / "a_bog.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with registries_kept("a_bog"), pytest.raises(ConfigError) as refused:
        registry_entry("a_bog:Bog-v0")
    assert expected in str(refused.value)
    assert ("check the name" in str(refused.value)) == (source is None)


class Rewards(gymnasium.Env[Any, Any]):
    """An env whose reward is not one number, or which raises a sentence."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward: Any) -> None:
        self._reward = reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:  # noqa: ARG002
        if self._reward is None:
            raise ValueError("The swamp is deep.")
        return np.zeros(1, np.float32), self._reward, False, False, {}


def install_rewards(reward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rewards", type(sys)("rewards"))
    sys.modules["rewards"].make = lambda: Rewards(reward)  # type: ignore[attr-defined]


def refusal_of(reward: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    install_rewards(reward, monkeypatch)
    with pytest.raises(ConfigError) as refused:
        preflight("rewards:make")
    return str(refused.value)


SEVERAL = pytest.mark.parametrize(
    "reward", [np.array([1.0, -1.0]), [0.0, 1.0], {"a": 0.0, "b": 1.0}], ids=["array", "list", "dict"]
)


@SEVERAL
def test_check_names_several_objectives_or_agents_in_words(monkeypatch, reward):
    install_rewards(reward, monkeypatch)
    finding = check_env("rewards:make", steps=5)[0]
    assert finding.severity == "error"
    assert "a reward of 2 numbers, for several objectives or several agents" in finding.problem
    assert "mo_gymnasium.wrappers.LinearReward" in finding.remedy


@SEVERAL
def test_several_objectives_or_agents_are_named_in_words(monkeypatch, reward):
    message = refusal_of(reward, monkeypatch)
    assert "step() returned a reward of 2 numbers, for several objectives or several agents" in message
    assert "mo_gymnasium.wrappers.LinearReward" in message
    assert "pettingzoo:ID" in message


def test_a_sentence_of_the_env_does_not_end_with_two_full_stops(monkeypatch):
    assert "The swamp is deep. Run `offbeat" in refusal_of(None, monkeypatch)


def test_a_function_that_fails_is_called_by_its_name_to_see_where(monkeypatch):
    module: Any = type(sys)("failing")
    monkeypatch.setitem(sys.modules, "failing", module)

    def make(depth: int = 1) -> None:
        raise ValueError(f"{depth} is too deep")

    module.make = make
    with pytest.raises(
        ConfigError, match=re.escape("run `import failing; failing.make()` in Python to see where")
    ) as refused:
        preflight("failing:make")
    assert "gymnasium.make" not in str(refused.value)


@pytest.mark.parametrize("fails_in", ["make", "reset"])
def test_an_env_that_cannot_draw_says_how_to_draw_without_a_screen(monkeypatch, fails_in):
    module: Any = type(sys)("drawing")
    monkeypatch.setitem(sys.modules, "drawing", module)

    class Drawing(Rewards):
        def __init__(self) -> None:
            super().__init__(0.0)
            if fails_in == "make":
                raise RuntimeError("No OpenGL rendering backend is available.")

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:  # noqa: ARG002
            raise RuntimeError("No OpenGL rendering backend is available.")

    module.Drawing = Drawing
    with pytest.raises(ConfigError, match=r"No OpenGL rendering backend.*put MUJOCO_GL=egl in front of the command"):
        preflight("drawing:Drawing")
    if fails_in == "reset":
        assert "MUJOCO_GL=egl" in check_env("drawing:Drawing", steps=5)[0].remedy


def test_a_library_that_cannot_be_imported_to_draw_says_how_to_draw_without_a_screen():
    refused = cannot_make("pettingzoo:mpe2/simple_v3", {}, ImportError("Failed to import OpenGL"))
    assert "put MUJOCO_GL=egl in front of the command" in str(refused)


def test_gymnasium_makes_our_envs_in_a_script_after_an_import_by_their_id():
    script = "import gymnasium; print(gymnasium.make('offbeat.envs.own:offbeat/Recall-v0').reset(seed=0)[0])"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_missing_arguments_of_a_registered_env_are_named(tmp_path, monkeypatch):
    source = "import gymnasium\n\nclass Ditch(gymnasium.Env):\n    def __init__(self, width, depth): ...\n\n"
    (tmp_path / "ditches.py").write_text(
        f"{source}gymnasium.register('Ditch-v0', 'ditches:Ditch', kwargs={{'width': 1}})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with registries_kept("ditches"), pytest.raises(ConfigError) as refused:
        preflight("ditches:Ditch-v0")
    assert "ditches:Ditch-v0 needs the argument depth: pass --env-kwargs depth=VALUE" in str(refused.value)
