"""A run with several policies: what belongs to one of them is its own, in memory, in metrics and on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.reference.replay_runs import small_sac
from tests.reference.runs import SMALL, lines_of, small_run, untimed

from offbeat.api.resume import require_fit
from offbeat.api.train import resume
from offbeat.config.config import Config
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.run_directory.checkpoint import load
from offbeat.runtime import paced
from offbeat.runtime.assembly import build_paced, env_of, paced_parts, policy_parts
from offbeat.runtime.paced import PacedWorkforce
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import acting_of
from offbeat.runtime.supervisor import Reporting

NAMES = ("cat", "dog")
SETTINGS: dict[str, Any] = {"steps": 1024, "actors": 2, "max_lag": 1, "lag": "exact", "envs_per_actor": 2}


def parts_of(config: Config, *names: str, shared: bool = False) -> PacedParts:
    """Make the parts of a run whose actors have envs of their own for each policy."""
    env = env_of(config)
    return paced_parts(config, env, [policy_parts(config, env, name) for name in names], print, shared=shared)


def two_policies(config: Config, _notify: Callable[[str], None], *, shared: bool) -> PacedParts:
    """Make the parts of a run with two policies, in the place of `build_paced`."""
    return parts_of(config, *NAMES, shared=shared)


@pytest.fixture(autouse=True)
def _with_two_policies(monkeypatch):
    monkeypatch.setattr(paced, "build_paced", two_policies)


def weights_of_each(run: Any) -> dict[str, bytes]:
    latest = run.path / "checkpoints" / "latest"
    return {name: (latest / "policies" / name / "weights.safetensors").read_bytes() for name in NAMES}


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paced, "build_paced", two_policies)
        return small_run(tmp_path_factory.mktemp("runs") / "serial", runtime="serial", **SETTINGS)


@pytest.mark.parametrize("runtime", ["threads", "processes"])
def test_two_policies_have_the_bits_of_serial_in_every_runtime(runtime, serial, tmp_path):
    run = small_run(tmp_path / "run", runtime=runtime, **SETTINGS)
    assert weights_of_each(run) == weights_of_each(serial)
    assert [untimed(line) for line in lines_of(run.path)] == [untimed(line) for line in lines_of(serial.path)]


def test_the_first_of_two_policies_learns_what_it_would_learn_alone():
    config = resolve("ppo", "CartPole-v1", flags={**SMALL, **SETTINGS, "runtime": "serial"})
    together, alone = parts_of(config, *NAMES), parts_of(config, NAMES[0])
    for parts in (together, alone):
        work = PacedWorkforce(parts, acting_of(parts, 0, Reporting(print, print)))
        work.start({})
        work.begin_episodes()
        for _ in range(5):
            work.wait()
            work.learn(progress=0.0)
    learned, expected = together.snapshot(), alone.snapshot()["cat"]
    assert all((learned["cat"][name] == array).all() for name, array in expected.items())
    assert any((learned["dog"][name] != array).any() for name, array in expected.items())


ON_POLICY: dict[str, Any] = {**SETTINGS, "runtime": "serial"}
WITH_REPLAY = {"lag": "exact", "save_replay": True}


@pytest.mark.parametrize(
    ("train", "settings", "middle"), [(small_run, ON_POLICY, 512), (small_sac, WITH_REPLAY, 200)], ids=["ppo", "sac"]
)
def test_a_resumed_run_with_two_policies_has_the_bits_of_one_that_was_not_stopped(train, settings, middle, tmp_path):
    whole = train(tmp_path / "whole", **settings)
    stopped = train(tmp_path / "stopped", stop_at=middle, **settings)
    assert weights_of_each(stopped) != weights_of_each(whole)
    assert weights_of_each(resume(stopped.path)) == weights_of_each(whole)


def test_each_policy_has_metrics_and_files_of_its_own(serial):
    line = lines_of(serial.path)[-1]
    for name in NAMES:
        for metric in ("policy_loss", "policy_lag_mean", "episode_return_mean"):
            assert line[f"policies/{name}/{metric}"] is not None
    assert line["episodes"] == sum(line[f"policies/{name}/episodes"] for name in NAMES)
    assert line["policy_loss"] is None
    saved = load(serial.path / "checkpoints" / "latest")
    assert list(saved.policies) == list(NAMES)
    assert saved.state is not None
    learners = [saved.state["policies"][name]["learner"] for name in NAMES]
    for part in ("algorithm", "adam"):
        first, second = (json.dumps(learner[part], default=np.ndarray.tolist) for learner in learners)
        assert first != second


def test_a_checkpoint_of_other_policies_is_refused(serial):
    saved = load(serial.path / "checkpoints" / "latest")
    parts = build_paced(resolve("ppo", "CartPole-v1", flags={}), print, shared=False)
    with pytest.raises(ConfigError, match="has the policies cat, dog, but these settings have default"):
        require_fit(saved, parts, serial.path)
    parts.close()
