"""What is compared before a file is written: each thing that a file could get wrong shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.models import policy_spec, policy_specs, random_vector
from tests.support.thorough import examples

from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.core.errors import RunFailed
from offbeat.core.types import ActionSpec, Array, Tree
from offbeat.exporting.agreement import TOLERANCE, compare
from offbeat.exporting.exported_policy import ExportedPolicy
from offbeat.exporting.formats import Runner
from offbeat.exporting.observations import SPREAD, sample_observations
from offbeat.exporting.policy_file import _ports
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec

SOFT = replace(policy_spec("box", normalize=True), distribution="tanh_gaussian")
VALUES = replace(policy_spec("discrete", observation="masked"), distribution="epsilon_greedy")
GRU = replace(policy_spec("discrete", observation="masked", normalize=True), core="gru", core_size=6)
LSTM = replace(policy_spec("tree", observation="masked choices"), core="lstm", core_size=5, layer_norm=True)


def loaded(spec: PolicySpec, seed: int = 0) -> LoadedPolicy:
    policy = make_policy(spec)
    policy.load(random_vector(spec, np.random.default_rng(seed)))
    return LoadedPolicy(policy, Trained("test", "ppo", 0, 0, 0))


def runner(policy: LoadedPolicy, change: Callable[[ExportedPolicy], object] = lambda _: None) -> Runner:
    """What would be written, run as it is in torch, with a change."""
    network = ExportedPolicy(policy.acting_policy).eval()
    names = [port.name for port in _ports(policy.acting_policy.spec).outputs]
    change(network)

    @torch.inference_mode()
    def run(inputs: Tree) -> Tree:
        outputs = network(*map(torch.from_numpy, inputs.values()))
        return {name: part.numpy() for name, part in zip(names, outputs, strict=True)}

    return run


@examples(40)
@given(spec=policy_specs() | st.sampled_from([SOFT, VALUES, GRU, LSTM]), seed=st.integers(0, 10))
def test_the_torch_policy_agrees_with_the_numpy_policy(spec, seed):
    policy = loaded(spec, seed)
    agreement = compare(policy, runner(policy))
    assert agreement.decisions == (340 if spec.recurrent else 68)


def test_rounding_of_large_outputs_is_no_difference_of_the_clipped_actions():
    spec = policy_spec("box", observation="dict", hidden_sizes=(17,), activation="relu", squashed=False)
    policy = loaded(spec, seed=4)
    agreement = compare(policy, runner(policy))
    assert agreement.error <= TOLERANCE


WIDE = ActionSpec("box", (2,), low=(-1e6, -1.0), high=(1e6, 1.0))


@pytest.mark.parametrize("distribution", ["gaussian", "squashed", "tanh_gaussian"])
def test_rounding_of_numbers_with_large_bounds_is_no_difference(distribution):
    policy = loaded(replace(policy_spec("box"), action=WIDE, distribution=distribution))
    compare(policy, runner(policy))


def test_a_difference_of_a_small_number_beside_a_large_one_is_refused():
    policy = loaded(replace(policy_spec("box"), action=WIDE))
    wrong = np.array([0, 1e-3], np.float32)
    with pytest.raises(RunFailed, match="does not act like the policy"):
        compare(policy, answering(policy, lambda _, outputs: {"action": outputs["action"] + wrong}))


def test_numbers_stay_within_bounds_of_float64_that_float32_rounds():
    action = ActionSpec("box", (2,), low=(-0.1, -0.1), high=(0.1, 0.1), env_dtype="float64")
    policy = loaded(replace(policy_spec("box"), action=action))
    policy.acting_policy.vector *= 10
    inputs = sample_observations(policy.acting_policy, 50, np.random.default_rng(0))
    [numbers] = runner(policy)(inputs).values()
    assert np.abs(numbers).max() == 0.1


def test_numbers_of_float64_far_from_0_are_those_of_the_policy():
    action = ActionSpec("box", (2,), low=(1e9, 1e9), high=(1e9 + 1, 1e9 + 1), env_dtype="float64")
    policy = loaded(replace(policy_spec("box"), action=action))
    inputs = sample_observations(policy.acting_policy, 50, np.random.default_rng(0))
    [numbers] = runner(policy)(inputs).values()
    assert len(np.unique(numbers)) > 10
    np.testing.assert_allclose(
        numbers, policy.acting_policy.to_env(policy.acting_policy.greedy(inputs)), rtol=0, atol=1e-6
    )


def answering(policy: LoadedPolicy, how: Callable[[Tree, Tree], Tree]) -> Runner:
    """A file that is right, but for what is done to its inputs or outputs."""
    right = runner(policy)
    return lambda inputs: how(inputs, right(inputs))


def unnormalized(network: Any) -> None:
    network.normalizer = None


def unclipped(network: Any) -> None:
    network.normalizer.forward = lambda x: (x - network.normalizer.mean) * network.normalizer.scale


def unmasked(network: Any) -> None:
    whole = network.action.forward
    network.action.forward = lambda parameters, _mask: whole(parameters, None)


def unscaled(network: Any) -> None:
    network.action.numbers.scales = False


def unsquashed(network: Any) -> None:
    network.action._spec = replace(network.action._spec, distribution="gaussian")


def other_weights(network: Any) -> None:
    network.network.policy_head.bias[0] += 0.01


SQUASHED = replace(policy_spec("box", squashed=True), action=replace(SOFT.action, low=(-2.0, 0.0), high=(1.0, 5.0)))


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        (GRU, unnormalized),
        (replace(SOFT, hidden_sizes=()), unclipped),
        (VALUES, unmasked),
        (LSTM, unmasked),
        (SQUASHED, unscaled),
        (SOFT, unsquashed),
        (SQUASHED, other_weights),
    ],
)
def test_an_exported_network_without_one_of_its_parts_is_refused(spec, change):
    policy = loaded(spec)
    compare(policy, runner(policy))
    with pytest.raises(RunFailed, match=r"does not act like the policy, and is not saved: \d+ of \d+ actions"):
        compare(policy, runner(policy, change))


def without_state(inputs: Tree, outputs: Tree) -> Tree:  # noqa: ARG001
    return {**outputs, "next_state": np.zeros_like(outputs["next_state"])}


def with_wrong_actions(inputs: Tree, outputs: Tree) -> Tree:  # noqa: ARG001
    return {**outputs, "action": outputs["action"] - 2}


def with_choices_that_do_not_exist(inputs: Tree, outputs: Tree) -> Tree:  # noqa: ARG001
    return {**outputs, "action": outputs["action"] + 3}


def with_one_wrong_choice(inputs: Tree, outputs: Tree) -> Tree:  # noqa: ARG001
    action = outputs["action"].copy()
    action[:, 0] = (action[:, 0] + 1) % 3
    return {**outputs, "action": action}


def with_wrong_dtype(inputs: Tree, outputs: Tree) -> Tree:  # noqa: ARG001
    return {**outputs, "action": outputs["action"].astype(np.int32)}


def with_nan_actions(inputs: Tree, outputs: Tree) -> Tree:  # noqa: ARG001
    return {**outputs, "action": outputs["action"] * np.float32(np.nan)}


TWO_CHOICES = replace(policy_spec("discrete"), action=ActionSpec("multidiscrete", (2,), nvec=(3, 4)))
STARTS_AT_5 = replace(policy_spec("discrete"), action=ActionSpec("discrete", (), nvec=(3,), start=(5,)))


@pytest.mark.parametrize(
    ("spec", "how"),
    [
        (GRU, without_state),
        (STARTS_AT_5, with_wrong_actions),
        (policy_spec("discrete"), with_wrong_actions),
        (policy_spec("discrete"), with_choices_that_do_not_exist),
        (TWO_CHOICES, with_one_wrong_choice),
        (policy_spec("discrete"), with_wrong_dtype),
        (SOFT, with_nan_actions),
    ],
)
def test_wrong_outputs_of_an_exported_network_are_refused(spec, how):
    policy = loaded(spec)
    compare(policy, runner(policy))
    with pytest.raises(RunFailed, match="does not act like the policy, and is not saved"):
        compare(policy, answering(policy, how))


@pytest.mark.parametrize(("gap", "agrees"), [(0.0, True), (5e-6, True), (2e-5, False), (1e-3, False)])
def test_different_actions_agree_only_if_their_values_are_nearly_equal(gap, agrees):
    """The file takes the last choice, where the policy takes the first by so much."""
    policy = loaded(replace(policy_spec("discrete"), hidden_sizes=()))
    views = published_layout(policy.acting_policy.spec).views(policy.acting_policy.vector)
    views["policy_head.weight"][...] = 0
    views["policy_head.bias"][...] = [gap, 0, 0]

    def last(_inputs: Tree, outputs: Tree) -> Tree:
        chosen: Array = np.full_like(outputs["action"], 2)
        return {"action": chosen}

    if agrees:
        compare(policy, answering(policy, last))
    else:
        with pytest.raises(RunFailed, match="68 of 68 actions have other choices"):
            compare(policy, answering(policy, last))


def test_the_compared_observations_have_the_scale_of_the_normalisation():
    policy = loaded(policy_spec("box", normalize=True)).acting_policy
    published = published_layout(policy.spec).views(policy.vector)
    observed = sample_observations(policy, 2000, np.random.default_rng(0))["observation"].reshape(2000, -1)
    standard = (observed - published["observation_mean"]) * published["observation_scale"]
    np.testing.assert_allclose(standard.std(axis=0), SPREAD, rtol=0.1)


def test_the_compared_masks_allow_a_choice_of_each_component():
    policy = loaded(LSTM).acting_policy
    [mask] = (leaf.name for leaf in policy.spec.observation if leaf.is_mask)
    allowed = sample_observations(policy, 500, np.random.default_rng(0))[mask]
    components = np.split(allowed, np.cumsum(policy.spec.action.nvec)[:-1], axis=1)
    assert len(components) > 1
    assert all(each.any(axis=1).all() for each in components)
