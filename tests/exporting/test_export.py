"""Exported files, run by their runtimes alone, act as `offbeat.load` does."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from dataclasses import replace
from io import BytesIO
from itertools import product
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.sample_envs import env_zoo  # noqa: F401 - registers its envs
from tests.support.exported import FileActor, alone, episode, stacked
from tests.support.models import random_vector
from tests.support.registries import registries_kept
from tests.support.replay_runs import small_sac
from tests.support.runs import files_up_to, offbeat, small_run
from tests.support.thorough import thorough
from tests.support.trials import ROBOT, policy_for
from torch import nn

import offbeat as package
from offbeat.algorithms.returned import policy_of
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.cli.export import _snippet
from offbeat.config.env import UNSET, EnvConfig
from offbeat.config.registry import algorithm_entry
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.frozen_table import PlainTable
from offbeat.envs.checking.preflight import preflight
from offbeat.exporting import policy_file
from offbeat.exporting.agreement import compare
from offbeat.exporting.format_names import FormatName
from offbeat.exporting.formats import Port, cause_of
from offbeat.exporting.policy_file import Exported, export_policy
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout

FORMATS: dict[FormatName, str] = {"onnx": ".onnx", "torchscript": ".pt"}
OWN_NAMES = "tests.support.own_names"
GOAL = "own_encoder:GoalEncoder"
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "plain": ("ppo", "CartPole-v1", {"normalize_observations": True}),
    "squashed": ("a2c", "Pendulum-v1", {"action_distribution": "squashed", "activation": "relu"}),
    "bounds": ("ppo", "zoo/Unbounded-v0", {"hidden_sizes": ()}),
    "trees": ("ppo", "zoo/TreeObservations-v0", {"normalize_observations": True, "layer_norm": True}),
    "actions in a dict": ("impala", "zoo/DictActions-v0", {}),
    "actions in a tuple": ("ppo", "zoo/TupleActions-v0", {}),
    "switches": ("a2c", "zoo/Switches-v0", {"precision": "bf16"}),
    "table": ("ppo", "zoo/TableOfChoices-v0", {}),
    "masked tree": ("ppo", "zoo/MaskedTree-v0", {"normalize_observations": True}),
    "mask in infos": ("impala", "zoo/MaskInInfo-v0", {"core": "gru", "core_size": 6}),
    "sac": ("sac", "Pendulum-v1", {"hidden_sizes": (64, 64)}),
    "td3": ("td3", "Pendulum-v1", {"normalize_observations": True}),
    "crossq": ("crossq", "Pendulum-v1", {"hidden_sizes": (64, 64)}),
    "sac of choices": ("sac", "zoo/ChoicesFromFive-v0", {}),
    "dqn": ("dqn", "zoo/Masked-v0", {"normalize_observations": True}),
    "nature cnn": ("dqn", "offbeat/Pixels-v0", {"encoder": "nature_cnn"}),
    "resnet": ("ppo", "offbeat/Pixels-v0", {"encoder": "impala_resnet"}),
    "joined": ("ppo", "offbeat/PixelsGoal-v0", {"hidden_sizes": (64,), "core": "lstm", "core_size": 64}),
    "own encoder": ("impala", "offbeat/PixelsGoal-v0", {"encoder": GOAL}),
}
IN_ONNX = ["joined"]
MORE_IN_ONNX = ["plain", "masked tree", "trees", "td3", "actions in a dict", "mask in infos", "own encoder"]
"""The others would show nothing new of it: it takes two seconds a file."""


def loaded(algorithm: str, env_id: str, settings: dict[str, Any], env_config: EnvConfig = UNSET) -> LoadedPolicy:
    """A policy with random weights, which acts differently on different observations."""
    config = algorithm_entry(algorithm).config_class()
    spec = policy_of(config(**{"hidden_sizes": (8,), **settings}), preflight(env_id, env_config))
    policy, random = make_policy(spec), np.random.default_rng(1)
    vector = random_vector(spec, random)
    for view in published_layout(spec).views(vector).values():
        if view.ndim > 1:  # what goes through many layers keeps its size
            view[...] = random.normal(scale=1.4 / np.sqrt(view[0].size), size=view.shape)
    policy.load(vector)
    return LoadedPolicy(policy, Trained(env_id, algorithm, 12, 3, 4, env_config))


@pytest.fixture(autouse=True)
def _examples(monkeypatch):
    monkeypatch.syspath_prepend("examples")


# --- they act alike -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "made_as"),
    [*product(CASES, ["torchscript"]), *product(IN_ONNX, ["onnx"]), *thorough(*product(MORE_IN_ONNX, ["onnx"]))],
)
def test_an_exported_file_acts_as_the_policy_over_complete_episodes(case, made_as, tmp_path):
    algorithm, env_id, settings = CASES[case]
    policy = loaded(*CASES[case])
    exported = export_policy(policy, tmp_path / f"policy{FORMATS[made_as]}", made_as)
    if exported.was_bf16:
        policy = loaded(algorithm, env_id, {**settings, "precision": "fp32"})
    env = gym.make(env_id, disable_env_checker=True)
    act = FileActor(exported.file, env.action_space)
    assert (list(act.inputs), act.outputs) == ([p.name for p in exported.inputs], [p.name for p in exported.outputs])
    for seed in range(2):
        policy.reset()
        act.begin()
        ours, earned = episode(env, lambda seen, mask: policy(seen, action_mask=mask), seed)
        theirs, earned_too = episode(env, alone(env, act), seed)
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)
        assert earned_too == pytest.approx(earned, rel=1e-5, abs=1e-5)
    batches_agree(env, policy, act)


@pytest.mark.parametrize("made_as", ["torchscript", *thorough("onnx")])
def test_an_exported_file_takes_stacked_frames_with_the_oldest_first(made_as, tmp_path):
    policy = loaded("ppo", "offbeat/PixelsMotion-v0", {}, EnvConfig(frame_stack=3))
    exported = export_policy(policy, tmp_path / f"policy{FORMATS[made_as]}", made_as)
    assert [port.shape for port in exported.inputs] == [(3, 36, 36)]
    env = gym.make("offbeat/PixelsMotion-v0")
    file, frames = FileActor(exported.file, env.action_space), [env.reset(seed=1)[0]] * 3
    for _ in range(8):
        stack = np.stack(frames[-3:])[None]
        [action] = file(stack)
        assert action == policy(frames[-1])
        frames.append(env.step(action)[0])


@pytest.mark.parametrize("made_as", ["torchscript", *thorough("onnx")])
@pytest.mark.parametrize("core", [{}, {"core": "gru", "core_size": 8}], ids=["no core", "gru"])
def test_an_exported_file_takes_its_last_actions_and_the_last_reward(made_as, core, tmp_path):
    """Each output is the input of the next call; before the first one, a number below the first choice, and 0."""
    settings = EnvConfig(previous_action=True, previous_reward=True)
    policy = loaded("ppo", "zoo/DictActions-v0", core, settings)
    exported = export_policy(policy, tmp_path / f"policy{FORMATS[made_as]}", made_as)
    inputs = [(port.name, port.shape, port.dtype) for port in exported.inputs if port.name.startswith("previous")]
    assert inputs == [
        ("previous_action/aim", (2,), "float32"),
        ("previous_action/gear", (), "int64"),
        ("previous_action/tools/0", (2,), "int64"),
        ("previous_action/tools/1", (1, 2), "float32"),
        ("previous_reward", (), "float32"),
    ]
    env = gym.make("zoo/DictActions-v0", disable_env_checker=True)
    file = FileActor(exported.file, env.action_space)
    last: dict[str, Any] = {"aim": np.zeros((1, 2)), "gear": np.zeros(1, np.int64)}
    last |= {"tools/0": np.full((1, 2), -1), "tools/1": np.zeros((1, 1, 2))}
    observation, _ = env.reset(seed=1)
    reward = 0.0
    for _ in range(12):
        action = policy(observation, reward=reward)
        found = file(observation[None], previous={**last, "reward": np.array([reward])})
        flat: list[Any] = [gym.spaces.flatten(env.action_space, each) for each in (action, first_of(found))]
        np.testing.assert_allclose(flat[1], flat[0], rtol=1e-5, atol=1e-5)
        last = {"aim": found["aim"], "gear": found["gear"], "tools/0": found["tools"][0], "tools/1": found["tools"][1]}
        observation, reward, *_ = env.step(action)  # type: ignore[assignment]


def first_of(actions: Any) -> Any:
    """Return the action of the first env."""
    if isinstance(actions, dict):
        return {key: first_of(part) for key, part in actions.items()}
    return tuple(map(first_of, actions)) if isinstance(actions, tuple) else actions[0]


def batches_agree(env: gym.Env[Any, Any], policy: LoadedPolicy, act: FileActor) -> None:
    """Seven envs at once, two rows of time."""
    policy.reset()
    act.begin()
    each = [env.reset(seed=seed) for seed in range(7)]
    seen = stacked(env.observation_space, [observation for observation, _ in each])
    masks = np.stack([info["action_mask"] for _, info in each]) if "action_mask" in each[0][1] else None
    space = gym.vector.utils.batch_space(env.action_space, 7)
    for _ in range(2):
        ours, theirs = policy(seen, action_mask=masks), act(seen, masks)
        assert space.contains(theirs)
        flat: list[Any] = [gym.spaces.flatten(space, actions) for actions in (theirs, ours)]
        np.testing.assert_allclose(flat[0], flat[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("made_as", ["torchscript", *thorough("onnx")])
def test_an_exported_core_without_its_state_acts_differently(made_as, tmp_path):
    """Else nothing would have shown that a core is there."""
    policy = loaded("ppo", "offbeat/Recall-v0", {"core": "gru", "core_size": 8})
    act = FileActor(export_policy(policy, tmp_path / f"policy{FORMATS[made_as]}", made_as).file, gym.spaces.Discrete(4))
    rows = np.random.default_rng(0).random((20, 5, 6), np.float32)
    ours, kept = ([actor(row).tolist() for row in rows] for actor in (policy, act))
    assert kept == ours
    forgetful = []
    for row in rows:
        act.begin()
        forgetful.append(act(row).tolist())
    assert forgetful != ours


# --- what is in a file --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_onnx(tmp_path_factory) -> Exported:
    """An exported policy with a core, and a mask of allowed choices."""
    policy = loaded("ppo", "zoo/MaskInInfo-v0", {"core": "lstm", "core_size": 3})
    return export_policy(policy, tmp_path_factory.mktemp("onnx") / "policy.onnx", "onnx")


def test_an_onnx_export_is_one_file_with_metadata_and_without_local_paths(in_onnx):
    exported = in_onnx
    assert list(exported.file.parent.iterdir()) == [exported.file]
    model = onnx.load(exported.file)
    onnx.checker.check_model(model, full_check=True)
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert notes["offbeat.version"] == package.__version__
    assert (notes["offbeat.env"], notes["offbeat.algorithm"]) == ("zoo/MaskInInfo-v0", "ppo")
    assert (notes["offbeat.env_steps"], notes["offbeat.updates"]) == ("12", "4")
    assert json.loads(notes["offbeat.env_config"])["frame_stack"] is None
    assert {node.domain for node in model.graph.node} == {""}  # no operators but ONNX's own
    assert str(Path(package.__file__).parent).encode() not in exported.file.read_bytes()
    told = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert told == {
        "observation": ["N", 3],
        "action_mask": ["N", 5],
        "state": ["N", 6],
        "action": ["N", 2],
        "next_state": ["N", 6],
    }


@pytest.mark.parametrize("encoder", ["flat", "nature_cnn"])
def test_a_torchscript_file_has_no_private_operator_and_no_memory_format(encoder, tmp_path):
    """Layers are wide enough for oneDNN's operator."""
    policy = loaded("ppo", "offbeat/Pixels-v0", {"encoder": encoder, "hidden_sizes": (64, 64), "layer_norm": True})
    content = export_policy(policy, tmp_path / "policy.pt", "torchscript").file.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        graph = torch.jit.load(BytesIO(content)).inlined_graph
    operators = {node.kind() for node in graph.nodes()}
    assert "aten::linear" in operators
    assert not {kind for kind in operators if not kind.startswith(("aten::", "prim::"))}
    formats = {node.inputsAt(4) for node in graph.nodes() if node.kind() == "aten::to"}
    assert {value.toIValue() for value in formats} <= {None, CONTIGUOUS}


CONTIGUOUS = 0
"""Of torch's memory formats, as TorchScript numbers them; channels last is 2."""


def test_the_settings_of_an_exported_policys_env_are_json_in_the_file(tmp_path):
    settings = EnvConfig(
        kwargs=PlainTable({"sutton_barto_reward": True}), wrappers=("gymnasium.wrappers:NormalizeReward",)
    )
    exported = export_policy(loaded("ppo", "CartPole-v1", {}, settings), tmp_path / "policy.pt", "torchscript")
    notes = {"offbeat.json": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.load(exported.file, _extra_files=notes)
    found = json.loads(json.loads(notes["offbeat.json"])["offbeat.env_config"])
    assert found["kwargs"] == {"sutton_barto_reward": True}
    assert found["wrappers"] == ["gymnasium.wrappers:NormalizeReward"]


# --- what cannot be exported --------------------------------------------------------------------------------


class Deciding(nn.Module):
    """Does something else where it sees much: a trace keeps one of the two."""

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(observation.size, 4)

    def forward(self, observations: Any) -> Any:
        features = self.layer(observations)
        return features if float(observations.abs().sum()) < 30 else -features


class Counting(Deciding):
    """Asks how many rows there are in a way that fixes the number."""

    def forward(self, observations: Any) -> Any:
        return self.layer(observations).reshape(len(observations), 4)


class LookingUp(nn.Module):
    """Looks whole numbers up in a table that has no row for most of them."""

    def __init__(self, _observation: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 2)

    def forward(self, observations: Any) -> Any:
        return self.table(observations.long()).flatten(1)


@pytest.mark.usefixtures("own_encoders")
def test_an_encoder_that_looks_whole_numbers_up_in_a_table_is_exported(tmp_path):
    policy = loaded("ppo", "offbeat/Pixels-v0", {"encoder": "looking_up", "hidden_sizes": ()})
    exported = export_policy(policy, tmp_path / "policy.pt", "torchscript")
    assert exported.agreement.decisions == 68


@pytest.fixture
def own_encoders():
    with registries_kept():
        package.register_encoder("looking_up", LookingUp)
        package.register_encoder("deciding", Deciding)
        package.register_encoder("counting", Counting)
        yield


@pytest.mark.parametrize(
    ("encoder", "made_as", "words"),
    [
        ("deciding", "torchscript", r"does not act like the policy.* \d+ of 68 actions have other choices"),
        ("deciding", "onnx", r"exported: .*not have control flow.*GuardOn.* in forward return features if float\("),
        ("counting", "torchscript", r"does not run on 1 observations.*x.shape\[0\] as the batch size"),
        *thorough(("counting", "onnx", r"does not run on 1 observations.*x.shape\[0\] as the batch size")),
    ],
)
@pytest.mark.usefixtures("own_encoders")
def test_an_exported_file_that_disagrees_with_the_policy_is_deleted(encoder, made_as, words, tmp_path, monkeypatch):
    policy = loaded("ppo", "CartPole-v1", {"encoder": encoder, "hidden_sizes": ()})
    log = BufferingHandler(100)
    monkeypatch.setattr(logging.getLogger("torch.fx.experimental.symbolic_shapes"), "handlers", [log])
    with pytest.raises(RunFailed, match=words):
        export_policy(policy, tmp_path / "made/policy", made_as)
    assert not any(tmp_path.iterdir())
    assert not log.buffer


def test_a_network_without_an_encoder_that_cannot_be_exported_blames_no_encoder(tmp_path, monkeypatch):
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a package is too old")

    monkeypatch.setattr(torch.jit, "trace", broken)
    with pytest.raises(RunFailed, match=r"cannot be exported: the other --format may .*RuntimeError: a package is too"):
        export_policy(loaded("ppo", "CartPole-v1", {}), tmp_path / "policy", "torchscript")


def test_the_cause_of_an_error_of_an_encoder_names_the_encoder():
    ours = RunFailed("encoder own raised KeyError")
    ours.__cause__ = KeyError("scale")
    theirs = ValueError("torch")
    theirs.__cause__ = ours
    assert cause_of(theirs) == "RunFailed: encoder own raised KeyError"


def test_the_cause_of_an_error_has_no_colours():
    assert cause_of(ValueError("this is \x1b[96mstep 1/3\x1b[0m\n\nRefer to ...")) == "ValueError: this is step 1/3"


def test_a_file_that_appears_during_the_export_is_not_replaced(tmp_path, monkeypatch):
    def compare_and_write(*arguments: Any) -> Any:
        file.write_bytes(b"of another export")
        return compare(*arguments)

    file = tmp_path / "policy.pt"
    monkeypatch.setattr(policy_file, "compare", compare_and_write)
    with pytest.raises(ConfigError, match=r"policy\.pt exists: pass another file"):
        export_policy(loaded("ppo", "CartPole-v1", {}), file, "torchscript")
    assert file.read_bytes() == b"of another export"
    assert list(tmp_path.iterdir()) == [file]


# --- as typed -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A run of each algorithm, of a few updates."""
    folder: Path = tmp_path_factory.mktemp("runs")
    on_policy = {name: small_run(folder / name, algorithm=name, steps=128).path for name in ("a2c", "impala")}
    evaluated = small_run(folder / "ppo", steps=512, eval_every=256, eval_episodes=2).path
    replayed: dict[str, tuple[str, str, dict[str, Any]]] = {
        "sac": ("sac", "Pendulum-v1", {}),
        "choices": ("sac", "CartPole-v1", {}),
        "dqn": ("dqn", "CartPole-v1", {}),
    }
    return {
        **on_policy,
        "ppo": evaluated,
        **{
            name: small_sac(folder / name, env, algorithm=algorithm, steps=100, **settings).path
            for name, (algorithm, env, settings) in replayed.items()
        },
    }


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala", "sac", "choices", "dqn"])
def test_the_exported_policy_of_each_algorithm_earns_the_return_of_the_original(name, runs, tmp_path):
    file = tmp_path / "policy.pt"
    said = offbeat("export", runs[name], "--format", "torchscript", "--out", file)
    assert said.code == 0, said.err
    assert said.err == ""
    policy = package.load(runs[name])
    assert f"{file}: {policy.trained.algorithm} on {policy.trained.env} after {policy.trained.env_steps}" in said.out
    env = gym.make(policy.trained.env)
    ours, earned = episode(env, lambda seen, _: policy(seen), 3)
    theirs, earned_too = episode(env, alone(env, FileActor(file, env.action_space)), 3)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    assert earned_too == pytest.approx(earned, rel=1e-5)


def test_the_printed_code_after_an_export_runs(runs, monkeypatch):
    """The two lines, typed where an observation is at hand."""
    monkeypatch.chdir(runs["ppo"].parent)
    said = offbeat("export", "ppo", "--checkpoint", "best", "--format", "torchscript")
    assert said.code == 0, said.err
    assert said.err == ""
    assert "ppo/policy.pt: ppo on CartPole-v1" in said.out
    assert "in   observation  float32 [N, 4]" in said.out
    assert "out  action  int64 [N]" in said.out
    assert "compared with the policy on 68 observations: equal choices\n" in said.out
    lines = [line.strip() for line in said.out.partition("run it:\n")[2].splitlines()]
    observation = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    names: dict[str, Any] = {"torch": torch, "observation": observation}
    exec("\n".join(lines), names)
    assert names["action"].tolist() == package.load("ppo", "best")(observation).tolist()


def test_the_printed_code_for_onnx_runs(in_onnx):
    given = {"observation": np.zeros((9, 3), np.float32), "action_mask": np.ones((9, 5), bool)}
    names: dict[str, Any] = {"onnxruntime": onnxruntime, **given, "state": np.zeros((9, 6), np.float32)}
    exec("\n".join(_snippet(in_onnx)), names)
    assert (names["action"].shape, names["next_state"].shape) == ((9, 2), (9, 6))


def test_the_printed_code_has_a_variable_of_its_own_for_each_input(runs, tmp_path):
    exported = package.export(runs["a2c"], tmp_path / 'a "b".pt', format="torchscript")
    names = ("observation/a/x", "observation/b/x", "observation/class", "observation/a key", "previous_reward")
    ports = tuple(Port(name, (), "float32") for name in names)
    load, call = _snippet(replace(exported, inputs=ports))
    known: dict[str, Any] = {"torch": torch}
    exec(load, known)
    given = ["observation_a_x", "observation_b_x", "observation_class", "observation_a_key", "previous_reward"]
    assert call == f"action, = policy({', '.join(f'torch.from_numpy({name})' for name in given)})"


def test_the_python_export_function_writes_and_checks_a_file(runs, tmp_path):
    exported = package.export(runs["sac"], tmp_path / "a/b/policy.pt", format="torchscript", checkpoint="latest")
    assert exported.file.is_file()
    assert exported.agreement.decisions == 68
    assert 0 < exported.agreement.error <= 1e-5
    with pytest.raises(package.ConfigError, match=r"policy.pt exists: pass another"):
        package.export(runs["sac"], exported.file, format="torchscript")
    with pytest.raises(package.ConfigError, match=r"a/b is a folder: pass --out .*a/b/policy"):
        package.export(runs["sac"], tmp_path / "a/b")


@pytest.mark.parametrize(
    ("file", "named", "words"),
    [
        ("c", "onx", r"unknown format 'onx'. Did you mean 'onnx'\?"),
        ("c.onnx", "foo", "unknown format 'foo'"),
        ("c", 5, 'format is 5, but the name of a format is expected: pass format="onnx"'),
        ("c", ["onnx"], r"format is \['onnx'\], but the name of a format is expected"),
    ],
)
def test_a_format_that_does_not_exist_is_refused(file: str, named: Any, words: str, runs, tmp_path):
    with pytest.raises(package.ConfigError, match=words):
        package.export(runs["sac"], tmp_path / file, format=named)


def test_an_export_that_cannot_be_written_leaves_no_file(runs, tmp_path):
    with files_up_to(1000), pytest.raises(package.ConfigError, match=r"policy.pt cannot be written \(File too large\)"):
        package.export(runs["ppo"], tmp_path / "policy.pt", format="torchscript")
    assert not any(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_refused_before_the_conversion(runs, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(policy_file, "_convert", None)
    with pytest.raises(ConfigError, match=r"file/policy.onnx cannot be written.*Not a directory.*folder with --out"):
        package.export(runs["ppo"], tmp_path / "file/policy.onnx")


def test_without_the_onnx_packages_only_torchscript_can_be_exported(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    said = offbeat("export", runs["ppo"], "--out", tmp_path / "policy.onnx")
    assert said.code == 2
    assert 'onnx needs onnxscript, which is not installed here: run pip install "offbeat[export]"' in said.err
    assert not any(tmp_path.iterdir())
    assert offbeat("export", runs["ppo"], "--out", tmp_path / "policy.pt", "--format", "torchscript").code == 0


def test_a_bf16_policy_is_exported_in_fp32_with_a_message(tmp_path):
    path = small_run(tmp_path / "run", steps=64, precision="bf16").path
    said = offbeat("export", path, "--format", "torchscript")
    assert "equal choices; both in fp32, not in bf16" in said.out


def test_export_imports_the_modules_that_the_run_was_trained_with(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with registries_kept(OWN_NAMES):
        path = small_run(tmp_path / "run", steps=64, imports=(OWN_NAMES,), encoder="rows").path
    with registries_kept(OWN_NAMES):
        assert offbeat("export", path, "--format", "torchscript").code == 0


def test_a_policy_that_infers_its_task_is_refused(tmp_path: Path) -> None:
    loaded = LoadedPolicy(policy_for(ROBOT), Trained(ROBOT, "pearl", 0, 0, 0))
    with pytest.raises(ConfigError, match="infers its task between episodes"):
        export_policy(loaded, tmp_path / "policy.onnx", "onnx")
