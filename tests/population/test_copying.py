"""A copy between two runs: what comes from the donor, what stays, and that the copy can be resumed in every runtime."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.populations import CARTS, CARTS_POLICIES
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, small_run
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.population.copying import keep, with_policies_of
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy, load
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.loop.saving import SCORE
from offbeat.runtime.parts import state_of_policy

KINDS: dict[str, dict[str, Any]] = {
    "serial": {"max_lag": 2},
    "threads": {"runtime": "threads", "max_lag": 1, "lag": "exact", "actors": 2},
    "dqn": {"algorithm": "dqn", "env": "CartPole-v1"},
    "sac": {},
    "several policies": {"env": CARTS, "policies": CARTS_POLICIES, "max_lag": 2},
    "several policies with a replay": {"algorithm": "dqn", "env": CARTS, "policies": CARTS_POLICIES},
    "hogwild": {"runtime": "hogwild", "workers": 2},
    "hogwild with its own moments": {"runtime": "hogwild", "workers": 2, "hogwild_moments": "per_worker"},
}
ON_A_REPLAY = ("sac", "dqn", "several policies with a replay")


def trained(path: Path, kind: str, **settings: Any) -> Path:
    train = small_sac if kind in ON_A_REPLAY else small_run
    return train(path, **{"steps": 600, "stop_at": 200, "eval_every": 0, **KINDS[kind], **settings}).path


@pytest.fixture(
    scope="module",
    params=["serial", "sac", *thorough("threads", "dqn", "hogwild", "hogwild with its own moments")],
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trained_runs(kind, tmp_path_factory) -> Path:
    """A folder with a member, and a donor that has trained longer."""
    folder: Path = tmp_path_factory.mktemp("trained")
    trained(folder / "own", kind)
    trained(folder / "donor", kind, seed=5, stop_at=300)
    return folder


@pytest.fixture
def runs(trained_runs, tmp_path) -> list[Path]:
    """Copies of both runs."""
    shutil.copytree(trained_runs, tmp_path / "runs", symlinks=True)
    return [tmp_path / "runs/own", tmp_path / "runs/donor"]


def copied(runs: list[Path], *, optimizer: bool) -> tuple[Checkpoint, Checkpoint, Checkpoint]:
    """Copy from the second run to the first one; return its checkpoints before and after, and the donor's."""
    own, donor = RunDirectory(runs[0]), load(runs[1] / "checkpoints/latest")
    before = own.read_checkpoint("latest", with_replay=True)
    merged = with_policies_of(before, donor, optimizer=optimizer)
    env_steps = next(iter(before.policies.values())).about["env_steps"]
    own.checkpoint_store(3).save(env_steps, merged, ["latest"])
    return before, own.read_checkpoint("latest", with_replay=True), donor


def moments(state: Any) -> list[np.ndarray[Any, Any]]:
    """Return all arrays of optimizers in a state."""
    if isinstance(state, dict):
        own = [array for key, array in state.items() if key.rpartition("/")[2] in ("step", "exp_avg", "exp_avg_sq")]
        return own + [array for part in state.values() for array in moments(part)]
    return [array for part in state for array in moments(part)] if isinstance(state, list) else []


def test_a_copy_has_the_donors_networks_and_statistics_and_keeps_the_rest(runs):
    before, after, donor = copied(runs, optimizer=False)
    assert before.state is not None and after.state is not None and donor.state is not None  # noqa: PT018
    assert all((after.weights[name] == donor.weights[name]).all() for name in donor.weights)
    for key in ("env_steps", "learning_step", "updates", "env"):
        assert after.policy[key] == before.policy[key] != (donor.policy[key] if key != "env" else "")
    assert after.state["counters"] == before.state["counters"]
    statistics = "learner" in donor.state and donor.state["learner"]["algorithm"]
    assert str(after.state["learner"]["algorithm"]) == str(statistics)
    if "versions" in before.state:  # lock-free workers have none
        newest = donor.state["versions"][str(donor.state["counters"]["learning_step"])]
        assert after.state["versions"].keys() == before.state["versions"].keys()
        assert all((vector == newest).all() for vector in after.state["versions"].values()), "no actor gets old weights"
    for name in before.replay or {}:
        assert (after.replay or {})[name].tobytes() == (before.replay or {})[name].tobytes()


def test_a_copy_does_not_have_the_score_of_the_weights_that_it_replaces(runs):
    own, donor = (load(run / "checkpoints/latest") for run in runs)
    scored = replace(own, policies={DEFAULT_POLICY: SavedPolicy(own.weights, {**own.policy, SCORE: 400.0})})
    assert SCORE not in with_policies_of(scored, donor, optimizer=False).policy


@pytest.mark.parametrize("optimizer", [False, True])
def test_the_optimizers_moments_are_copied_if_asked_and_zero_otherwise(runs, optimizer):
    _, after, donor = copied(runs, optimizer=optimizer)
    own, theirs = moments(after.state), moments(donor.state)
    assert any(array.any() for array in theirs)
    expected = theirs if optimizer else [np.zeros_like(array) for array in theirs]
    assert all((array == other).all() for array, other in zip(own, expected, strict=True))


def test_a_copy_is_resumed_and_learns_on_from_the_donors_weights(runs):
    before, after, donor = copied(runs, optimizer=False)
    ended = resume(runs[0], stop_at=before.policy["env_steps"] + 200, learning_rate=1e-30)
    assert ended.metrics["env_steps"] >= before.policy["env_steps"] + 200
    now = load(runs[0] / "checkpoints/latest")
    learned = [name for name in donor.weights if name.startswith(("policy", "value", "critic"))]
    assert learned
    for name in learned:
        np.testing.assert_allclose(now.weights[name], donor.weights[name], atol=1e-6)
    steps = [line["env_steps"] for line in lines_of(runs[0])]
    assert steps == sorted(steps)
    assert after.policy["env_steps"] in range(steps[0], steps[-1])


@pytest.mark.parametrize("kind", ["several policies", *thorough("several policies with a replay")])
@pytest.mark.parametrize("optimizer", [False, *thorough(True)])
def test_a_copy_has_all_policies_of_the_donor(tmp_path, kind, optimizer):
    runs = [trained(tmp_path / "own", kind), trained(tmp_path / "donor", kind, seed=5, stop_at=300)]
    before, after, donor = copied(runs, optimizer=optimizer)
    assert before.state is not None and after.state is not None and donor.state is not None  # noqa: PT018
    assert list(after.policies) == list(donor.policies) == ["cat", "dog"]
    for name, policy in after.policies.items():
        theirs = donor.policies[name].weights
        assert any((before.policies[name].weights[key] != theirs[key]).any() for key in theirs)
        assert all((policy.weights[key] == theirs[key]).all() for key in theirs)
        assert policy.about["env_steps"] == before.policies[name].about["env_steps"]
        own, others = (state_of_policy(name, state)["learner"] for state in (after.state, donor.state))
        assert str(own["algorithm"]) == str(others["algorithm"])
        assert any(array.any() for array in moments(others))
        expected = moments(others) if optimizer else [np.zeros_like(array) for array in moments(others)]
        assert all((array == other).all() for array, other in zip(moments(own), expected, strict=True))
    assert resume(runs[0]).state == "finished"


# --- kept checkpoints ---------------------------------------------------------------------------------------


def test_a_kept_checkpoint_outlives_that_of_the_run_and_has_no_replay(tmp_path):
    run = trained(tmp_path / "run", "sac")
    saved = load(run / "checkpoints/latest")
    keep(run / "checkpoints/latest", tmp_path / "kept")
    resume(run, stop_at=saved.policy["env_steps"] + 100)
    assert load(run / "checkpoints/latest").policy != saved.policy
    kept = load(tmp_path / "kept")
    assert kept.replay_dropped
    assert kept.policy == saved.policy
    assert all((kept.weights[name] == saved.weights[name]).all() for name in saved.weights)
    assert not list((tmp_path / "kept").glob("*replay*"))
    keep(run / "checkpoints/latest", tmp_path / "kept")  # it exists: nothing is done
    assert load(tmp_path / "kept").policy == saved.policy


def test_a_checkpoint_is_kept_by_a_copy_where_hard_links_are_not_possible(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError("no links")

    monkeypatch.setattr("os.link", refuse)
    run = trained(tmp_path / "run", "serial")
    keep(run / "checkpoints/latest", tmp_path / "kept")
    assert load(tmp_path / "kept").policy == load(run / "checkpoints/latest").policy


@pytest.mark.parametrize("optimizer", [False, True])
def test_lock_free_workers_have_the_donors_moments_or_zeros(optimizer):
    def checkpoint(value: float) -> Checkpoint:
        names = ("critic/values", "critic/step", "critic/exp_avg", "critic/exp_avg_sq")
        learned = {name: np.full(2, value) for name in names}
        state = {"workers": [{"learner": {}}], "learned": learned, "statistics": {}, "learner": {"algorithm": {}}}
        return Checkpoint({DEFAULT_POLICY: SavedPolicy({}, {"policy": {}})}, state)

    merged = with_policies_of(checkpoint(1.0), checkpoint(2.0), optimizer=optimizer).state
    assert merged is not None
    moment = 2.0 if optimizer else 0.0
    assert {name: float(array[0]) for name, array in merged["learned"].items()} == {
        "critic/values": 2.0,
        "critic/step": moment,
        "critic/exp_avg": moment,
        "critic/exp_avg_sq": moment,
    }
