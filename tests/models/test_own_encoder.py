from __future__ import annotations

import functools
import json
import os
import re
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.support.own_code import Sized
from tests.support.registries import registries_kept
from tests.support.runs import weights_of
from torch import nn

import offbeat
from offbeat.algorithms.ppo import PPOConfig
from offbeat.api.running.initial import _remedy
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.frozen_table import PlainTable
from offbeat.core.previous_inputs import previous_leaves
from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.models.actor_critic import ActorCritic
from offbeat.models.flat import FlatParameters
from offbeat.models.own_encoder import OwnEncoder
from offbeat.models.policy_network import Orthogonal, PolicyNetwork
from offbeat.models.published import parameter_shapes
from offbeat.models.spec_file import read_spec
from offbeat.models.torch_acting import TorchNetwork

VECTOR = Leaf("observation", (3,), "float32")
TREE = (Leaf("observation/image", (4, 4), "uint8"), Leaf("observation/inner/goal", (2,), "float32"))
CHOICES = ActionSpec("discrete", (), nvec=(2,))
ENV = EnvSpec("test", (VECTOR,), CHOICES, 2)
SIZED = "tests.support.own_code:Sized"
SMALL: dict[str, Any] = {
    "steps": 256,
    "envs_per_actor": 4,
    "unroll_length": 8,
    "minibatch_size": 32,
    "epochs": 2,
    "eval_every": 0,
    "checkpoint_every": 0,
}


@pytest.fixture(autouse=True)
def _kept():
    with registries_kept():
        yield


class Linear(nn.Module):
    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(observation.size, 5)

    def forward(self, observations):
        return self.layer(observations)


class Seeing(nn.Module):
    """Tells what it is given."""

    def __init__(self, observation):
        super().__init__()
        self.observation, self.weight = observation, nn.Parameter(torch.zeros(1))

    def forward(self, observations):
        self.seen = observations
        return observations["image"].flatten(1) * self.weight


def init(seed: int = 0) -> Orthogonal:
    return Orthogonal(torch.Generator().manual_seed(seed))


def encoder_of(leaves: tuple[Leaf, ...], name: str, seed: int = 0) -> Any:
    return OwnEncoder(leaves, name, init(seed))


def test_a_custom_encoder_receives_observations_under_the_keys_of_the_env():
    offbeat.register_encoder("seeing", Seeing)
    encoder = encoder_of(TREE, "seeing")
    assert list(encoder.module.observation) == ["image", "inner/goal"]
    image, goal = torch.ones(3, 4, 4, dtype=torch.uint8), torch.zeros(3, 2)
    features = encoder({"observation/image": image, "observation/inner/goal": goal})
    assert features.shape == (3, encoder.features) == (3, 16)
    assert encoder.module.seen["image"] is image
    assert encoder.module.seen["inner/goal"] is goal


def test_a_custom_encoder_with_parameters_of_another_dtype_is_refused():
    offbeat.register_encoder("double", lambda observation: Linear(observation).double())
    with pytest.raises(
        ConfigError, match=r"encoder double has parameters of torch\.float64.*pass dtype=torch\.float32"
    ):
        encoder_of((VECTOR,), "double")


class Lazy(Linear):
    """Makes its weights in the first call."""

    def __init__(self, observation):
        super().__init__(observation)
        self.layer = nn.LazyLinear(5)


@pytest.mark.parametrize("kind", [Linear, Lazy])
def test_a_custom_encoder_receives_a_single_observation_unwrapped_and_is_seeded(kind):
    offbeat.register_encoder("linear", kind)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, again, other = (encoder_of((VECTOR,), "linear", seed) for seed in (0, 0, 7))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.module.layer.weight, again.module.layer.weight)
    assert not torch.equal(first.module.layer.weight, other.module.layer.weight)
    x = torch.randn(6, 3)
    assert torch.equal(first({"observation": x}), first.module(x))


def test_policy_and_critic_share_a_custom_encoder_and_have_no_other_input():
    offbeat.register_encoder("linear", Linear)
    config = PPOConfig(encoder="linear")
    spec = config.policy_spec(EnvSpec("test", (VECTOR,), CHOICES, 2))
    assert (spec.encoded, spec.vectors, spec.hidden_sizes, spec.plain) == ((VECTOR,), (), (), False)
    assert config.shares_trunk(spec)
    network = ActorCritic(spec, shared=True, log_std_init=0.0, generator=torch.Generator().manual_seed(0))
    names = [name for name, _ in network.named_parameters()]
    assert names[:2] == ["policy_body.encoders.module.layer.weight", "policy_body.encoders.module.layer.bias"]
    assert [name for name, _ in parameter_shapes(spec)] == names[:4]


def test_an_encoder_that_was_edited_and_registered_again_has_its_new_shapes():
    def edited(units: int) -> type[nn.Module]:
        class Edited(Linear):
            def __init__(self, observation):
                super().__init__(observation)
                self.layer = nn.Linear(observation.size, units)

        return Edited

    def shapes_with(units: int) -> list[tuple[int, ...]]:
        offbeat.register_encoder("edited", edited(units))
        spec = PPOConfig(encoder="edited").policy_spec(EnvSpec("test", (VECTOR,), CHOICES, 2))
        return [shape for _, shape in parameter_shapes(spec)]

    assert shapes_with(8) == [(8, 3), (8,), (2, 8), (2,)]
    assert shapes_with(16) == [(16, 3), (16,), (2, 16), (2,)]


def test_a_custom_encoder_does_not_receive_the_previous_action_and_reward():
    offbeat.register_encoder("linear", Linear)
    previous = previous_leaves(CHOICES, action=True, reward=True)
    config = PPOConfig(encoder="linear")
    spec = config.policy_spec(EnvSpec("test", (VECTOR, *previous), CHOICES, 2))
    assert (spec.encoded, spec.vectors, spec.inputs) == ((VECTOR,), previous, sum(CHOICES.nvec) + 1 + 1)
    assert spec.hidden_sizes == PPOConfig().policy_spec(EnvSpec("test", (VECTOR,), CHOICES, 2)).hidden_sizes


class Rounded(Linear):
    def forward(self, observations):
        return super().forward(observations).bfloat16()


def test_features_of_another_precision_are_converted():
    offbeat.register_encoder("rounded", Rounded)
    spec = PPOConfig(encoder="rounded", hidden_sizes=(4,)).policy_spec(EnvSpec("test", (VECTOR,), CHOICES, 2))
    network = PolicyNetwork(spec, init(), head_gain=1.0)
    assert network(torch.zeros(2, 0), {"observation": torch.ones(2, 3)})[0].dtype == torch.float32


class Sharing(Linear):
    """Has a layer under two names, and two layers with one weight."""

    def __init__(self, observation):
        super().__init__(observation)
        self.first, self.square, self.again = self.layer, nn.Linear(5, 5), nn.Linear(5, 5)
        self.again.weight = self.square.weight

    def forward(self, observations):
        return self.again(self.square(self.first(observations)))


def test_actors_share_the_parameters_that_an_encoder_shares():
    offbeat.register_encoder("sharing", Sharing)
    spec = PPOConfig(encoder="sharing").policy_spec(EnvSpec("test", (VECTOR,), CHOICES, 2))
    network = PolicyNetwork(spec, init(), head_gain=1.0)
    values, observation = FlatParameters(network).values, torch.randn(4, 3)
    expected = network(torch.zeros(4, 0), {"observation": observation})[0].detach()
    outputs = TorchNetwork(spec, values.numpy()).forward(
        np.zeros((4, 0), np.float32), {"observation": observation.numpy()}, None
    )
    np.testing.assert_array_equal(outputs, expected.numpy())


class Stateful(nn.Module):
    def __init__(self, observation):
        super().__init__()
        self.norm = nn.BatchNorm1d(observation.size)

    def forward(self, observations):
        return self.norm(observations)


class Transforming(nn.Module):
    """An attention layer with torch's default probability of dropout."""

    def __init__(self, observation):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(observation.size, nhead=1, batch_first=True)

    def forward(self, observations):
        return self.layer(observations[:, None])[:, 0]


class RandomlyLeaking(Linear):
    def forward(self, observations):
        return nn.functional.rrelu(super().forward(observations), training=True)


class Flattening(Linear):
    def forward(self, observations):
        return super().forward(observations).flatten()


class Squeezing(Linear):
    def forward(self, observations):
        return super().forward(observations)[:, : 3 if len(observations) == 1 else 5]


class Pairing(Linear):
    def forward(self, observations):
        return super().forward(observations), None


class Rounding(Linear):
    def forward(self, observations):
        return super().forward(observations).long()


class TakesTwo(Linear):
    def forward(self, observations, mask):  # type: ignore[override]
        return super().forward(observations) * mask


class Unready(nn.Module):
    def __init__(self, observation):
        self.layer = nn.Linear(observation.size, 5)


class Failing(Linear):
    def forward(self, observations):
        return super().forward(observations[:, :2])


class Dividing(Linear):
    def forward(self, observations):
        return super().forward(observations / observations.norm())


class Scaling(Linear):
    """Changes its observations: without a copy, float() and flatten() return the same numbers."""

    def forward(self, observations):
        return super().forward(observations.float().flatten(1).mul_(2))


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        (Scaling, r"changes its observations in place.*x \* 2 instead of x\.mul_\(2\)"),
        (Dividing, "returned NaN or infinite features for an observation of zeros"),
        (Transforming, "draws random numbers.* give dropout the probability 0"),
        (RandomlyLeaking, "draws random numbers"),
        (Stateful, r"has buffers \(norm.running_mean.*LayerNorm.*requires_grad=False"),
        (
            Flattening,
            r"returned a tensor of shape \[5\] for an observation of zeros, but features \[1, F\] are expected",
        ),
        (Squeezing, r"returned 3 and 5 features for one and for two observations, but the same number is expected"),
        (Pairing, r"returned a tuple of 2 for an observation of zeros, but features \[1, F\] are expected"),
        (Rounding, r"returned features of torch.int64 for an observation of zeros, which have no gradient"),
        (
            Failing,
            r"raised RuntimeError for M = 1 observations .*gets observation \[M, 3\] float32, and returns features",
        ),
        (TakesTwo, r"raised TypeError .*missing 1 required positional argument: 'mask'\). Its forward\(observations\)"),
        (Unready, r"cannot be made \(AttributeError: .*\): it is called with .*, observation \[3\] float32"),
        (lambda _: 3, r"made 3, but a torch.nn.Module is expected"),
    ],
)
def test_an_invalid_encoder_is_refused_with_a_message(encoder, words):
    offbeat.register_encoder("mine", encoder)
    with pytest.raises(ConfigError, match=words):
        encoder_of((VECTOR,), "mine")


def test_an_encoder_that_raises_during_a_run_is_named_with_the_traceback_of_its_own_code():
    class FailsLater(Linear):
        def forward(self, observations):
            if observations.any():
                raise KeyError("goal")
            return super().forward(observations)

    offbeat.register_encoder("mine", FailsLater)
    encoder = encoder_of((VECTOR,), "mine")
    with pytest.raises(RunFailed, match=r"encoder mine raised KeyError for M = 4 observations \('goal'\)") as failed:
        encoder({"observation": torch.ones(4, 3)})
    (note,) = failed.value.__notes__
    assert note.splitlines()[1].strip().startswith(f'File "{__file__}"')


def test_the_message_about_an_encoder_names_each_part_of_a_dict():
    offbeat.register_encoder("mine", Linear)
    with pytest.raises(
        ConfigError, match=r"description of the observation, a dict of image \[4, 4\] uint8, inner/goal"
    ):
        encoder_of(TREE, "mine")


def test_an_unknown_encoder_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"'nature_cn'. Did you mean 'nature_cnn'\?"):
        PPOConfig(encoder="nature_cn").policy_spec(EnvSpec("test", (VECTOR,), CHOICES, 2))
    with pytest.raises(ConfigError, match=r"that offbeat includes"):
        offbeat.register_encoder("nature_cnn", Linear)


def test_the_example_encoder_trains_with_the_same_bits_in_serial_and_processes_and_resumes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("examples")
    monkeypatch.setenv("PYTHONPATH", "examples", prepend=os.pathsep)
    encoder = import_module("own_encoder").GoalEncoder
    settings = {**SMALL, "encoder": "own_encoder:GoalEncoder", "lag": "exact", "max_lag": 1}
    settings["encoder_kwargs"] = {"units": 6}
    runs = [
        offbeat.train("ppo", "offbeat/PixelsGoal-v0", run_dir=tmp_path / runtime, runtime=runtime, **given)
        for runtime, given in (("serial", settings), ("processes", {**settings, "encoder": encoder}))
    ]
    assert weights_of(runs[0].path) == weights_of(runs[1].path)
    stopped = offbeat.train("ppo", "offbeat/PixelsGoal-v0", run_dir=tmp_path / "stopped", stop_at=100, **settings)
    assert weights_of(offbeat.resume(stopped.path).path) == weights_of(runs[0].path)
    observation = {"image": np.zeros((36, 36), np.uint8), "goal": np.ones(1, np.float32)}
    assert offbeat.load(stopped.path)(observation) in (0, 1)
    weights = load_file(runs[0].path / "checkpoints/latest/weights.safetensors")
    assert weights["policy_body.encoders.module.goal.weight"].shape == (6, 1)


# --- arguments ----------------------------------------------------------------------------------------------


def test_an_encoder_gets_its_arguments_as_plain_lists_and_dicts():
    seen = []

    def sized(observation, units, *, options=None):
        seen.append((units, options))
        module = Linear(observation)
        module.layer = nn.Linear(observation.size, units)
        return module

    offbeat.register_encoder("sized", sized)
    config = PPOConfig(encoder="sized", encoder_kwargs=PlainTable({"units": 4, "options": {"layers": [1, 2]}}))
    spec = config.policy_spec(ENV)
    assert dict(parameter_shapes(spec))["policy_body.encoders.module.layer.weight"] == (4, 3)
    assert seen == [(4, {"layers": [1, 2]})] * len(seen) != []
    again = read_spec(json.loads(json.dumps(spec.to_json())))
    assert (again, hash(again)) == (spec, hash(spec))


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({}, r"encoder sized needs the argument units: pass --set encoder_kwargs.units=VALUE"),
        ({"unit": 4}, r"encoder sized has no argument 'unit'. Did you mean 'units'\? Its arguments are units, bias"),
        ({"units": 4, "observation": 4}, r"encoder sized has no argument 'observation'. .*arguments are units, bias"),
    ],
)
def test_a_missing_and_an_unknown_argument_of_an_encoder_are_refused_before_it_is_made(kwargs, says):
    def sized(observation, units, *, bias=True):
        raise AssertionError((observation, units, bias))

    offbeat.register_encoder("sized", sized)
    with pytest.raises(ConfigError, match=says):
        PPOConfig(encoder="sized", encoder_kwargs=PlainTable(kwargs)).policy_spec(ENV)


def test_an_encoder_that_accepts_any_argument_gets_all():
    def sized(*args, **kwargs):
        return Sized(*args, **kwargs)

    offbeat.register_encoder("any", sized)
    spec = PPOConfig(encoder="any", encoder_kwargs=PlainTable({"units": 4})).policy_spec(ENV)
    assert dict(parameter_shapes(spec))["policy_body.encoders.module.layers.0.weight"] == (4, 3)


def test_an_encoder_needs_the_arguments_of_its_decorator_and_not_those_of_the_function_below_it():
    def sized(leaf: Any, units: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(leaf.size, units))

    @functools.wraps(sized)
    def of_eight_units(leaf: Any) -> nn.Module:
        return sized(leaf, 8)

    offbeat.register_encoder("of_eight_units", of_eight_units)
    assert PPOConfig(encoder="of_eight_units").policy_spec(ENV).encoder == "of_eight_units"
    with pytest.raises(ConfigError, match="of_eight_units has no argument 'units'"):
        PPOConfig(encoder="of_eight_units", encoder_kwargs=PlainTable({"units": 4})).policy_spec(ENV)


def test_a_value_that_an_encoder_refuses_is_named():
    with pytest.raises(ConfigError, match=r"Sized cannot be made \(TypeError: .* and with {'units': 'many'}"):
        OwnEncoder((VECTOR,), SIZED, init(), {"units": "many"})


def test_a_saved_policy_makes_its_encoder_with_the_same_arguments(tmp_path):
    settings = {**SMALL, "normalize_observations": False, "encoder": SIZED}
    settings["encoder_kwargs"] = {"units": 6, "layers": [4]}
    run = offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "run", **settings)
    policy = offbeat.load(run.path, encoder=Sized)
    assert policy(np.zeros(4, np.float32)) in (0, 1)
    assert offbeat.evaluate(run, episodes=1).episodes == 1
    assert offbeat.export(run.path, format="torchscript").agreement.decisions > 0
    with pytest.raises(ConfigError, match=r"cannot be made .* and with {'units': 6, 'layers': \[4\]}"):
        offbeat.load(run.path, encoder=Linear)
    other = {**settings, "encoder_kwargs": {"units": 6, "layers": [4], "bias": False}}
    with pytest.raises(ConfigError, match=r"encoder_kwargs is {units = 6, .* and {.*bias = false} now.* --set enc"):
        offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "other", init_from=run.path, **other)
    offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "same", init_from=run.path, **settings)


@pytest.mark.parametrize(
    ("saved", "now", "says"),
    [
        ({"units": 6}, {"units": 6, "bias": False}, "encoder_kwargs.units=6 and leave encoder_kwargs.bias out"),
        ({"units": 6, "layers": [4, 4]}, {"units": 6}, "encoder_kwargs.units=6 'encoder_kwargs.layers=[4, 4]'"),
    ],
)
def test_the_remedy_for_weights_of_other_arguments_of_an_encoder_gives_the_same_arguments(saved, now, says, tmp_path):
    settings: dict[str, Any] = {**SMALL, "steps": 64, "encoder": SIZED}
    first = offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "a", encoder_kwargs=saved, **settings)
    with pytest.raises(ConfigError, match=f": pass --set {re.escape(says)}$"):
        offbeat.train("ppo", "CartPole-v1", init_from=first.path, encoder_kwargs=now, **settings)


def test_the_remedy_for_the_weights_of_a_policy_has_the_whole_table_of_arguments():
    saved: dict[str, Any] = {"encoder_kwargs": {}}
    config = resolve("ppo", "CartPole-v1", flags={"policies": {"a": {"agents": "*"}}})
    assert _remedy("a", config, saved) == "write encoder_kwargs = {} in the settings of [policies.a]"
    config = resolve("ppo", "CartPole-v1", flags={"encoder": SIZED, "encoder_kwargs": {"units": 3}})
    assert _remedy("default", config, saved) == "leave encoder_kwargs.units out"


def test_a_policy_file_with_arguments_for_an_included_encoder_is_refused():
    spec = PPOConfig(encoder="flat").policy_spec(ENV)
    with pytest.raises(ConfigError, match="encoder is flat, which has no encoder_kwargs"):
        read_spec({**spec.to_json(), "encoder_kwargs": {"units": 4}})
