"""What holds of SAC, TD3, CrossQ and DQN alike. What is only theirs is in a file for each."""

from __future__ import annotations

from dataclasses import make_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference import dqn, sac
from tests.reference.crossq import new_crossq
from tests.reference.sac import BOUNDED, by_autograd, random_samples
from tests.reference.td3 import new_td3
from tests.support.models import ACTIONS, OBSERVATIONS, leaves
from tests.support.replay_updates import (
    prepared,
    published,
    require_same_actions_from_a_checkpoint,
    require_same_update_from_weights_and_state,
)

from offbeat.algorithms.base import Batch, Minibatch
from offbeat.algorithms.crossq_config import CrossQConfig
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.errors import ConfigError
from offbeat.core.fields import build
from offbeat.core.seeding import stream
from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.workers.updates import UpdateMetrics, Updates

LAYERS: dict[str, Any] = {"hidden_sizes": (6, 5), "learning_rate": 1e-2, "adam_eps": 1e-3}
SMALL: dict[str, Any] = {
    "sac": SACConfig(**LAYERS, ema_rate=0.1),
    "td3": TD3Config(**LAYERS, ema_rate=0.1),
    "crossq": CrossQConfig(**LAYERS),
    "dqn": DQNConfig(**LAYERS, ema_rate=0.1),
}
NEW: dict[str, Any] = {
    "sac": sac.new_sac,
    "td3": new_td3,
    "crossq": new_crossq,
    "dqn": lambda _action, config, **where: dqn.new_dqn(config, **where),
}
NORMALIZED, FIXED = {"normalize_observations": True}, {"temperature": 0.1}


def new(name: str, action: str, settings: dict[str, Any] | None = None, **where: Any) -> Any:
    return NEW[name](action, replace(SMALL[name], **(settings or {})), **where)


def perturbed(name: str, action: str, *, autograd: bool = False, **settings: Any) -> Any:
    """Return an algorithm whose ema networks differ from its networks, perhaps without the fast path."""
    algorithm = new(name, action, settings)
    (dqn if name == "dqn" else sac).perturb(algorithm, 0.3)
    return by_autograd(algorithm) if autograd else algorithm


# --- the update ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "action", "settings"),
    [
        *(("sac", action, settings) for action in ("discrete", "box") for settings in ({}, FIXED)),
        ("td3", "box", {}),
        ("crossq", "box", {}),
    ],
)
def test_each_stage_computes_gradients_of_its_own_parameter_group_alone(name, action, settings):
    algorithm = perturbed(name, action, **settings)
    minibatch = prepared(algorithm, 8, 0)
    for stage in algorithm.stages:
        for group in algorithm.groups.values():
            group.parameters.gradients.fill_(7.0)
        algorithm.groups[stage.group].parameters.gradients.zero_()
        stage.loss(minibatch).loss.backward()
        for other, group in algorithm.groups.items():
            gradients = group.parameters.gradients
            is_right = gradients.abs().max() > 0 if other == stage.group else (gradients == 7).all()
            assert is_right, f"{stage.name} gave gradients to {other}"


EACH_WAY = pytest.mark.parametrize(
    ("name", "action", "autograd"),
    [
        ("sac", "discrete", True),
        ("sac", "box", True),
        ("sac", "box", False),
        ("td3", "box", True),
        ("td3", "box", False),
    ],
)


@EACH_WAY
def test_priorities_are_the_td_errors_before_the_update(name, action, autograd):
    algorithm = perturbed(name, action, autograd=autograd, prioritized=True)
    minibatch = prepared(algorithm, 8, 0, weighted=True)
    with torch.no_grad():
        targets = algorithm.targets(minibatch)
        expected = (algorithm.values(minibatch) - targets).abs().mean(0)
    Updates(algorithm).apply(0, minibatch, algorithm.start(0.0), UpdateMetrics())
    np.testing.assert_allclose(algorithm.priorities(minibatch), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize(("name", "action", "autograd"), [*EACH_WAY.args[1], ("dqn", "discrete", False)])
def test_targets_bootstrap_after_a_truncation_but_not_after_a_termination(name, action, autograd):
    algorithm = perturbed(name, action, autograd=autograd, prioritized=True)
    samples = random_samples(algorithm.spec, 6, 0, weighted=True)
    terminated = torch.tensor([True, False] * 3)
    samples["discount"] = torch.where(terminated, 0.0, 0.9)

    def errors() -> np.ndarray:
        minibatch = algorithm.minibatch(samples, stream(0, "test"))
        result = (algorithm.stages[0].gradients or algorithm.stages[0].loss)(minibatch)
        found: np.ndarray = algorithm.priorities_of(result.outputs["errors"], minibatch).copy()
        return found

    before = errors()
    samples["next/observation"] = samples["next/observation"] + 1
    np.testing.assert_array_equal(errors() != before, ~terminated.numpy())
    samples["discount"] = samples["discount"] * 0.5
    np.testing.assert_array_equal(errors()[terminated.numpy()], before[terminated.numpy()])


LEARNS: dict[str, dict[str, Any]] = {
    "sac": {"learning_rate": 3e-3, "temperature": 0.02},
    "td3": {"policy_learning_rate": 1e-3},
    "crossq": {"learning_rate": 3e-3, "policy_delay": 1},
    "dqn": {},
}


@pytest.mark.parametrize(
    ("name", "action"), [("sac", "discrete"), ("sac", "box"), ("td3", "box"), ("crossq", "box"), ("dqn", "discrete")]
)
def test_the_rewarded_action_is_learned(name, action):
    """One state, one step: choice 2 pays, others nothing; in the box, nearness to (0.5, -0.5) pays."""
    algorithm = new(name, action, {"hidden_sizes": (32, 32), "adam_eps": 1e-8, **LEARNS[name]})
    updates, best, size = Updates(algorithm), torch.tensor([0.5, -0.5]), 4 if name == "crossq" else 1
    for number in range(100 if action == "discrete" else 300):
        samples = random_samples(algorithm.spec, 64, number)
        for leaf in ("observation", "next/observation"):
            samples[leaf] = torch.ones_like(samples[leaf])
        acted = samples["action"]
        paid = (acted == 2).float() if action == "discrete" else -(acted - best).square().sum(1)
        samples["discount"], samples["reward"] = torch.zeros(64), size * paid
        minibatch = algorithm.minibatch(samples, stream(number, "test"))
        updates.apply(number, minibatch, algorithm.start(0.0), UpdateMetrics())
    greedy = published(algorithm).greedy({"observation": np.ones((1, 3), np.float32)})[0]
    np.testing.assert_allclose(greedy, 2 if action == "discrete" else best, atol=0.2 if name == "crossq" else 0.1)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        *((name, {"prioritized": given}, True) for name in ("td3", "crossq") for given in (False, True)),
        *((name, {"core": "gru", "core_size": 4}, False) for name in ("td3", "crossq")),
        ("td3", {"layer_norm": True}, True),
    ],
)
def test_the_fast_path_is_used_without_a_core_only(name, settings, expected):
    assert {stage.gradients is not None for stage in new(name, "box", settings).stages} == {expected}


# --- what a minibatch has -----------------------------------------------------------------------------------

PIXELS = (Leaf("observation", (40, 40, 3), "uint8"),)


@pytest.mark.parametrize("name", ["sac", "dqn"])
def test_a_minibatch_has_the_masks_of_the_present_and_of_the_next_observation(name):
    samples, minibatch = _sampled_and_prepared(name, leaves("masked", ACTIONS["discrete"]))
    assert torch.equal(minibatch["mask"], samples["action_mask"])
    assert torch.equal(minibatch["next_mask"], samples["next/action_mask"])


@pytest.mark.parametrize("name", ["sac", "dqn"])
def test_a_minibatch_has_the_images_of_the_present_and_of_the_next_observation(name):
    samples, minibatch = _sampled_and_prepared(name, PIXELS)
    assert torch.equal(minibatch["observation/observation"], samples["observation"])
    assert torch.equal(minibatch["next_observation/observation"], samples["next/observation"])


def _sampled_and_prepared(name: str, observation: tuple[Leaf, ...]) -> tuple[Batch, Minibatch]:
    """Return random transitions, and the minibatch that an algorithm makes of them."""
    config = SMALL[name]
    spec = config.policy_spec(EnvSpec("Test-v0", observation, ACTIONS["discrete"], 4))
    samples = random_samples(spec, 6, 0)
    return samples, {"sac": SAC, "dqn": DQN}[name](config, spec, seed=0).minibatch(samples, stream(0, "test"))


# --- what is published and kept -----------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("name", "action"),
    [
        *(("sac", action) for action in BOUNDED),
        *((n, a) for n in ("td3", "crossq") for a in ("box", "matrix")),
        ("dqn", "discrete"),
    ],
)
def test_a_policy_loaded_from_a_checkpoint_acts_as_the_published_one(name, action, normalize):
    require_same_actions_from_a_checkpoint(new(name, action, {"normalize_observations": normalize}, observation="dict"))


@pytest.mark.parametrize(
    ("name", "action", "settings"),
    [
        *(("sac", action, settings) for action in ("discrete", "box") for settings in (NORMALIZED, FIXED)),
        ("td3", "box", NORMALIZED),
        ("crossq", "box", NORMALIZED),
        ("dqn", "discrete", {**NORMALIZED, "ema_every": 2}),
    ],
)
def test_the_next_update_depends_on_weights_and_state_alone(name, action, settings):
    require_same_update_from_weights_and_state(lambda seed: new(name, action, settings, seed=seed))


@pytest.mark.parametrize("name", SMALL)
def test_the_initial_weights_depend_on_the_seed_alone_and_ema_networks_start_as_copies(name):
    same, again, other = (new(name, "box", seed=seed).weights() for seed in (1, 1, 2))
    assert all(np.array_equal(array, again[key]) for key, array in same.items())
    assert not np.array_equal(same["policy_head.weight"], other["policy_head.weight"])
    slow = [key for key in same if key.startswith("ema_")]
    learned = {"sac": "critics", "td3": ("critics", "policy"), "crossq": (), "dqn": "policy"}[name]
    assert {key.removeprefix("ema_") for key in slow} == {key for key in same if key.startswith(learned)}
    assert all(np.array_equal(same[key], same[key.removeprefix("ema_")]) for key in slow)


# --- hidden layers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "action", "layers"),
    [
        (SACConfig(), "box", (256, 256)),
        (TD3Config(), "box", (256, 256)),
        (CrossQConfig(), "box", (256, 256)),
        (SACConfig(), "discrete", ()),
        (DQNConfig(), "discrete", ()),
    ],
)
def test_hidden_layers_follow_an_encoder_by_default_only_where_critics_join_the_action(config, action, layers):
    assert config.policy_spec(EnvSpec("Test-v0", PIXELS, BOUNDED[action], 4)).hidden_sizes == layers


# --- what is refused ----------------------------------------------------------------------------------------

UNBOUNDED = ActionSpec("box", (2,), low=(-1.0, -np.inf), high=(1.0, 1.0))
FLAGS = "--env-kwargs size=8"


@pytest.mark.parametrize(
    ("name", "action", "words"),
    [
        ("sac", ACTIONS["multidiscrete"], r"MultiDiscrete or MultiBinary actions of \[2, 4, 3\].*`offbeat train ppo"),
        ("sac", ACTIONS["tree"], r"Dict or Tuple actions of \[3, 2, 4, 3, 3\] choices and 2 numbers.*`offbeat"),
        ("sac", UNBOUNDED, r"from \[-1.0, -inf\] to \[1.0, 1.0\].*finite"),
        ("td3", ACTIONS["discrete"], "Discrete actions, but TD3 expects a bounded box: run `offbeat train dqn Test-v0"),
        ("td3", ACTIONS["multidiscrete"], "MultiDiscrete or MultiBinary actions.*`offbeat train ppo Test-v0"),
        ("td3", ACTIONS["tree"], "Dict or Tuple actions.*`offbeat train ppo Test-v0"),
        ("td3", UNBOUNDED, r"from \[-1.0, -inf\] to \[1.0, 1.0\], but TD3 expects.*finite"),
        ("crossq", ACTIONS["discrete"], "Discrete actions, but CrossQ expects a bounded box: run `offbeat train dqn"),
        ("crossq", UNBOUNDED, r"from \[-1.0, -inf\] to \[1.0, 1.0\], but CrossQ expects.*finite"),
        ("dqn", ACTIONS["box"], f"only one Discrete action, .* Box actions: run `offbeat train sac Test-v0 {FLAGS}`"),
        ("dqn", UNBOUNDED, f"Box actions: run `offbeat train ppo Test-v0 {FLAGS}`"),
        ("dqn", ACTIONS["multidiscrete"], f"or MultiBinary actions: run `offbeat train ppo Test-v0 {FLAGS}`"),
    ],
)
def test_unsupported_actions_are_refused(name, action, words):
    with pytest.raises(ConfigError, match=words):
        SMALL[name].policy_spec(EnvSpec("Test-v0", OBSERVATIONS["vector"], action, 4, flags=FLAGS))


@pytest.mark.parametrize("name", ["sac", "td3", "crossq"])
def test_critics_that_would_be_linear_in_the_action_are_refused(name):
    with pytest.raises(ConfigError, match=r"linear in the action.*: pass --set hidden_sizes=256,256"):
        new(name, "box", {"hidden_sizes": ()})


@pytest.mark.parametrize(("policy", "flags"), [("default", ""), ("agent_0", " --policies FILE.toml")])
def test_the_command_for_another_algorithm_has_the_policies_of_a_world(policy, flags):
    spec = EnvSpec("my:World", OBSERVATIONS["vector"], ACTIONS["multidiscrete"], 4, agents=("agent_0",), policy=policy)
    with pytest.raises(ConfigError, match=f"run `offbeat train ppo my:World{flags}`"):
        SMALL["sac"].policy_spec(spec)


@pytest.mark.parametrize("config", [TD3Config, CrossQConfig, SACConfig])
def test_a_message_has_the_title_of_the_users_own_settings(config):
    own = type("OwnConfig", (config,), {"title": "Mine"})
    with pytest.raises(ConfigError, match="but Mine expects"):
        own().policy_spec(EnvSpec("Test-v0", OBSERVATIONS["vector"], UNBOUNDED, 4))


@pytest.mark.parametrize(
    ("base", "key", "default", "given"),
    [
        (DQNConfig, "priority_exponent", 0.5, {}),
        (DQNConfig, "core_size", 256, {}),
        (SACConfig, "initial_temperature", 0.1, {"temperature": 0.2}),
    ],
)
def test_own_settings_may_have_another_default_of_a_setting_without_effect(base, key, default, given):
    own = make_dataclass("OwnConfig", [(key, type(default), default)], bases=(base,), frozen=True)
    own(**given).policy_spec(EnvSpec("Test-v0", OBSERVATIONS["vector"], ACTIONS["discrete"], 4))


OUT_OF_BOUNDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "sac": {
        "critics": (0,), "policy_delay": (0,), "ema_rate": (0, 1.5), "temperature": (-0.1,),
        "initial_temperature": (0,), "max_grad_norm": (0,), "hidden_sizes": ("64,0",), "policy_learning_rate": (0,),
    },
    "td3": {
        "exploration_noise": (-0.1,), "target_policy_noise": (-1,), "target_noise_clip": (-1,), "policy_delay": (0,)
    },
    "dqn": {"ema_rate": (0, 1.5), "ema_every": (0,), "final_epsilon": (1.1,), "exploration_fraction": (-1,)},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [(name, key, value) for name, keys in OUT_OF_BOUNDS.items() for key, values in keys.items() for value in values],
)
def test_settings_out_of_bounds_are_refused(name, key, value):
    with pytest.raises(ConfigError, match=key):
        build(type(SMALL[name]), {key: value}, f"[{name}]")
