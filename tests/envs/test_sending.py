"""Envs sent to real processes that have imported nothing of the user's."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import WrapperSpec
from tests.sample_envs import run_envs
from tests.sample_envs.env_zoo import Wanderer, make_wanderer
from tests.support.registries import registries_kept
from tests.support.runs import CommandResult, run_python, run_script

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.envs.make import make_envs
from offbeat.envs.registration import UnknownEnv
from offbeat.envs.sending import NotSendable, package

ROOT = Path(__file__).parents[2]
CHILD = """
import sys
from pathlib import Path
from offbeat.envs.make import make_envs
from offbeat.envs.sending import unpack
from offbeat.core.errors import ConfigError, RunFailed
try:
    unpack(Path(sys.argv[2]).read_bytes())
    envs = make_envs(sys.argv[1], 2, seed=3)
except (ConfigError, RunFailed) as error:
    sys.exit(f"refused: {error}")
print(b"".join(leaf.tobytes() for leaf in envs.reset().values()).hex())
"""
CHILDREN = """
import os, pickle, sys
from offbeat.envs.make import make_envs
from offbeat.envs.sending import unpack
for env_id, sent in pickle.load(sys.stdin.buffer).items():
    if os.fork() == 0:
        unpack(sent)
        rows = make_envs(env_id, 2, seed=3).reset().values()
        print(env_id, b"".join(leaf.tobytes() for leaf in rows).hex(), "torch" in sys.modules)
        sys.exit()
    assert os.wait()[1] == 0
"""
"""A process for each env: each is forked from one that has imported no env."""
FINDS_ENCODER = """
import sys
from pathlib import Path
from offbeat.config.registry import encoder_factory
from offbeat.envs.sending import unpack
unpack(Path(sys.argv[1]).read_bytes())
print(encoder_factory("mine").__name__)
"""
SCRIPT = """
import sys
from pathlib import Path
import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv
from offbeat.envs.sending import package
from offbeat.core.errors import ConfigError
{}
try:
    Path("sent").write_bytes(package({!r}, {!r}))
except ConfigError as error:
    sys.exit(f"refused: {{error}}")
"""
"""A user's program: what it registers, an id, and imports."""


@pytest.fixture(autouse=True)
def _registry_as_it_was() -> Iterator[None]:
    """Only these tests' envs are forgotten: packages that were imported meanwhile register theirs once."""
    before = dict(gym.registry)
    yield
    for env_id in [env_id for env_id in gym.registry if env_id.startswith(("sent/", "runs/"))]:
        del gym.registry[env_id]
    gym.registry.update(before)


def finding(path: Path) -> dict[str, str]:
    """Return an environment in which only what is in `path` is found besides the library."""
    return {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT / 'src'}"}


def unpacked(folder: Path, env_id: str, sent: bytes | None = None, path: Path | None = None) -> CommandResult:
    """Unpack what is sent, else what a program has left in `folder`, in another process, and make the env there."""
    file = folder / "sent"
    if sent is not None:
        file.write_bytes(sent)
    return run_python(CHILD, env_id, file, folder=folder, environment=finding(path or folder))


def first_observations(env_id: str) -> str:
    return b"".join(leaf.tobytes() for leaf in make_envs(env_id, 2, seed=3).reset().values()).hex()


def register_at_run_time() -> None:
    run_envs.register()
    entry_points: dict[str, Any] = {"Text": "tests.sample_envs.env_zoo:Wanderer", "Class": Wanderer}
    for name, point in {**entry_points, "Function": make_wanderer}.items():
        gym.register(f"sent/{name}-v0", point, max_episode_steps=3)


SENT: dict[str, tuple[str, ...]] = {
    "CartPole-v1": (),
    "offbeat/OneStep-v0": (),
    "runs/Wave-v0": ("tests.sample_envs.run_envs",),
    "tests.sample_envs.run_envs:runs/Wave-v0": (),
    "sent/Text-v0": (),
    "sent/Class-v0": (),
    "sent/Function-v0": (),
    "tests.sample_envs.env_zoo:Wanderer": (),
    "tests.sample_envs.env_zoo:make_wanderer": (),
    **({"envpool:CartPole-v1": ()} if find_spec("envpool") else {}),
}
"""Id of an env -> modules that are imported."""


def test_an_env_sent_to_another_process_gives_the_same_rows_there_without_torch() -> None:
    register_at_run_time()
    sent = {env_id: package(env_id, imports) for env_id, imports in SENT.items()}
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN], input=pickle.dumps(sent), capture_output=True, env=finding(ROOT), check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    answers = {env_id: answer for env_id, *answer in map(str.split, done.stdout.decode().splitlines())}
    assert answers == {env_id: [first_observations(env_id), "False"] for env_id in SENT}


def test_an_env_registered_by_the_program_replaces_one_of_an_imported_module(tmp_path: Path) -> None:
    run_envs.register()
    gym.registry["runs/Wave-v0"] = replace(
        gym.spec("runs/Wave-v0"), entry_point="gymnasium.envs.classic_control:PendulumEnv"
    )
    sent = package("runs/Wave-v0", ("tests.sample_envs.run_envs",))
    assert unpacked(tmp_path, "runs/Wave-v0", sent, ROOT).out.strip() == first_observations("Pendulum-v1")


# --- a user's program -----------------------------------------------------------------------------------------


def program(folder: Path, registers: str, env_id: str, imports: tuple[str, ...] = (), **modules: str) -> Path:
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
    script = folder / "my_program.py"
    script.write_text(SCRIPT.format(registers, env_id, imports))
    return script


def test_an_importable_class_registered_by_the_program_is_sent(tmp_path: Path) -> None:
    registers = "import boats\ngym.register('Boat-v0', boats.Boat)"
    boats = f"{IMPORTS}class Boat(PendulumEnv): ..."
    said = run_script(program(tmp_path, registers, "Boat-v0", boats=boats), folder=tmp_path)
    assert said.code == 0, said.err
    assert unpacked(tmp_path, "Boat-v0").out.strip() == first_observations("Pendulum-v1")


@pytest.mark.parametrize(
    ("registers", "says"),
    [
        ("class Boat(PendulumEnv):\n    pass\ngym.register('Boat-v0', Boat)", "its entry_point: the class Boat"),
        ("gym.register('Boat-v0', '__main__:PendulumEnv')", "its entry_point: __main__:PendulumEnv"),
        ("gym.register('Boat-v0', lambda: PendulumEnv())", "its entry_point: a lambda"),
        (
            "class Sea:\n    pass\ngym.register('Boat-v0', PendulumEnv, kwargs={'sea': Sea()})",
            "its argument 'sea': the class Sea",
        ),
    ],
)
def test_an_env_defined_in_the_main_program_is_not_sent(tmp_path: Path, registers: str, says: str) -> None:
    script = program(tmp_path, registers, "Boat-v0")
    code, sent, errors = run_script(script, folder=tmp_path)
    assert (code, sent) == (1, "")
    assert errors.startswith(f"refused: Boat-v0 cannot be sent to another process, because of {says} ")
    assert "the program that was started" in errors
    assert 'pass imports=["my_env"]; or pass runtime="threads" or runtime="serial"' in errors


def test_a_class_of_the_main_program_is_not_sent_by_its_import_path(tmp_path: Path) -> None:
    script = program(tmp_path, "class Boat(PendulumEnv):\n    pass", "__main__:Boat")
    code, sent, errors = run_script(script, folder=tmp_path)
    assert (code, sent) == (1, "")
    assert "refused: __main__:Boat cannot be sent to another process, because of its entry_point: the class B" in errors


IMPORTS = "import gymnasium as gym\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
REGISTER = "gym.register('Boat-v0', lambda **_: PendulumEnv())\n"


def test_a_lambda_is_not_sent_if_an_imported_module_registers_it(tmp_path: Path) -> None:
    script = program(tmp_path, "import boats", "Boat-v0", ("boats",), boats=IMPORTS + REGISTER)
    said = run_script(script, folder=tmp_path)
    assert said.code == 0, said.err
    assert unpacked(tmp_path, "Boat-v0").out.strip() == first_observations("Pendulum-v1")


def test_a_function_that_another_function_has_made_is_sent_by_its_path(tmp_path: Path) -> None:
    """PettingZoo's functions `parallel_env` are made by one of its own, in another module."""
    made = f"{IMPORTS}def maker():\n    def make(**_):\n        return PendulumEnv()\n    return make\n"
    boats = "import makers\nmake_boat = makers.maker()\n"
    said = run_script(program(tmp_path, "", "boats:make_boat", makers=made, boats=boats), folder=tmp_path)
    assert said.code == 0, said.err
    assert unpacked(tmp_path, "boats:make_boat").out.strip() == first_observations("Pendulum-v1")


def test_an_import_that_does_not_register_the_env_is_reported(tmp_path: Path) -> None:
    boats = f"{IMPORTS}def register():\n    {REGISTER}"
    script = program(tmp_path, "import boats\nboats.register()", "Boat-v0", ("boats",), boats=boats)
    assert run_script(script, folder=tmp_path).code == 0
    errors = unpacked(tmp_path, "Boat-v0").err
    assert "refused: Boat-v0 is not registered by importing boats: call gymnasium.register at" in errors


def test_a_module_missing_in_the_other_process_is_reported_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boats.py").write_text(f"{IMPORTS}class Boat(PendulumEnv): ...")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with registries_kept("boats"):
        gym.register("Boat-v0", import_module("boats").Boat)
        code, _, errors = unpacked(tmp_path / "elsewhere", "Boat-v0", package("Boat-v0", ()))
    assert code == 1
    assert "refused: Boat-v0 cannot be registered in another process (ModuleNotFoundError" in errors
    assert "PYTHONPATH" in errors


# --- what cannot be sent --------------------------------------------------------------------------------------


def local_class() -> type:
    class Local(Wanderer):
        pass

    return Local


def wrapper(entry_point: str = "gymnasium.wrappers:TimeAware", **kwargs: Any) -> tuple[WrapperSpec, ...]:
    return (WrapperSpec("Extra", entry_point, kwargs),)


@pytest.mark.parametrize(
    ("registration", "says"),
    [
        ({"entry_point": lambda **_: Wanderer()}, "entry_point: a lambda is defined in tests.envs.test_sending, but"),
        (
            {"entry_point": local_class()},
            r"entry_point: the class local_class.<locals>.Local is defined in tests\.envs",
        ),
        ({"vector_entry_point": lambda: None}, "vector_entry_point: a lambda"),
        ({"kwargs": {"reward": [len, lambda: 0]}}, "argument 'reward': a lambda"),
        ({"kwargs": {"lock": threading.Lock()}}, "argument 'lock': lock cannot be pickled .TypeError: .*lock"),
        ({"additional_wrappers": wrapper("__main__:Extra")}, "wrapper Extra: __main__:Extra is defined in the program"),
        ({"additional_wrappers": wrapper(key=lambda: 0)}, "wrapper Extra's argument 'key': a lambda"),
    ],
)
def test_unpicklable_arguments_of_an_env_are_refused_by_name(registration: dict[str, Any], says: str) -> None:
    gym.register("sent/Never-v0", **{"entry_point": Wanderer, **registration})
    with pytest.raises(ConfigError, match=f"sent/Never-v0 .*its {says}.*--import .*--runtime threads"):
        package("sent/Never-v0", ())


def test_encoders_of_the_started_program_and_of_a_function_are_refused_with_where_to_define_them() -> None:
    for path, where in (
        ("__main__:Mine", "in the program that was started"),
        ("own:make.<locals>.Mine", "inside a function of own"),
    ):
        with pytest.raises(
            NotSendable, match=f"the encoder {path} cannot be .*: it is defined {where}.*my_network:"
        ) as no:
            package("CartPole-v1", (), encoders=["flat", path])
        assert "--runtime threads" in str(no.value)
        assert "--runtime" not in no.value.reason


def test_an_encoder_that_the_program_registered_is_found_by_its_name_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "networks.py").write_text("class OwnEncoder: ...")
    monkeypatch.syspath_prepend(tmp_path)
    with registries_kept("networks"):
        offbeat.register_encoder("mine", import_module("networks").OwnEncoder)
        (tmp_path / "sent").write_bytes(package("CartPole-v1", (), encoders=["mine"]))
    said = run_python(FINDS_ENCODER, tmp_path / "sent", folder=tmp_path, environment=finding(tmp_path))
    assert said == (0, "OwnEncoder\n", "")


def test_sending_an_unknown_env_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown env"):
        package("sent/Nothing-v0", ())


@pytest.mark.parametrize("error", [NotSendable("no"), UnknownEnv("Env-v0", " Did you mean 'Envs-v0'?")])
def test_an_error_with_remedies_of_its_own_is_the_same_in_another_process(error: ConfigError) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
