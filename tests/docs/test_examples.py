"""The examples run, and do what they say."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.reference.dqn import new_dqn
from tests.reference.sac import random_samples
from tests.support.models import ACTIONS, OBSERVATIONS
from tests.support.pages import ROOT
from tests.support.registries import registries_kept
from tests.support.runs import SCRIPT, Started, is_alive, run_python, run_script, small_run, wait_until, weights_of
from tests.support.thorough import THOROUGH, thorough

from offbeat.api.resume import resume
from offbeat.core.errors import ConfigError
from offbeat.core.pace import OnPolicyPace
from offbeat.core.seeding import stream
from offbeat.core.types import EnvSpec
from offbeat.losses.advantages import generalized_advantages

EXAMPLES = ROOT / "examples"
FROM_SCRATCH = EXAMPLES / "async_ppo_from_scratch.py"


def example(name: str, *arguments: str, folder: Path) -> str:
    """Run an example in a process of its own that has loaded torch; return what it prints."""
    said = run_script(EXAMPLES / name, *arguments, folder=folder)
    assert said.code == 0, said.err
    return said.out


def test_the_example_trains_and_loads_a_policy_from_python(tmp_path):
    outputs = example("train_and_load.py", "--steps", "250", folder=tmp_path)
    assert "one episode: return" in outputs


def test_the_callbacks_of_the_example_write_videos_and_the_run_reaches_its_end(tmp_path):
    outputs = example("callbacks.py", "--steps", "250", folder=tmp_path)
    found = re.search(r"^finished: .*; (\d+) videos in (\S+)$", outputs, re.MULTILINE)
    assert found, outputs
    assert int(found[1]) == len(list((tmp_path / found[2] / "videos").iterdir())) > 0


# docs/concepts/reproducibility.md, whose code is run, has this example. It fails if the bits differ.
@pytest.mark.thorough
@pytest.mark.parametrize("lag", ["3", "0", "1"])
def test_all_runtimes_and_a_stopped_and_resumed_run_end_with_the_same_bits(lag, tmp_path):
    outputs = example("same_bits.py", "--steps", "2560", "--max-lag", lag, folder=tmp_path)
    digests, runtimes = zip(*(line.split(",")[0].split() for line in outputs.splitlines()), strict=True)
    assert runtimes == ("serial", "threads", "processes", "threads")
    assert len(set(digests)) == 1
    stopped_at = re.search(r"stopped at (\d+) env steps", outputs)
    assert stopped_at
    assert int(stopped_at[1]) < 2560


def test_a_run_on_the_custom_env_of_the_examples_resumes_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    with registries_kept("my_env"):
        settings: dict[str, Any] = {"env": "my_env/Docking-v0", "imports": ("my_env",), "steps": 512}
        whole = small_run(tmp_path / "whole", **settings)
        stopped = small_run(tmp_path / "stopped", **settings, stop_at=256)
        assert stopped.metrics["env_steps"] < whole.metrics["env_steps"]
        assert weights_of(resume(stopped.path).path) == weights_of(whole.path)


def test_a_snapshot_of_the_custom_world_does_not_change_with_the_next_step(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    with registries_kept("own_world"):
        world = import_module("own_world").Chase()
    world.reset(seed=0)
    saved = world.snapshot()
    before = deepcopy(saved)
    world.step(dict.fromkeys(world.agents, np.ones(2, np.float32)))
    np.testing.assert_equal(saved, before)


@pytest.mark.parametrize(("actors", "tickets"), [(3, 200), *thorough((1, 60))])
def test_a_custom_training_loop_makes_exactly_the_updates_that_are_due(actors, tickets, tmp_path):
    layout = ["--actors", str(actors), "--tickets", str(tickets)]
    outputs = example("own_loop.py", *layout, folder=tmp_path).splitlines()
    assert len(outputs) == 4
    for line in outputs:
        found = re.fullmatch(r" *(\d+) transitions, +(\d+) updates, (\d+) due, error (nan|\d\.\d+)", line)
        assert found, line
        transitions, updates, due = map(int, found.groups()[:3])
        assert due == 0
        assert updates == max(0, transitions - 500) // 2
    assert updates > 100


# --- the one file that does without the library ---------------------------------------------------------------

LAG = re.compile(r"^policy lag min (\d+), mean (\d+\.\d+), max (\d+) learning steps$", re.MULTILINE)
DIGEST = re.compile(r"^([0-9a-f]{64})  SHA-256 of the weights$", re.MULTILINE)


@pytest.fixture(scope="module")
def from_scratch() -> Any:
    spec = spec_from_file_location("async_ppo_from_scratch", FROM_SCRATCH)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


def test_the_from_scratch_example_is_short_and_does_not_import_the_library():
    text = FROM_SCRATCH.read_text()
    assert len(text.splitlines()) < 400
    assert not re.search(r"^\s*(import|from) offbeat", text, re.MULTILINE)


LAGS = (2, 0) if THOROUGH else (2,)
EXACT = {
    (runtime, lag): f"--exact --runtime {runtime} --max-lag {lag} --steps 640 --length 8"
    for runtime, lag in product(("processes", "threads", "serial"), LAGS)
}
BOUNDED = [f"--runtime {runtime} --max-lag 2 --steps 960 --length 8 --actors 3" for runtime in ("processes", "threads")]
ONE_AFTER_THE_OTHER = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import async_ppo_from_scratch

for flags in sys.argv[1:]:
    sys.argv[1:] = flags.split()
    async_ppo_from_scratch.main()
    print("end")
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, str]:
    """What the file says with these flags, all in one process."""
    runs = [*EXACT.values(), *BOUNDED]
    said = run_python(ONE_AFTER_THE_OTHER, *runs, folder=tmp_path_factory.mktemp("from_scratch"))
    assert said.code == 0, said.err
    return dict(zip(runs, said.out.split("end\n"), strict=False))


@pytest.mark.parametrize("lag", LAGS)
def test_the_from_scratch_example_ends_with_the_same_bits_in_all_runtimes(outputs, lag):
    all_told = [outputs[flags] for (_, of), flags in EXACT.items() if of == lag]
    digests = [DIGEST.findall(each) for each in all_told]
    assert len(digests) == 3
    assert digests[0] == digests[1] == digests[2]
    assert len(digests[0]) == 1
    # 5 batches: all but the first D are learned from D learning steps after the weights that acted.
    expected = np.mean([min(step, lag) for step in range(5)])
    for each in all_told:
        assert LAG.findall(each) == [("0", f"{expected:.2f}", str(lag))]


@pytest.mark.parametrize("flags", BOUNDED)
def test_the_from_scratch_example_keeps_its_lag_bound_with_the_newest_weights(outputs, flags):
    lowest, mean, highest = map(float, LAG.findall(outputs[flags])[0])
    assert 0 <= lowest <= mean <= highest <= 2


def test_the_pace_of_the_from_scratch_example_equals_that_of_the_library(from_scratch):
    for actors, lag, number in product((1, 2, 5), (0, 1, 4), range(40)):
        ours, theirs = OnPolicyPace(actors, lag), from_scratch.Pace(actors, lag)
        assert theirs.learned_before_act(number) == ours.learned_before_act(number)
        assert theirs.acted_before_learn(number) == ours.acted_before_learn(number)
        place = theirs.place(number // actors) * actors + number % actors
        assert place == ours.slot(number)


def test_advantages_of_the_from_scratch_example_equal_those_of_the_library(from_scratch):
    random = np.random.default_rng(0)
    reward, values = random.normal(size=(40, 6)), random.normal(size=(41, 6))
    terminated, truncated = random.random(size=(2, 40, 6)) < 0.1
    truncated &= ~terminated
    valid = np.ones((40, 6), bool)
    for row in range(1, 40):
        valid[row] = ~(terminated | truncated)[row - 1]
        terminated[row] &= valid[row]
        truncated[row] &= valid[row]
    reward *= valid
    found = from_scratch.gae(reward, values, terminated, valid)
    rows: dict[str, Any] = {"rewards": reward, "values": values}
    rows |= {"terminated": terminated, "truncated": truncated, "valid": valid, "no_decision": np.zeros_like(valid)}
    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in rows.items()}
    expected = generalized_advantages(**tensors, gamma=from_scratch.GAMMA, gae_lambda=from_scratch.LAMBDA)
    for ours, theirs in zip(expected, found, strict=True):
        np.testing.assert_allclose(theirs[valid], ours.numpy()[valid], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("exact", "version"), [(True, 1), (False, 3)])
def test_the_actor_of_the_from_scratch_example_uses_the_version_of_the_pace(from_scratch, exact, version):
    pace = from_scratch.Pace(actors=1, max_lag=2)
    settings = from_scratch.Settings(exact=exact, envs=2, length=3, actors=1, max_lag=2)
    slots = from_scratch.shared(from_scratch.slot_layout(rows=3, envs=2, inputs=4), 3, 1)
    weights = from_scratch.shared(np.dtype([("weight", np.float32, (2, 4)), ("bias", np.float32, 2)]), 3)
    weights["bias"][:, 0] = 1000  # always to the left, but for:
    weights["bias"][pace.place(version)] = 0, 1000
    from_scratch.Actor(settings, pace, 0, slots, weights).act(ticket=3, learned=3)
    slot = slots[pace.place(3), 0]
    assert slot["version"] == version
    assert (slot["action"] == 1).all()


@pytest.mark.parametrize("runtime", ["processes", *thorough("threads")])
def test_the_from_scratch_example_ends_when_an_env_fails(runtime, tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = run_script(FROM_SCRATCH, "--runtime", runtime, "--env", "failing:Failing-v0", "--envs", "2", folder=tmp_path)
    assert said.code == 1
    assert "ZeroDivisionError: the pole has no mass" in said.err
    assert said.err.rstrip().endswith("an actor has died: its error is above")


FAILING = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Failing(CartPoleEnv):
    steps = 0
    def step(self, action):
        self.steps += 1
        if self.steps == 100:
            raise ZeroDivisionError("the pole has no mass")
        return super().step(action)

gym.register("Failing-v0", "failing:Failing", max_episode_steps=50)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_actors_of_the_from_scratch_example_end_when_the_learner_is_killed(tmp_path):
    started = Started([str(FROM_SCRATCH), "--steps", "10_000_000"], tmp_path, SCRIPT)
    children = Path(f"/proc/{started.process.pid}/task/{started.process.pid}/children")
    started.wait_until(lambda: len(children.read_text().split()) == 2)
    actors = [int(pid) for pid in children.read_text().split()]
    sleep(0.5)  # in the midst of things
    assert all(map(is_alive, actors))
    started.end(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, actors)))


@pytest.fixture
def own_algorithm(monkeypatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(EXAMPLES)
    with registries_kept("own_algorithm"):
        yield import_module("own_algorithm")


@pytest.mark.parametrize("weight", [0.0, 0.9])
def test_the_custom_algorithm_computes_the_targets_of_its_paper(own_algorithm, weight):
    config = own_algorithm.MunchausenConfig(hidden_sizes=(4,), temperature=0.2, munchausen_weight=weight)
    algorithm = own_algorithm.MunchausenDQN(config, new_dqn(config).spec, seed=0)
    sampled = random_samples(algorithm.spec, 20, 0)
    minibatch = algorithm.minibatch(sampled, stream(0, "test"))
    rows = ("reward", "discount", "action", "observation", "next_observation")
    expected = []
    for reward, discount, action, observation, following in zip(*(minibatch[name] for name in rows), strict=True):
        values, after = (algorithm.ema_network(seen)[0].double().detach().numpy() for seen in (observation, following))
        policy, policy_after = (np.exp(v / 0.2) / np.exp(v / 0.2).sum() for v in (values, after))
        sure = max(-1.0, 0.2 * np.log(policy[action]))
        soft = sum(p * (v - 0.2 * np.log(p)) for p, v in zip(policy_after, after, strict=True))
        expected.append(float(reward) + weight * sure + float(discount) * soft)
    torch.testing.assert_close(algorithm.targets(minibatch).double(), torch.tensor(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("setting", "value"), [("n_step", 3), ("double", True)])
def test_the_custom_algorithm_refuses_what_it_does_not_support(own_algorithm, setting, value):
    with pytest.raises(ConfigError, match=rf"{setting} is {str(value).lower()}.*leave it out"):
        own_algorithm.MunchausenConfig(**{setting: value})


@pytest.fixture
def discrete_sac(monkeypatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(EXAMPLES)
    with registries_kept("own_replay_algorithm"):
        own = import_module("own_replay_algorithm")
        config = own.DiscreteSACConfig(hidden_sizes=(4,), temperature=0.2)
        spec = config.policy_spec(EnvSpec("Test-v0", OBSERVATIONS["vector"], ACTIONS["discrete"], 4))
        yield own.DiscreteSAC(config, spec, seed=0)


def test_the_algorithm_from_scratch_computes_the_losses_of_its_paper(discrete_sac):
    minibatch = discrete_sac.minibatch(random_samples(discrete_sac.spec, 20, 0), stream(0, "test"))
    critic_errors, policy_losses = [], []
    rows = ("reward", "discount", "action", "observation", "next_observation")
    for reward, discount, action, observation, following in zip(*(minibatch[name] for name in rows), strict=True):
        policy, after = (probabilities(discrete_sac.policy_network, seen) for seen in (observation, following))
        values = np.array([as_numbers(critic, observation) for critic in discrete_sac.critic_networks])
        slow = np.min([as_numbers(critic, following) for critic in discrete_sac.ema.network], axis=0)
        soft = sum(p * (v - 0.2 * np.log(p)) for p, v in zip(after, slow, strict=True))
        critic_errors += list((values[:, action] - float(reward) - float(discount) * soft) ** 2)
        policy_losses.append(sum(p * (0.2 * np.log(p) - v) for p, v in zip(policy, values.min(0), strict=True)))
    assert discrete_sac.critic_loss(minibatch).loss.item() == pytest.approx(np.mean(critic_errors), rel=1e-4)
    assert discrete_sac.policy_loss(minibatch).loss.item() == pytest.approx(np.mean(policy_losses), rel=1e-4)


def as_numbers(network: Any, row: torch.Tensor) -> NDArray[np.float64]:
    outputs: NDArray[np.float64] = network(row[None])[0][0].double().detach().numpy()
    return outputs


def probabilities(network: Any, row: torch.Tensor) -> NDArray[np.float64]:
    weights = np.exp(as_numbers(network, row))
    return weights / weights.sum()
