"""A run with several policies in one world. Memory, metrics and files of each policy are its own."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from tests.support.replay_runs import SMALL_SAC, small_sac
from tests.support.runs import SMALL, contents, lines_of, offbeat, small_run, untimed, weights_of, weights_of_each

from offbeat.api.resume import resume
from offbeat.api.running.checkpoint_fit import require_checkpoint_fit
from offbeat.config.config_file import load as load_config
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.envs.testing.games import PLAYERS, RockPaperScissors
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.assembly import build_paced
from offbeat.runtime.learners import processes
from offbeat.runtime.learners.processes import learners_of
from offbeat.runtime.loop.paced_workforce import PacedWorkforce
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of

CARTS, MIXED = "offbeat.envs.testing.worlds:CartPoles", "offbeat.envs.testing.worlds:MixedSpaces"
CARTS_POLICIES: dict[str, dict[str, Any]] = {
    "cat": {"agents": "cart_1"},
    "dog": {"agents": "*", "settings": {"learning_rate": 1e-4}},
}
SETTINGS: dict[str, Any] = {"steps": 384, "actors": 2, "max_lag": 1, "lag": "exact", "envs_per_actor": 2}
CARTS_RUN: dict[str, Any] = {**SETTINGS, "unroll_length": 8, "env": CARTS, "policies": CARTS_POLICIES}


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs") / "serial", runtime="serial", **CARTS_RUN)


def test_learners_that_run_side_by_side_have_the_bits_of_serial(serial, tmp_path, monkeypatch):
    written: list[int] = []
    monkeypatch.setattr(processes, "write_blas_memory", lambda *, threads: written.append(threads))
    run = small_run(tmp_path / "run", runtime="processes", learner_workers=2, **CARTS_RUN)
    assert weights_of_each(run.path) == weights_of_each(serial.path)
    assert [untimed(line) for line in lines_of(run.path)] == [untimed(line) for line in lines_of(serial.path)]
    assert written == [2]


def test_two_policies_with_shards_have_the_bits_of_serial_side_by_side(serial, tmp_path):
    cut, side_by_side = (
        small_run(tmp_path / layout["runtime"], shards=3, **layout, **CARTS_RUN)
        for layout in ({"runtime": "serial"}, {"runtime": "processes", "learner_workers": 2})
    )
    with_shards, without = weights_of_each(cut.path), weights_of_each(serial.path)
    assert weights_of_each(side_by_side.path) == with_shards
    assert all(with_shards[name] != weights for name, weights in without.items()), "they differ by rounding"
    value_loss = "policies/dog/value_loss"
    assert cut.metrics[value_loss] == pytest.approx(serial.metrics[value_loss], rel=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learner_workers": 3, "policies": CARTS_POLICIES}, "learner_workers is 3, but a run with 2 policies has"),
        ({"learner_workers": 2}, "learner_workers is 2, but a run with 1 policy has"),
        ({"learner_workers": 2, "runtime": "serial"}, "learner_workers is 2, which is not supported by the serial"),
    ],
)
def test_more_learner_workers_than_policies_are_refused(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        small_run(tmp_path / "run", **{"runtime": "processes", "env": CARTS, **settings})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("policies", ["shared", "separate"])
def test_agents_that_appear_late_have_the_bits_of_serial_in_processes(policies, tmp_path):
    late = {**SETTINGS, "env": "offbeat.envs.testing.worlds:LateArrivals", "policies": policies}
    runs = [small_run(tmp_path / runtime, runtime=runtime, **late) for runtime in ("serial", "processes")]
    first, second = ([untimed(line) for line in lines_of(run.path)] for run in runs)
    assert first == second
    assert first[-1]["env_steps"] < first[-1]["agent_steps"]


def test_agents_with_stacked_images_have_the_bits_of_serial_in_processes_and_after_a_resume(tmp_path):
    cameras = {
        **SETTINGS, "env": "offbeat.envs.testing.worlds:Cameras", "frame_stack": 3, "steps": 192, "epochs": 1,
        "eval_every": 64, "unroll_length": 8, "eval_episodes": 1, "evaluator": "inline",
    }  # fmt: skip
    runs = [
        small_run(tmp_path / "serial", runtime="serial", **cameras),
        resume(small_run(tmp_path / "other", runtime="processes", stop_at=96, **cameras).path, runtime="serial"),
    ]
    first, second = ([untimed(line) for line in lines_of(run.path)] for run in runs)
    assert first[-1] == second[-1]
    assert weights_of(runs[0].path) == weights_of(runs[1].path) != weights_of(runs[0].path, f"step-{0:012d}")


class WaitsLate(RockPaperScissors):
    """The second player waits in the tenth round. All infos say whether an agent waits."""

    def __init__(self) -> None:
        super().__init__(rounds=12)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed, options)[0], self._waits(0)

    def step(self, actions: Any) -> Any:
        *parts, _ = super().step({PLAYERS[1]: 0, **actions})
        return *parts, self._waits(self._played)

    def _waits(self, played: int) -> dict[str, dict[str, Any]]:
        return {player: {"no_decision": played == 9 and player == PLAYERS[1]} for player in PLAYERS}


def test_agents_may_wait_for_the_first_time_after_the_test_steps_before_a_run_if_all_infos_say_whether_they_do(
    tmp_path,
):
    run = small_run(tmp_path / "run", f"{__name__}:WaitsLate", runtime="serial", steps=256)
    waits = run.metrics["env_steps"] / 12
    assert 2 * run.metrics["env_steps"] - run.metrics["agent_steps"] == pytest.approx(waits, abs=4)


def test_the_size_of_each_replay_is_reported_with_the_name_of_its_policy():
    small = {"policies": "separate", "capacity": 400, "warmup": 64, "batch_size": 16, "hidden_sizes": (8,)}
    lines: list[str] = []
    build_paced(resolve("sac", MIXED, flags=small), lines.append, shared=False).close()
    assert [line.partition(": ")[0] for line in lines] == ["policy driver", "policy gunner", "policy scout"]


def test_agents_with_different_spaces_have_a_policy_each(tmp_path):
    run = small_run(tmp_path / "run", runtime="serial", env=MIXED, policies="separate", **SETTINGS)
    assert list(weights_of_each(run.path)) == ["driver", "gunner", "scout"]
    line = lines_of(run.path)[-1]
    assert line["agent_steps"] == 3 * line["env_steps"]


def test_agents_with_different_spaces_cannot_share_a_policy(tmp_path):
    with pytest.raises(ConfigError, match=r"scout and driver of .*, whose observations differ: give each kind"):
        small_run(tmp_path / "run", runtime="serial", env=MIXED, **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_a_minibatch_may_have_the_rows_of_all_agents_and_no_more(tmp_path):
    config = {**SETTINGS, "env": CARTS, "actors": 1, "max_lag": 0, "steps": 100}
    small_run(tmp_path / "run", minibatch_size=96, **config)
    with pytest.raises(ConfigError, match="envs_per_actor x agents = 1 x 16 x 2 x 3 agents = 96 rows"):
        small_run(tmp_path / "other", minibatch_size=97, **config)
    assert not (tmp_path / "other").exists()


def test_a_policy_whose_own_settings_do_not_suit_the_env_is_named():
    policies = {**CARTS_POLICIES, "dog": {"agents": "*", "settings": {"encoder": "nature_cnn"}}}
    config = resolve("ppo", CARTS, flags={**SETTINGS, "policies": policies})
    with pytest.raises(ConfigError, match=r"the policy dog, in \[policies.dog.settings\]: encoder is nature_cnn, but"):
        build_paced(config, print, shared=False)


def test_an_env_with_one_agent_cannot_have_several_policies(tmp_path):
    with pytest.raises(ConfigError, match="CartPole-v1 has one agent, so it cannot have several policies"):
        small_run(tmp_path / "run", runtime="serial", policies="separate", **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_a_policy_that_does_not_learn_keeps_its_weights_and_has_no_slots(serial, tmp_path):
    policies = {"cat": {**CARTS_POLICIES["cat"], "train": False}, "dog": CARTS_POLICIES["dog"]}
    frozen = {**CARTS_RUN, "policies": policies, "init_from": str(serial.path)}
    runs = [small_run(tmp_path / runtime, runtime=runtime, **frozen) for runtime in ("serial", "processes")]
    before, first, other = (weights_of_each(run.path) for run in (serial, *runs))
    assert other == first
    assert first["cat"] == before["cat"]
    assert first["dog"] != before["dog"]
    parts = build_paced(resolve("ppo", CARTS, flags={**SMALL, **SETTINGS, **frozen_flags(frozen)}), print, shared=False)
    assert any(name.startswith("policies/dog/unrolls/") for name in parts.arrays)
    assert not any(name.startswith("policies/cat/unrolls/") for name in parts.arrays)
    parts.close()


def frozen_flags(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: settings[key] for key in ("policies", "init_from")}


def test_policies_of_the_same_shape_begin_with_weights_of_their_own():
    parts = build_paced(resolve("ppo", CARTS, flags={**SETTINGS, "policies": CARTS_POLICIES}), print, shared=False)
    cat, dog = (policy.algorithm.weights() for policy in parts.policies)
    parts.close()
    layer = "policy_body.0.weight"
    assert cat[layer].shape == dog[layer].shape
    assert not np.isclose(cat[layer], dog[layer]).any()


def test_settings_of_one_policy_do_not_change_what_another_learns_in_a_learning_step():
    other = {**CARTS_POLICIES, "dog": {"agents": "*", "settings": {"hidden_sizes": (16,), "learning_rate": 1e-3}}}
    weights = []
    for tables in (CARTS_POLICIES, other):
        config = resolve("ppo", CARTS, flags={**SMALL, **SETTINGS, "runtime": "serial", "policies": tables})
        parts = build_paced(config, print, shared=False)
        reporting = Reporting(print, print)
        acting = acting_of(parts, 0, reporting)
        work = PacedWorkforce(parts, acting, learners_of(parts, acting, reporting), print)
        work.publish_initial({})
        work.start()
        work.wait(lambda: None)
        work.learn(progress=0.0, env_steps=0)
        weights.append(parts.weights())
        work.close()
        acting.close()
        parts.close()
    first, second = weights
    assert all((first["cat"][name] == array).all() for name, array in second["cat"].items())
    assert any((first["dog"][name] != array).any() for name, array in second["dog"].items())


ON_POLICY: dict[str, Any] = {**CARTS_RUN, "runtime": "serial"}


def test_a_policy_that_does_not_save_its_replay_warms_up_again_and_the_others_go_on(tmp_path):
    policies = {**CARTS_POLICIES, "cat": {"agents": "cart_1", "settings": {"save_replay": False}}}
    stopped = small_sac(tmp_path / "run", CARTS, algorithm="dqn", policies=policies, stop_at=200)
    resumed = resume(stopped.path)
    assert resumed.state == "finished"
    log, size = (stopped.path / "log.txt").read_text(), stopped.metrics["policies/dog/replay_size"]
    assert "; cat: the checkpoint has no replay: it warms up again, and the ratio counts from here; dog: " in log
    assert f"dog: the replay of {size:.0f} transitions restored" in log
    assert resumed.metrics["policies/cat/replay_size"] < resumed.metrics["policies/dog/replay_size"]


def test_policies_with_batches_of_different_sizes_have_the_bits_of_serial_in_every_runtime(tmp_path):
    policies = {**CARTS_POLICIES, "cat": {"agents": "cart_1", "settings": {"batch_size": 8}}}
    shared: dict[str, Any] = {"algorithm": "dqn", "policies": policies, "actors": 2, "max_ahead": 2, "lag": "exact"}
    shared["steps"] = 150
    serial, threads = (
        small_sac(tmp_path / runtime, CARTS, runtime=runtime, **shared) for runtime in ("serial", "threads")
    )
    assert weights_of_each(serial.path) == weights_of_each(threads.path)
    sampled = [serial.metrics[f"policies/{name}/samples_per_insert"] for name in ("cat", "dog")]
    assert sampled[1] == pytest.approx(
        sampled[0] * SMALL_SAC["batch_size"] / 8, rel=0.02
    )  # the last update is due or not


def test_a_resume_says_which_policies_keep_their_own_values_of_a_changed_setting(tmp_path):
    stopped = small_run(tmp_path / "run", stop_at=160, **ON_POLICY)
    resume(stopped.path, learning_rate=1e-3)
    log = (stopped.path / "log.txt").read_text()
    assert "settings changed: learning_rate from 0.0003 to 0.001; the policy dog keeps its own learning_rate" in log


def test_a_resume_changes_the_setting_of_one_policy(tmp_path):
    stopped = small_run(tmp_path / "run", stop_at=160, **ON_POLICY).path
    said = offbeat(
        "resume", stopped, "--progress", "none", "--set", "policies.dog.settings.learning_rate=1e-30",
        "policies.cat.settings.gamma=0.9",
    )  # fmt: skip
    assert said.code == 0, said.err
    tables = load_config(stopped / "config.toml").policies
    assert tables["dog"].settings == {"learning_rate": 1e-30}
    assert tables["cat"].settings == {"gamma": 0.9}
    rates = [lines_of(stopped)[-1][f"policies/{name}/learning_rate"] for name in ("cat", "dog")]
    assert rates[0] > rates[1] == pytest.approx(0, abs=1e-30)
    log = (stopped / "log.txt").read_text()
    assert "policies.dog.settings.learning_rate from 0.0001 to 1e-30" in log
    assert "policies.cat.settings.gamma from 0.99 to 0.9" in log


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hidden_sizes", "4", "policies.cat.settings.hidden_sizes is 16 in .* cannot change it to 4: .* network"),
        ("unroll_length", "4", "[policies.cat.settings] has unroll_length, which all policies of a run share"),
        ("steps", "4", "[policies.cat.settings] has steps, which all policies of a run share"),
    ],
)
def test_a_resume_refuses_what_one_policy_cannot_change(key, value, says, serial):
    before = contents(serial.path)
    with pytest.raises(ConfigError, match=re.escape(says).replace(r"\.\*", ".*")):
        resume(serial.path, steps=2048, **{f"policies.cat.settings.{key}": value})
    assert contents(serial.path) == before


def test_each_policy_has_metrics_and_files_of_its_own(serial):
    line = lines_of(serial.path)[-1]
    names = list(CARTS_POLICIES)
    for name in names:
        for metric in ("policy_loss", "policy_lag_mean", "episode_return_mean", "learning_rate", "agent_steps"):
            assert line[f"policies/{name}/{metric}"] is not None
    assert line["episodes"] == sum(line[f"policies/{name}/episodes"] for name in names)
    assert line["agent_steps"] == sum(line[f"policies/{name}/agent_steps"] for name in names)
    assert line["policy_loss"] is None
    saved = load(serial.path / "checkpoints" / "latest")
    assert list(saved.policies) == names
    assert saved.state is not None
    learners = [saved.state["policies"][name]["learner"] for name in names]
    for part in ("algorithm", "adam"):
        first, second = (json.dumps(learner[part], default=np.ndarray.tolist) for learner in learners)
        assert first != second


def test_progress_lines_show_the_return_of_each_policy_agent_steps_and_lag(capsys, tmp_path):
    run = small_run(tmp_path / "run", runtime="serial", progress="lines", **{**CARTS_RUN, "steps": 512})
    line = lines_of(run.path)[-1]
    shown = capsys.readouterr().err.splitlines()
    (last,) = [text for text in shown if text.startswith("100%")]
    returns = ", ".join(f"{name} {line[f'policies/{name}/episode_return_mean']:.1f}" for name in CARTS_POLICIES)
    assert f" ({returns})  " in last
    assert f"{line['agent_steps'] / 1000:.3g}k agent steps  " in last
    assert "  policy lag 1 learning steps" in last


def test_a_checkpoint_of_other_policies_is_refused(serial):
    saved = load(serial.path / "checkpoints" / "latest")
    parts = build_paced(resolve("ppo", "CartPole-v1", flags={}), print, shared=False)
    with pytest.raises(ConfigError, match="has the policies cat, dog, but these settings have default"):
        require_checkpoint_fit(saved, parts, serial.path)
    parts.close()
