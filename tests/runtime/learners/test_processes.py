"""Several learner processes give the bits of one learner in serial, whatever their number, and through a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pickle import dumps
from shutil import copytree
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from tests.support.checks import assert_same
from tests.support.matrix import CARTS, LEAGUE, TEAMS
from tests.support.replay_runs import small_sac
from tests.support.runs import begun, lines_of, small_run, status_of, weights_of
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.config.registry import algorithm_entry
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.learners.processes import LearnerProcesses, _state_of
from offbeat.workers.learner import Learned


class Cell(NamedTuple):
    """A run in serial; and one in processes that is stopped in the middle and resumed with other devices."""

    algorithm: str
    env: str
    shards: int
    devices: tuple[int, int]
    """Numbers of learners before and after the resume."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def train(self, path: Path, **changes: Any) -> Run:
        replay = algorithm_entry(self.algorithm).config_class().learns_from == "replay"
        start: Callable[..., Run] = small_sac if replay else small_run
        layout = {"max_ahead": 2, "steps": 150} if replay else {"max_lag": 1, "steps": 512, "unroll_length": 8}
        settings = {"actors": 2, "lag": "exact", "shards": self.shards, **layout, **self.more, **changes}
        return start(path, self.env, algorithm=self.algorithm, **settings)


def on(learners: int) -> dict[str, Any]:
    """Return settings for this number of learners."""
    return {"runtime": "processes", "devices": ("cpu",) * learners}


CORE = {"core": "gru", "core_size": 8}
IMAGES: dict[str, Any] = {"envs_per_actor": 2, "steps": 96, "epochs": 1}
CELLS = [
    Cell("ppo", "CartPole-v1", 2, (2, 1), {"kl_target": 0.01, "learning_rate_schedule": "kl"}),
    Cell("sac", "Pendulum-v1", 3, (3, 2), {"prioritized": True, "policy_delay": 2}),
    Cell("ppo", CARTS, 3, (2, 3), {**CORE, "policies": TEAMS, "clip_reference": "proximal", "steps": 256}),
    Cell(
        "impala", "CartPole-v1", 2, (2, 2), {"resident_batches": 2, "passes": 3, "entropy_coef_schedule": "0:1 0.6:0"}
    ),
]
MORE_CELLS = [
    Cell("td3", "Pendulum-v1", 2, (2, 1), {"prioritized": True}),
    Cell("dqn", "CartPole-v1", 2, (2, 1), {"prioritized": True, "n_step": 3}),
    Cell("ppo", "offbeat/Pixels-v0", 2, (2, 2), IMAGES),
    Cell("dqn", "CartPole-v1", 3, (3, 3), {**CORE, "batch_size": 24, "burn_in": 6, "n_step": 3, "prioritized": True}),
    Cell("a2c", "Pendulum-v1", 3, (1, 3), {"learner_threads": 2}),
    Cell("sac", CARTS, 2, (2, 2), {"policies": TEAMS}),
    Cell("ppo", CARTS, 2, (2, 2), {"policies": TEAMS, "league": LEAGUE}),
    Cell("ppo", "CartPole-v1", 2, (2, 2), {"inference": "worker", "env_groups": 2}),
]


@pytest.mark.parametrize(
    "cell", [*CELLS, *thorough(*((cell,) for cell in MORE_CELLS))], ids=lambda c: "-".join(map(str, c[:3]))
)
def test_a_run_with_several_learners_has_the_weights_and_metrics_of_one_learner(tmp_path, cell):
    whole = cell.train(tmp_path / "serial")
    before, after = cell.devices
    stopped = cell.train(tmp_path / "parts", **on(before), stop_at=whole.metrics["env_steps"] // 2)
    assert stopped.state == "interrupted"
    assert weights_of(stopped.path) != weights_of(whole.path)
    resumed = resume(stopped.path, **on(after))
    assert_same(resumed, whole)


@pytest.mark.parametrize("algorithm", [*thorough("ppo", "sac")])
def test_learner_processes_that_load_ahead_have_the_bits_of_one_that_does_not(tmp_path, algorithm):
    cell = Cell(algorithm, "Pendulum-v1", 2, (2, 2))
    serial, run = cell.train(tmp_path / "serial"), cell.train(tmp_path / "run", **on(2), load_ahead=2)
    assert_same(run, serial)


@pytest.mark.parametrize("saved_before", [True, *thorough(False)])
def test_learner_processes_sample_what_rank_0_samples_if_checkpoints_have_no_replay(tmp_path, saved_before):
    """Before the change of save_replay the checkpoint has a replay, which is restored."""
    cell = Cell("sac", "Pendulum-v1", 2, (1, 2), {"prioritized": True})
    stopped = cell.train(tmp_path / "run", stop_at=100, save_replay=saved_before)
    copytree(stopped.path, tmp_path / "copy", symlinks=True)
    one, two = (resume(tmp_path / name, save_replay=False, **more) for name, more in (("run", {}), ("copy", on(2))))
    assert one.metrics["updates"] > stopped.metrics["updates"]
    assert_same(two, one)


class Followed(NamedTuple):
    """A run with two learner processes."""

    path: Path
    status: dict[str, Any]
    """Its status at the first line of metrics."""
    finished: list[tuple[int, ...]]
    """Of each learning step, as it ends here: how many steps each learner is further than before it."""


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> Followed:
    path, learn = tmp_path_factory.mktemp("followed") / "run", LearnerProcesses.learn
    seen, finished = list[dict[str, Any]](), list[tuple[int, ...]]()

    def noted(learners: LearnerProcesses, step: int, progress: float) -> list[Learned]:
        results = learn(learners, step, progress)
        finished.append(tuple(int(row[0]) - step for row in learners._board.next))
        return results

    with patch.object(LearnerProcesses, "learn", noted):
        CELLS[0].train(path, **on(2), steps=256, callbacks=[lambda _line: seen.append(status_of(path))])
    return Followed(path, seen[0], finished)


def test_status_lists_the_learner_processes_and_metrics_have_the_time_of_their_exchanges(followed):
    roles = [(process["role"], process["index"]) for process in followed.status["processes"]]
    assert roles == [("main", 0), ("learner", 1), ("actor", 0), ("actor", 1)]
    line = lines_of(followed.path)[-1]
    assert line["learner_exchange_time_ms"] > 0
    assert line["learner_exchange_time_ms"] <= line["learner_prepare_time_ms"] + line["learner_grad_time_ms"]
    assert line["memory/learner-1_mb"] > 0


def test_a_learning_step_ends_when_all_learners_have_finished_it(followed):
    assert set(followed.finished) == {(1, 1)}, "until then others may read the slots"


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The path of the same run with one learner."""
    return CELLS[0].train(tmp_path_factory.mktemp("alone") / "run", **on(1), steps=256).path


def test_one_learner_exchanges_nothing(alone):
    assert lines_of(alone)[-1]["learner_exchange_time_ms"] == 0


def versions_in(run: Path) -> dict[str, Any]:
    state = load(run / "checkpoints/latest").state
    assert state is not None
    versions: dict[str, Any] = state["versions"]
    return versions


def test_learner_processes_write_no_file_and_publish_no_weights(alone, followed):
    """The versions in a checkpoint are those of rank 0, and each is written once."""
    versions, expected = versions_in(followed.path), versions_in(alone)
    assert list(versions) == list(expected)
    assert all((versions[number] == expected[number]).all() for number in versions)


def test_no_rows_are_sent_to_a_learner_process_which_has_them_in_shared_memory():
    def sent_bytes(unroll_length: int) -> int:
        again = {"passes": 2, "resident_batches": 2, "unroll_length": unroll_length}
        with begun("CartPole-v1", max_lag=0, actors=1, unrolls_per_batch=1, **again) as (parts, acting):
            acting.wait(1)
            parts.policy.learner.learn(0, 0.0)
            return len(dumps(_state_of(parts.policy)))

    assert sent_bytes(128) == sent_bytes(16)
