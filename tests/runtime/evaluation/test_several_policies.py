"""All policies of a run are evaluated together, in the same episodes of worlds with several agents."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import lines_of, small_run, status_of, untimed, wait_until

from offbeat.run_directory.checkpoint import load
from offbeat.runtime.evaluation import schedule as evaluations

CARTS, MIXED = "offbeat.envs.testing.worlds:CartPoles", "offbeat.envs.testing.worlds:MixedSpaces"
TO_KILL = "tests.sample_envs.evaluated_envs:CartsToKill"
POLICIES: dict[str, dict[str, Any]] = {
    "cat": {"agents": "cart_1"},
    "dog": {"agents": "*", "settings": {"learning_rate": 1e-4}},
}
SETTINGS: dict[str, Any] = {"steps": 1024, "actors": 2, "max_lag": 1, "lag": "exact", "envs_per_actor": 2}
EVALUATED: dict[str, Any] = {**SETTINGS, "env": CARTS, "policies": POLICIES, "eval_every": 512, "eval_episodes": 3}
OF_AGENTS = ("return_mean", "return_std", "return_min", "return_max", "length_mean", "team_return_mean")


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs") / "serial", runtime="serial", evaluator="inline", **EVALUATED).path


def best_weights(run: Path) -> dict[str, bytes]:
    policies = run / "checkpoints" / "best" / "policies"
    return {path.name: (path / "weights.safetensors").read_bytes() for path in sorted(policies.iterdir())}


def evaluated(run: Path) -> list[dict[str, Any]]:
    """What the metrics lines say of evaluations."""
    return [{name: value for name, value in line.items() if "eval_" in name} for line in lines_of(run)]


@pytest.mark.parametrize(("runtime", "evaluator"), [("threads", "inline"), ("processes", "process")])
def test_evaluations_of_two_policies_have_the_bits_of_serial_in_every_runtime(runtime, evaluator, serial, tmp_path):
    run = small_run(tmp_path / "run", runtime=runtime, evaluator=evaluator, **EVALUATED).path
    assert [untimed(line) for line in lines_of(run)] == [untimed(line) for line in lines_of(serial)]
    assert list(best_weights(run)) == ["cat", "dog"]
    assert best_weights(run) == best_weights(serial)


def test_an_evaluation_has_metrics_of_all_agents_and_of_each_policy(serial):
    line = lines_of(serial)[-1]
    assert line["evaluations"] == 2
    cat, dog = ({key: line[f"policies/{name}/eval_{key}"] for key in OF_AGENTS} for name in POLICIES)
    assert cat["team_return_mean"] == cat["return_mean"] == cat["length_mean"]  # a cart gets 1 a step
    assert dog["team_return_mean"] == pytest.approx(2 * dog["return_mean"])
    assert cat["return_mean"] != dog["return_mean"]
    assert line["eval_return_mean"] == pytest.approx((cat["return_mean"] + 2 * dog["return_mean"]) / 3)
    assert line["eval_team_return_mean"] == pytest.approx(3 * line["eval_return_mean"])
    assert line["eval_return_min"] == min(cat["return_min"], dog["return_min"])
    assert line["eval_return_max"] == max(cat["return_max"], dog["return_max"])


def test_the_best_checkpoint_has_the_highest_mean_return_of_the_agents_that_learn(serial, tmp_path):
    scores = [line["eval_return_mean"] for line in lines_of(serial) if line["eval_return_mean"] is not None]
    best = load(serial / "checkpoints" / "best").policies
    assert [policy.about["eval_return_mean"] for policy in best.values()] == [max(scores)] * 2

    frozen = {**POLICIES["cat"], "train": False, "init_from": str(serial)}
    policies = {"cat": frozen, "dog": POLICIES["dog"]}
    one_learns = {**EVALUATED, "policies": policies, "runtime": "serial", "evaluator": "inline"}
    run = small_run(tmp_path / "run", **one_learns).path
    line = lines_of(run)[-1]
    for key in OF_AGENTS:
        assert line[f"eval_{key}"] == line[f"policies/dog/eval_{key}"]
    assert line["policies/cat/eval_return_mean"] > 0
    scores = [line["eval_return_mean"] for line in lines_of(run) if line["eval_return_mean"] is not None]
    best = load(run / "checkpoints" / "best").policies
    assert best["dog"].about["eval_return_mean"] == max(scores) == line["best_eval_return_mean"]


def test_agents_with_different_spaces_are_evaluated_together(tmp_path):
    settings = {**SETTINGS, "policies": "separate", "eval_every": 512, "eval_episodes": 3, "evaluator": "inline"}
    line = lines_of(small_run(tmp_path / "run", env=MIXED, runtime="serial", **settings).path)[-1]
    means = {name: line[f"policies/{name}/eval_return_mean"] for name in ("driver", "gunner", "scout")}
    assert means["driver"] < 0 <= min(means["gunner"], means["scout"]) <= max(means["gunner"], means["scout"]) <= 8
    assert line["eval_team_return_mean"] == pytest.approx(sum(means.values()))
    assert line["eval_length_mean"] == 8


def test_the_return_of_a_team_is_a_metric_only_with_several_agents(tmp_path):
    settings = {**SETTINGS, "runtime": "serial", "eval_every": 1024, "eval_episodes": 2, "evaluator": "inline"}
    shared = lines_of(small_run(tmp_path / "shared", env=CARTS, **settings).path)[-1]
    assert shared["eval_team_return_mean"] == pytest.approx(3 * shared["eval_return_mean"])
    assert not any(name.startswith("policies/") for name in shared)
    alone = lines_of(small_run(tmp_path / "alone", **settings).path)[-1]
    assert alone["eval_return_mean"] is not None
    assert alone["eval_team_return_mean"] is None


def test_an_evaluator_of_several_policies_that_is_killed_repeats_the_evaluation(serial, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluations, "POLL_INTERVAL_S", 0.01)
    monkeypatch.chdir(tmp_path)

    def kill() -> None:
        wait_until(Path("READY").exists)
        Path("KILLED").touch()
        for process in status_of(Path("run"))["processes"]:
            if process["role"] == "evaluator":
                os.kill(process["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    run = small_run(Path("run"), runtime="serial", **{**EVALUATED, "env": TO_KILL}).path
    killer.join(10)
    assert lines_of(run)[-1]["evaluator_restarts"] == 1
    assert "was killed by SIGKILL" in (run / "log.txt").read_text()
    assert evaluated(run) == evaluated(serial)
    assert best_weights(run) == best_weights(serial)
