"""Learning from sequences: losses and gradients are those of a plain loop over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.dqn import perturb as perturb_dqn
from tests.reference.sac import perturb as perturb_sac
from tests.reference.sequences import DQNTwin, SACTwin
from tests.support.sequence_samples import COLUMNS, LENGTH, SEQUENCES, env_of, minibatch_of, sampled

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.algorithms.replay_actor_critic import CRITIC, POLICY
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig
from offbeat.config.resolve import resolve
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.types import env_fields
from offbeat.envs.make import make_envs
from offbeat.memory.arena import private_arena
from offbeat.models.acting import ActingPolicy
from offbeat.models.policy_network import CoreState
from offbeat.models.published import published_layout
from offbeat.models.torch_acting import TorchNetwork
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork, Work


def assert_gradients(
    algorithm: DQN | SAC, stage: int, minibatch: Minibatch, twin: Any, loss: torch.Tensor
) -> LossResult:
    """A stage's loss, and its gradients by name, are those of the twin. Returns what the loss returned."""
    chosen = algorithm.stages[stage]
    flat = algorithm.groups[chosen.group].parameters
    flat.gradients.zero_()
    result = chosen.loss(minibatch)
    ours = result.loss
    assert isinstance(ours, torch.Tensor)
    torch.autograd.backward(ours)
    assert ours.item() == pytest.approx(loss.item(), rel=1e-5)
    prefix, expected = "critics." if chosen.group == CRITIC else "", twin.gradients(loss)
    for name, gradient in flat.layout.views(flat.gradients).items():
        theirs = expected[prefix + name]
        assert np.abs(theirs).max() > 1e-4, name
        np.testing.assert_allclose(gradient.numpy(), theirs, rtol=1e-5, atol=1e-5, err_msg=name)
    return result


CASES: dict[str, dict[str, Any]] = {
    "gru": {},
    "lstm": {"core": "lstm"},
    "gru, no burn-in": {"burn_in": 0},
    "lstm, long burn-in, one step": {"core": "lstm", "burn_in": 2 * LENGTH, "n_step": 1},
    "lstm, prioritized": {"core": "lstm", "prioritized": True, "hidden_sizes": ()},
}


@pytest.mark.parametrize(("name", "action"), [*((name, "masked") for name in CASES), ("gru", "discrete")])
def test_the_sequence_loss_of_dqn_equals_that_of_a_plain_loop_to_five_digits(name, action):
    config, env = DQNConfig(**{**SEQUENCES, **CASES[name]}), env_of(action)
    algorithm = DQN(config, config.policy_spec(env), seed=1)
    perturb_dqn(algorithm, 0.3)
    samples = sampled(algorithm, env)
    minibatch = minibatch_of(algorithm, samples)
    twin = DQNTwin(config, algorithm.spec, algorithm.weights(), samples.arrays)
    errors = assert_gradients(algorithm, 0, minibatch, twin, twin.loss()).outputs["errors"]
    np.testing.assert_allclose(algorithm.priorities_of(errors, minibatch), twin.urgency(twin.errors), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "action"),
    [*zip(CASES, ("box", "discrete", "masked", "box", "masked"), strict=True), ("gru", "masked"), ("lstm", "box")],
)
def test_the_sequence_losses_of_sac_equal_those_of_a_plain_loop_to_five_digits(name, action):
    config, env = SACConfig(**{**SEQUENCES, **CASES[name]}), env_of(action)
    algorithm = SAC(config, config.policy_spec(env), seed=1)
    perturb_sac(algorithm, 0.3)
    samples = sampled(algorithm, env)
    minibatch = minibatch_of(algorithm, samples)
    twin = SACTwin(config, algorithm.spec, algorithm.weights(), samples.arrays)
    twin.noise = minibatch
    assert [stage.group for stage in algorithm.stages][:2] == [CRITIC, POLICY]
    errors = assert_gradients(algorithm, 0, minibatch, twin, twin.critic_loss()).outputs["errors"]
    np.testing.assert_allclose(algorithm.priorities_of(errors, minibatch), twin.urgency(twin.errors), rtol=1e-5)
    entropy = assert_gradients(algorithm, 1, minibatch, twin, twin.policy_loss()).outputs["entropy"]
    temperature = torch.as_tensor(algorithm.temperature_loss(entropy, minibatch).loss).item()
    gap = twin.mean_entropy - float(algorithm.entropy_target(minibatch))
    assert temperature == pytest.approx(twin.parameters["log_alpha"].item() * gap, rel=1e-4)


@pytest.mark.parametrize("algorithm", ["sac", "dqn"])
def test_burn_in_rows_affect_the_loss_and_have_no_gradient(algorithm):
    kind, config = (SAC, SACConfig(**SEQUENCES)) if algorithm == "sac" else (DQN, DQNConfig(**SEQUENCES))
    env = env_of("discrete")
    learner = kind(config, config.policy_spec(env), seed=1)  # type: ignore[arg-type]
    minibatch = dict(minibatch_of(learner, sampled(learner, env)))
    before = learner.config.rows_before * minibatch["resets"].shape[1]
    minibatch["resets"] = torch.zeros_like(minibatch["resets"])
    minibatch["observation"].requires_grad_()
    loss = learner.stages[0].loss(minibatch).loss
    assert isinstance(loss, torch.Tensor)
    torch.autograd.backward(loss)
    gradients = minibatch["observation"].grad.abs().sum(dim=1)
    assert gradients[:before].max() == 0
    assert gradients[before:].max() > 0
    with torch.no_grad():
        minibatch["observation"][:before] += 1
        other = learner.stages[0].loss(minibatch).loss
    assert isinstance(other, torch.Tensor)
    assert other.item() != loss.item()


# --- what is stored -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_stored_core_states_are_those_computed_from_all_earlier_rows(core, uniform):
    config = SACConfig(**{**SEQUENCES, "core": core})
    envs = make_envs("CartPole-v1", COLUMNS, seed=3)
    spec = config.policy_spec(envs.spec)
    algorithm, policy = SAC(config, spec, seed=1), ActingPolicy(spec, TorchNetwork)
    vector = np.zeros(published_layout(spec).size, np.float32)
    algorithm._uniform.fill_(float(uniform))
    algorithm.write_published(vector)
    shape, fields = config.memory(RuntimeConfig(envs_per_actor=COLUMNS)), (*env_fields(envs.spec), *algorithm.fields())
    rings = shape.slots(fields, private_arena(shape.slabs(fields)))
    actor = Actor(0, 0, [PolicyColumns(envs, policy)])
    actor.start(0)
    for ticket in range(18):
        if ticket == 15:
            actor.start(ticket, cut=True)
        actor.act(Work(ticket, 0, 0.0, (PolicyWork(vector, rings.open(ticket)),)))
    assert not rings.ticket(0)["initial_state"].any()
    resets = 0
    for ticket in range(17):
        rows, after = rings.ticket(ticket), rings.ticket(ticket + 1)["initial_state"]
        ended = torch.from_numpy(~rows["valid"])
        seen = torch.from_numpy(rows["observation"]).flatten(0, 1)
        assert isinstance(policy.network, TorchNetwork)
        _, state = policy.network.module(seen, {}, CoreState(torch.from_numpy(rows["initial_state"]), ended))
        assert state is not None
        if ticket + 1 == 15:
            assert not after.any(), "new episodes begin after a cut"
            continue
        np.testing.assert_allclose(after, state.numpy(), atol=1e-6)
        assert (after != 0).any(axis=1).all() or ended[-1].any()
        resets += int(ended[:-1].sum())
    assert resets > 3


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["sac", "dqn"])
def test_with_a_core_tickets_have_16_rows_and_a_burn_in_of_16(algorithm):
    plain = resolve(algorithm, "CartPole-v1", preset=None, assignments={"core": "gru", "chunk_length": "none"})
    settings = replace(plain.settings_as(ReplayConfig), batch_size=64, n_step=1)
    assert (settings.ticket_length, settings.rows_before) == (16, 16)
    assert replace(settings, chunk_length=8).rows_before == 8
    assert replace(settings, burn_in=0).rows_before == 0
    without = replace(settings, core="none")
    assert (without.ticket_length, without.rows_before) == (1, 0)


@pytest.mark.parametrize(
    ("runtime", "changes", "words"),
    [
        ({}, {"batch_size": 100}, r"batch_size is 100.*whole sequences of chunk_length = 8: pass --set batch_size=96"),
        ({}, {"burn_in": 12}, r"burn_in is 12.*pass --set burn_in=16"),
        ({}, {"n_step": 9}, r"n_step is 9.*--set n_step=8 or less, or --set chunk_length=9"),
        ({"actors": 2}, {"burn_in": 80}, r"warmup is 1000 transitions, but the first sample needs 1280"),
        (
            {"runtime": "hogwild", "workers": 2},
            {"burn_in": 80},
            r"warmup of 2 workers|among the 2 workers.*needs 640",
        ),
    ],
)
def test_impossible_sequence_settings_are_refused_before_the_run_starts(runtime, changes, words):
    given: dict[str, Any] = {"core": "gru", "chunk_length": 8, "batch_size": 64, "warmup": 1000, "n_step": 1}
    given |= {"envs_per_actor": 8, **runtime, **changes}
    with pytest.raises(ConfigError, match=words):
        resolve("dqn", "CartPole-v1", assignments={key: str(value) for key, value in given.items()})
