"""The examples run, and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.dqn import new_dqn
from tests.reference.pages import ROOT
from tests.reference.registries import registries_kept
from tests.reference.sac import random_samples

from offbeat.errors import ConfigError
from offbeat.seeding import stream

EXAMPLES = ROOT / "examples"


def python(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_and_loading_from_python(tmp_path):
    told = python(str(EXAMPLES / "train_and_load.py"), "--steps", "2000", folder=tmp_path)
    assert "one episode: return" in told


@pytest.mark.parametrize("lag", ["0", "3"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(lag, tmp_path):
    told = python(str(EXAMPLES / "same_bits.py"), "--steps", "6000", "--max-lag", lag, folder=tmp_path)
    assert int(told.split()[2]) < 6000  # it did stop in between
    once, twice = (line.split()[0] for line in told.splitlines()[-2:])
    assert once == twice


@pytest.mark.parametrize("lag", ["0", "1"])
def test_all_runtimes_end_with_the_same_bits(lag, tmp_path):
    told = python(str(EXAMPLES / "same_bits_everywhere.py"), "--steps", "1500", "--max-lag", lag, folder=tmp_path)
    digests, runtimes = zip(*(line.split(",")[0].split() for line in told.splitlines()), strict=True)
    assert runtimes == ("serial", "threads", "processes")
    assert len(set(digests)) == 1


def test_an_env_of_ones_own_resumes_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    env = ["--env", "my_env:my_env/Docking-v0"]
    told = python(str(EXAMPLES / "same_bits.py"), *env, "--steps", "3000", folder=tmp_path)
    once, twice = (line.split()[0] for line in told.splitlines()[-2:])
    assert once == twice


@pytest.mark.parametrize(("actors", "tickets"), [(1, 60), (3, 200)])
def test_a_loop_of_ones_own_never_makes_an_update_too_many_or_too_few(actors, tickets, tmp_path):
    layout = ["--actors", str(actors), "--tickets", str(tickets)]
    told = python(str(EXAMPLES / "own_loop.py"), *layout, folder=tmp_path).splitlines()
    assert len(told) == 4
    for line in told:
        found = re.fullmatch(r" *(\d+) transitions, +(\d+) updates, (\d+) due, error (nan|\d\.\d+)", line)
        assert found, line
        transitions, updates, due = map(int, found.groups()[:3])
        assert due == 0
        assert updates == max(0, transitions - 500) // 2
    assert updates > 100


@pytest.fixture
def own_algorithm(monkeypatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(EXAMPLES)
    with registries_kept("own_algorithm"):
        yield import_module("own_algorithm")


@pytest.mark.parametrize("weight", [0.0, 0.9])
def test_an_algorithm_of_ones_own_learns_towards_the_targets_of_its_paper(own_algorithm, weight):
    config = own_algorithm.MunchausenConfig(hidden_sizes=(4,), temperature=0.2, munchausen_weight=weight)
    algorithm = own_algorithm.MunchausenDQN(config, new_dqn(config)._spec, seed=0)
    sampled = random_samples(algorithm._spec, 20, 0)
    minibatch = algorithm.minibatch(sampled, stream(0, "test"))
    rows = ("reward", "discount", "action", "observation", "next_observation")
    expected = []
    for reward, discount, action, observation, following in zip(*(minibatch[name] for name in rows), strict=True):
        values, after = (algorithm._ema_network(seen).double().detach().numpy() for seen in (observation, following))
        policy, policy_after = (np.exp(v / 0.2) / np.exp(v / 0.2).sum() for v in (values, after))
        sure = max(-1.0, 0.2 * np.log(policy[action]))
        soft = sum(p * (v - 0.2 * np.log(p)) for p, v in zip(policy_after, after, strict=True))
        expected.append(float(reward) + weight * sure + float(discount) * soft)
    torch.testing.assert_close(algorithm._targets(minibatch).double(), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_it_refuses_a_setting_that_its_formula_has_no_room_for(own_algorithm):
    with pytest.raises(ConfigError, match=r"n_step is 3.*leave it out"):
        own_algorithm.MunchausenConfig(n_step=3)
