"""Whole populations of small runs: the family tree does not depend on timing, and a killed population continues."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import pytest
from tests.support.pages import directory_at, directory_on
from tests.support.populations import (
    CARTS,
    CARTS_POLICIES,
    SETTINGS,
    TABLE,
    begun,
    finish,
    population,
    population_text,
    run_here,
    small_population,
    tree_of,
    weights,
)
from tests.support.runs import (
    Started,
    is_alive,
    offbeat,
    small_run,
    status_of,
    stop_in_evaluation,
    weights_of,
)
from tests.support.thorough import thorough
from tests.support.warm import REPOSITORY

from offbeat.cli.run import _PopulationCommand
from offbeat.config.config_file import load
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.messages import ignore
from offbeat.experiments.launching import LocalLauncher
from offbeat.experiments.progress import JobCounts, JobsView
from offbeat.experiments.running import Child, JobOutcome
from offbeat.population import pictures
from offbeat.population.ledger import Failure, Ledger
from offbeat.population.members import MemberJob, Scoring, Training
from offbeat.population.population import RESTARTS_AFTER_KILL, Population, Schedule
from offbeat.population.report import link_winner, rows_of, write_report
from offbeat.run_directory.checkpoint import load as load_checkpoint
from offbeat.run_directory.names import LEDGER
from offbeat.runtime.evaluation.evaluators import InlineEvaluator


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Population:
    """A population that was run in one order, to its end."""
    done = population(tmp_path_factory.mktemp("finished"))
    assert not run_here(done).failed
    return done


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Population:
    """A small population that was run in one order, to its end."""
    done = small_population(tmp_path_factory.mktemp("undisturbed"))
    assert not run_here(done).failed
    assert copies_of(done)
    return done


@pytest.fixture(scope="module")
def winner(finished) -> int:
    """The winner that the report of the finished population has."""
    winner = write_report(finished.plan, finished.directory, finished.family(), ignore)
    assert winner is not None
    return winner


def copies_of(done: Population) -> list[Any]:
    """Return the decisions to copy."""
    decisions = done.family().ledger.decisions
    return [decision for _, decision in sorted(decisions.items()) if decision.donor is not None]


# --- timing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, *thorough(2, 3)])
def test_the_family_tree_and_the_bits_do_not_depend_on_the_order_of_processes(finished, tmp_path, seed):
    other = population(tmp_path)
    run_here(other, seed)
    assert copies_of(finished)
    assert tree_of(other) == tree_of(finished)
    assert weights(other) == weights(finished)


@pytest.mark.thorough
def test_with_a_lag_the_tree_does_not_depend_on_the_order_either(tmp_path):
    trees = []
    for seed in range(2):
        one = population(tmp_path / str(seed), {"lag": 1})
        run_here(one, seed)
        trees.append((tree_of(one), weights(one)))
        assert copies_of(one)
    assert trees[0] == trees[1]


def test_another_seed_gives_another_tree(finished, tmp_path):
    other = population(tmp_path, seeds=[2])
    assert other.family().seed != finished.family().seed
    assert all(other.family().values(member, 0) != finished.family().values(member, 0) for member in range(3))


def test_a_population_that_ends_before_any_process_or_in_a_copy_continues_to_the_same_tree(undisturbed, tmp_path):
    again = small_population(tmp_path)
    for kind, before in [(Training, 0), (Scoring, 0), (Scoring, 1)]:
        assert ends_at(again, kind, before)
    broken = patch("offbeat.population.population.with_policies_of", side_effect=KeyboardInterrupt)
    with broken, pytest.raises(KeyboardInterrupt):
        run_here(again)
    assert copies_of(again)  # it was decided, but not made
    for kind in (Training, Scoring):
        assert ends_at(again, kind, 0)
    run_here(again)
    assert tree_of(again) == tree_of(undisturbed)
    assert weights(again) == weights(undisturbed)


def test_a_population_that_is_stopped_in_an_evaluation_at_the_end_of_a_generation_continues_to_the_same_tree(tmp_path):
    by_training: dict[str, Any] = {"table": {"objective": "eval_return_mean"}, "settings": {"eval_every": 256}}
    whole, stopped = (small_population(tmp_path / name, **by_training) for name in ("whole", "stopped"))
    run_here(whole)

    def stop_in_training(job: Any) -> bool:
        with patch.object(InlineEvaluator, "poll", stop_in_evaluation):
            return offbeat(*job.arguments()).code == 130

    for _ in range(2):
        run_here(stopped, stop=stop_in_training)
    run_here(stopped)
    assert tree_of(stopped) == tree_of(whole)
    assert weights(stopped) == weights(whole)


def ends_at(one: Population, kind: type[Any], before: int) -> bool:
    """Run up to a job of a kind, after `before` others of this kind; return whether there was one."""
    of_kind = []

    def stop(job: Any) -> bool:
        of_kind.extend([job] if isinstance(job, kind) else [])
        return len(of_kind) > before

    run_here(one, stop=stop)
    return len(of_kind) > before


# --- what a copy is -----------------------------------------------------------------------------------------


def test_a_copy_trains_on_from_the_donors_weights_with_mutated_values(tmp_path):
    one = small_population(tmp_path)
    seen: dict[str, Any] = {}

    def stop(job: Any) -> bool:
        copied = {decision.member: decision for decision in copies_of(one)} if job.generation == 1 else {}
        if isinstance(job, Training) and job.member in copied:
            seen.update(decision=copied[job.member], run=job.run, job=job)
            return True
        return False

    run_here(one, stop=stop)
    decision, run = seen["decision"], seen["run"]
    donor = load_checkpoint(one.path / "kept" / f"member-{decision.donor:03}-generation-000")
    own = run.read_checkpoint("latest")
    assert all((own.weights[name] == donor.weights[name]).all() for name in donor.weights)
    values = ", ".join(f"{key} {value:g}" for key, value in decision.values.items())
    assert f"copied the weights of member-{decision.donor:03} after generation 0" in run.log_file.read_text()
    assert values in run.log_file.read_text()
    assert f"{run.path.name} copied the weights" in (one.path / f"member-{decision.donor:03}/log.txt").read_text()
    run_here(one)
    config = load(run.config_file)
    last = one.family().values(decision.member, 1)
    assert {key: config.tables()["ppo"][key] for key in last} == pytest.approx(last)


def test_a_copy_has_all_policies_and_the_mutated_setting_of_one_policy(tmp_path):
    fox = {
        "agents": "cart_0",
        "train": False,
        "init_from": str(small_run(tmp_path / "fox", CARTS, steps=64, hidden_sizes=(8,)).path),
    }
    own = {
        "dog": {"settings": {"learning_rate": {**TABLE["mutate"]["learning_rate"], "initial": "settings"}}},
        "cat": {"settings": {"gamma": TABLE["mutate"]["gamma"]}},
    }
    one = small_population(
        tmp_path, {"objective": "policies/dog/return_mean", "mutate": {"policies": own}},
        env=CARTS, policies={"fox": fox, **CARTS_POLICIES}, seeds=[4],
    )  # fmt: skip
    assert not run_here(one).failed  # with seed 4 the scores differ much: of equal ones none would be copied
    (decision,) = [each for each in copies_of(one) if each.generation == 0]
    log = (one.path / f"member-{decision.member:03}/log.txt").read_text()
    assert f"copied the weights of member-{decision.donor:03} after generation 0" in log
    rate, gamma = "policies.dog.settings.learning_rate", "policies.cat.settings.gamma"
    assert one.family().values(0, 0)[rate] == one.family().values(1, 0)[rate] == 1e-4 != decision.values[rate]
    policies = load(one.path / f"member-{decision.member:03}/config.toml").policies
    assert dict(policies["dog"].settings) == {"learning_rate": decision.values[rate]}
    assert dict(policies["cat"].settings) == {"gamma": decision.values[gamma]}
    for (member, generation), score in one.family().ledger.scores.items():
        result = json.loads((one.path / f"scores/member-{member:03}-generation-{generation:03}.json").read_text())
        assert score.score == result["policies"]["dog"]["return_mean"]


SEPARATE: dict[str, Any] = {
    "env": CARTS, "settings": {"policies": "separate", "eval_every": 256, "eval_episodes": 2},
}  # fmt: skip
"""Changes for a world with a policy for each agent."""


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ({"objective": "team_return_mean"}, SEPARATE),
        ({"objective": "policies/cart_0/eval_return_mean"}, SEPARATE),
        ({"objective": "episode_length_mean", "maximize": False}, {}),
    ],
)
def test_objectives_of_evaluations_and_of_training_are_measured(tmp_path, table, changes):
    one = small_population(tmp_path, table, **changes)
    assert not run_here(one, stop=is_of_the_next_generation).failed
    assert copies_of(one)


def is_of_the_next_generation(job: Any) -> bool:
    """Whether a job is not of the first generation."""
    return isinstance(job, MemberJob) and job.generation > 0


def test_members_differ_in_their_seeds_and_their_first_values(finished):
    configs = finished.plan.configs
    assert len({config.run.seed for config in configs}) == 3
    assert len({config.tables()["ppo"]["learning_rate"] for config in configs}) == 3


def test_every_member_trains_for_all_steps(finished):
    for member in range(3):
        run = finished.path / f"member-{member:03}"
        assert status_of(run)["state"] == "finished"
        assert load(run / "config.toml").run.stop_at is None


@pytest.mark.parametrize("lag", [0, *thorough(1)])
def test_only_checkpoints_that_a_decision_can_need_are_kept(tmp_path, lag):
    one = population(tmp_path, {"members": 2, "lag": lag})
    run_here(one, stop=lambda job: isinstance(job, Training) and job.generation == 2)
    done = [one.family().ledger.finished(member) for member in range(2)]
    assert max(done) == 2
    kept = {int(path.name.rpartition("-")[2]) for path in (one.path / "kept").iterdir()}
    assert kept == set(range(max(0, min(done) - 1 - lag), max(done)))
    (one.path / "kept" / ".nfs-of-a-file-server").touch()
    run_here(one)
    assert [path.name for path in (one.path / "kept").iterdir()] == [".nfs-of-a-file-server"]


def test_a_damaged_checkpoint_fails_the_member_that_copies_it_with_the_reason(tmp_path):
    one = small_population(tmp_path)
    run_here(one, stop=lambda job: isinstance(job, Scoring) and len(one.family().ledger.scores) == 1)
    for kept in (one.path / "kept").iterdir():
        (kept / "weights.safetensors").unlink()  # a hard link: that of the run stays
        (kept / "weights.safetensors").write_bytes(b"")
    failed = run_here(one).failed
    (copy,) = copies_of(one)
    assert list(failed) == [copy.member]
    assert "damaged" in failed[copy.member].reason


def test_a_member_whose_run_directory_is_missing_is_not_trained_from_new_weights(tmp_path):
    one = population(tmp_path, {"members": 2})
    run_here(one, stop=lambda job: isinstance(job, Training) and job.generation == 1)
    kept = next(each.member for each in one.family().ledger.decisions.values() if each.donor is None)
    run = one.path / f"member-{kept:03}"
    run.rename(tmp_path / "moved")
    failed = run_here(one).failed
    says = f"{run} has no checkpoint, from which member-{kept:03} generation"
    failure = one.family().ledger.failures[kept, 1]
    assert f"{says} 1 continues" in failure.reason
    assert failure.env_steps == one.family().ledger.scores[kept, 0].env_steps
    assert f"{says} 2 continues" in failed[kept].reason
    assert not run.exists()
    (tmp_path / "moved").rename(run)
    assert not run_here(one).failed


def test_a_dry_run_prints_the_evaluation_of_a_member_whose_training_has_ended(tmp_path):
    one = population(tmp_path)
    run_here(one, stop=lambda job: isinstance(job, Scoring))
    done = {job.member for job in one.known_jobs() if isinstance(job, Scoring)}
    assert done
    assert done == {member for member in range(3) if (one.path / f"member-{member:03}").exists()}


def test_a_dry_run_of_a_finished_population_skips_each_member(finished, capsys):
    _PopulationCommand(finished).print_plan(2)
    assert capsys.readouterr().out.splitlines()[:-1] == [f"member-{member:03}: skip" for member in range(3)]


def test_the_report_has_a_row_for_each_generation_pictures_and_a_link_to_the_winner(finished, winner):
    header, *rows = (finished.path / "table.csv").read_text().splitlines()
    assert header == "generation,member,env_steps,score,copied_member,copied_generation,gamma,learning_rate"
    assert len(rows) == 3 * 3
    scores = [finished.family().ledger.scores[member, 2].score for member in range(3)]
    assert winner == scores.index(max(scores))
    assert weights_of(finished.path / "winner") == weights_of(finished.path / f"member-{winner:03}")
    for name in ("family-tree.png", "values.png", "scores.png"):
        assert (finished.path / name).read_bytes().startswith(b"\x89PNG")
    said = offbeat("eval", finished.path / "winner", "--episodes", "2", "--seed", "1", "--json")
    assert f'"return_mean": {max(scores)}' in said.out


def test_each_panel_of_values_has_its_key_as_title(finished):
    panels = pictures._values(finished.family()).axes
    assert [(axes.get_title(), axes.get_ylabel()) for axes in panels] == [("1 - gamma", ""), ("learning_rate", "")]


def test_the_link_to_the_winner_replaces_its_copy_in_a_copied_population_and_the_copy_is_kept(tmp_path):
    for name in ("member-000", "member-001"):
        (tmp_path / name).mkdir()
    link_winner(tmp_path, 0, ignore)
    copied = shutil.copytree(tmp_path, tmp_path / "copied", symlinks=False)
    (copied / "winner/new.txt").touch()
    messages = list[str]()
    for _ in range(2):
        link_winner(copied, 1, messages.append)
    assert (copied / "winner").readlink() == Path("member-001")
    assert (copied / "winner.copy-1/new.txt").exists()
    assert messages == [
        f"{copied / 'winner'} was a copy of a run in place of a link: it was renamed to {copied / 'winner.copy-1'}"
    ]


@pytest.mark.usefixtures("winner")
def test_a_population_has_the_files_that_the_page_lists(finished):
    logs = {"member-N.log"}  # of processes, which this population has none of
    assert directory_at(finished.path, 1) | logs == directory_on("docs/how-to/populations.md")


def test_an_evaluation_shows_no_returns_of_the_training(finished):
    plan, path = finished.plan, finished.path
    job = Scoring(plan, path, 0, 2, {})
    training = Training(plan, path, 0, 2, {})
    assert "return" in training.summary()
    assert job.summary() == f"{plan.settings.episodes} episodes"
    process: Any = SimpleNamespace(is_waiting=False)
    shown = Child(job, lambda: process).progress().cells()
    assert list(filter(None, shown)) == [f"evaluating {plan.settings.episodes} episodes"]


# --- objectives ---------------------------------------------------------------------------------------------


class Shaped(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole with a bonus for standing still; the info has the upright steps, the true objective."""

    bonus = 0.0

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1").unwrapped)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        shaped = float(reward) - self.bonus * abs(observation[1])
        return observation, shaped, terminated, truncated, {"upright": float(abs(observation[2]) < 0.1)}


@pytest.fixture
def shaped() -> Iterator[str]:
    kind: Any = Shaped
    gym.register("tests/Shaped-v0", kind, max_episode_steps=200)
    yield "tests/Shaped-v0"
    del gym.registry["tests/Shaped-v0"]


def test_a_parameter_of_the_env_mutates_and_the_objective_is_a_number_in_its_infos(shaped, tmp_path):
    mutate = {"curriculum": {"bonus": {"low": 0.1, "high": 10.0}}}
    one = small_population(tmp_path, {"objective": "info/upright", "mutate": mutate}, env=shaped)
    assert not run_here(one).failed
    family = one.family()
    assert all(0 < score.score <= 1 for score in family.ledger.scores.values())
    for member in range(2):
        value = family.values(member, 1)["curriculum.bonus"]
        assert load(one.path / f"member-{member:03}/config.toml").env.curriculum == (f"bonus 0:{value!r}",)


@pytest.mark.parametrize(
    ("objective", "settings", "value"),
    [("eval_return_mean", {"eval_every": 256}, -5.0), ("entropy", {}, 0.2)],
)
def test_an_objective_of_training_is_not_that_of_weights_from_before_a_copy(tmp_path, objective, settings, value):
    one = small_population(tmp_path, {"objective": objective}, settings)
    assert one.plan.configs[0].run.eval_time_share == (1.0 if settings else 0.1)  # 1: no evaluation is skipped
    job = Scoring(one.plan, one.path, 0, 1, {})
    job.run.path.mkdir(parents=True)
    before = {"env_steps": 256, "eval_env_steps": 256, "eval_return_mean": 100.0, "entropy": 0.9}
    copied = {**before, "env_steps": 384, "entropy": None}
    evaluated = {"env_steps": 512, "eval_env_steps": 512, "eval_return_mean": -5.0, "entropy": 0.2}
    job.run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in (before, copied)))
    with pytest.raises(ConfigError, match=f"has no number {objective}"):
        job.score(since=256)
    with job.run.metrics_file.open("a") as file:
        file.write(json.dumps(evaluated) + "\n")
    assert job.score(since=256) == value


@pytest.mark.parametrize("objective", ["info/success:last", "policies/dog/info/success:last"])
def test_the_objective_is_the_score_of_its_name_in_info_metrics(tmp_path, objective):
    one = small_population(tmp_path, {"objective": objective}, env=CARTS, policies=CARTS_POLICIES)
    job, scores = Scoring(one.plan, one.path, 0, 1, {}), {"info/success_last": 0.25}
    job.output.parent.mkdir(parents=True)
    job.output.write_text(json.dumps({**scores, "policies": {"dog": scores, "cat": {}}}))
    assert job.score(since=0) == 0.25


def test_an_objective_that_was_not_measured_fails_the_member_and_says_what_was(shaped, tmp_path):
    one = small_population(tmp_path, {"objective": "info/downright"}, env=shaped)
    failed = run_here(one).failed
    assert sorted(failed) == [0, 1]
    reason = "the evaluation has no number info/downright, the objective, but None: pass another --dir"
    assert failed[0].reason.startswith(reason)
    assert "return_mean" in failed[0].reason


def test_a_missing_objective_is_said_at_once(tmp_path):
    one, seen = small_population(tmp_path, {"objective": "info/success"}), Seen()
    schedule = Schedule(one.plan, one.path, one.family(), seen)
    schedule.ended(JobOutcome(Scoring(one.plan, one.path, 0, 0, {}), "finished", "2 episodes"))
    assert seen.messages[0].startswith("member-000 generation 0 evaluation failed: the evaluation has no number info/s")


# --- failures -----------------------------------------------------------------------------------------------


def test_a_killed_process_is_started_again_a_limited_number_of_times(tmp_path):
    one = population(tmp_path)
    schedule = begun(one)
    job = schedule.first_jobs()[0]
    for _ in range(RESTARTS_AFTER_KILL):
        assert schedule.restart(JobOutcome(job, "failed", "killed", killed=True))
    assert not schedule.restart(JobOutcome(job, "failed", "killed", killed=True))
    assert not schedule.restart(JobOutcome(schedule.first_jobs()[1], "failed", "broken"))


@pytest.mark.parametrize("lag", [1, *thorough(0)])
def test_a_failed_member_continues_with_the_next_generation_once_the_others_need_its_score(tmp_path, lag):
    one = population(tmp_path, {"members": 2, "lag": lag})
    schedule = begun(one)
    stopped = small_run(one.path / "member-000", seed=5, **{**SETTINGS, "stop_at": 128})
    schedule.failed[0] = JobOutcome(schedule.first_jobs()[0], "failed", "broken\nby a test")
    ended = finish(schedule)
    assert not schedule.failed
    ledger = one.family().ledger
    assert [ledger.finished(member) for member in range(2)] == [3, 3]
    failure = Failure(0, 0, stopped.metrics["env_steps"], "broken by a test")
    assert list(ledger.failures.values()) == [failure]
    assert ended.index("member-000 generation 1") > ended.index(f"member-001 generation {lag} evaluation")
    assert ledger.decisions[0, lag].reason.startswith("it has failed, against score") is (lag == 0)
    assert lag or ledger.decisions[0, 0].donor is not None  # with the lag it has a score since then
    assert one.family().winner(2) is not None
    assert [row["failed"] for row in rows_of(one.family())] == ["broken by a test", *[None] * 5]


def test_a_member_that_fails_before_its_first_checkpoint_starts_anew_in_the_next_generation(tmp_path):
    one = small_population(tmp_path)
    schedule = begun(one)
    ended = finish(schedule, lambda job: job.name == "member-000 generation 0")
    assert not schedule.failed
    ledger = one.family().ledger
    assert list(ledger.failures.values()) == [Failure(0, 0, 0, "broken")]
    decision = ledger.decisions[0, 0]
    assert (decision.donor, decision.donor_generation) == (None, None)  # it has copied no weights
    assert decision.reason.endswith("without a checkpoint it copies no weights, only values")
    assert decision.values != one.plan.genome.first(0, 2, one.plan.seed)
    assert load(one.path / "member-000/config.toml").tables()["ppo"]["gamma"] == decision.values["gamma"]
    assert ledger.scores[0, 1].env_steps >= 512
    assert "member-000 generation 1" in ended
    assert str(one.counts(ledger)) == "6 of 8 trainings and evaluations finished, 1 failed"


def test_processes_that_cannot_start_are_counted_as_failed_with_the_reason(tmp_path):
    one = small_population(tmp_path)
    run_here(one, stop=is_of_the_next_generation)
    names = ["member-000", "member-001"]
    for name in names:
        (one.path / name).rename(tmp_path / name)
    seen = Seen()
    result = one.run(LocalLauncher(one.configs, 1), seen)
    assert result.exit_code == 1
    assert sorted(outcome.job.name for outcome in result.failed) == [f"{name} generation 1" for name in names]
    for name in names:
        assert any(f"{name} generation 1 failed: {one.path / name} has no checkpoint" in each for each in seen.messages)
    assert str(seen.counts) == "4 of 8 trainings and evaluations finished, 2 failed"


class Seen(JobsView):
    """A view that keeps its messages and the last counts."""

    def __init__(self) -> None:
        self.messages, self.counts = list[str](), JobCounts(0)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def clear(self, counts: JobCounts) -> None:
        self.counts = counts


def test_members_that_fail_in_the_last_generation_are_tried_again_by_the_next_start(tmp_path):
    one = small_population(tmp_path)
    schedule = begun(one)
    finish(schedule, lambda job: job.name == "member-001 generation 1")
    assert list(schedule.failed) == [1]
    assert not one.family().ledger.failures
    assert one.family().winner(1) is None
    with patch("offbeat.population.report.draw_all") as drawn:
        assert write_report(one.plan, one.directory, one.family(), ignore, schedule.failed) == 0
    assert drawn.call_args.args[3] == schedule.failed
    assert not run_here(one).failed
    assert one.family().ledger.finished(1) == 2


def test_no_failure_is_entered_if_all_members_have_failed(tmp_path):
    one = population(tmp_path)
    schedule = begun(one)
    finish(schedule, lambda _: True)
    assert sorted(schedule.failed) == [0, 1, 2]
    assert not one.family().ledger.failures


def test_a_population_whose_cluster_is_lost_leaves_its_table(tmp_path, monkeypatch):
    def lose(_launcher: object) -> int:
        raise RunFailed("the cluster is lost")

    one = small_population(tmp_path)
    finish(begun(one), lambda job: "generation 1" in job.name)  # so that these are tried again
    monkeypatch.setattr(LocalLauncher, "room", lose)
    monkeypatch.setattr("offbeat.population.report.draw_all", lambda *_: None)
    with pytest.raises(RunFailed, match="the cluster is lost"):
        one.run(LocalLauncher(one.configs, 1), JobsView())
    assert one.directory.csv.is_file()


# --- real processes -----------------------------------------------------------------------------------------


def processes_of(path: Path) -> list[int]:
    """Return the processes that train a member."""
    runs = [run for run in path.glob("member-*") if (run / "status.json").is_file()]
    pids = [status_of(run)["processes"][0]["pid"] for run in runs if status_of(run)["state"] == "running"]
    return [pid for pid in pids if is_alive(pid)]


def test_a_killed_population_continues_to_the_tree_of_an_undisturbed_one(undisturbed, tmp_path):
    (tmp_path / "spec.toml").write_text((undisturbed.path.parent / "spec.toml").read_text())
    path = tmp_path / "experiments/spec"
    started = Started(["run", "spec.toml", "--jobs", "2"], tmp_path)
    started.wait_until(lambda: (path / LEDGER).exists() and bool(processes_of(path)))
    orphans = processes_of(path)
    started.end(signal.SIGKILL)
    assert len(Ledger.read(path / LEDGER).scores) < 4
    where = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}
    with chdir(tmp_path), patch.dict(os.environ, where):
        said = offbeat("run", "spec.toml", "--jobs", "1", "--progress", "lines")
    assert said.code == 0, said
    assert not any(is_alive(pid) for pid in orphans)
    assert "the winner is member-00" in said.out
    with chdir(tmp_path):
        killed = Population(tmp_path / "spec.toml", path)
    assert tree_of(killed) == tree_of(undisturbed)
    assert weights(killed) == weights(undisturbed)


def test_a_member_that_is_killed_again_and_again_is_replaced_by_a_copy_of_a_good_one(tmp_path):
    settings = {**SETTINGS, "steps": 2400, "checkpoint_every": 0}  # a kill leaves the checkpoint of the start
    text = population_text(
        {"members": 2, "generation": 1200, "episodes": 1},
        env="runs/Held-v0", imports=["tests.sample_envs.run_envs"], settings=settings,
    )  # fmt: skip
    (tmp_path / "spec.toml").write_text(text)
    started = Started(["run", "spec.toml", "--jobs", "2", "--import", "tests.sample_envs.run_envs"], tmp_path)
    path = tmp_path / "experiments/spec"
    run, killed = path / "member-001", list[int]()

    def kill_next() -> bool:
        if not (run / "checkpoints" / "latest").is_dir() or status_of(run)["state"] != "running":
            return False
        pid = status_of(run)["processes"][0]["pid"]
        if not is_alive(pid) or pid in killed:
            return False
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)
        return True

    for _ in range(RESTARTS_AFTER_KILL + 1):
        started.wait_until(kill_next)
    (tmp_path / "GO").touch()
    said = started.end()
    assert said.code == 0, said
    assert "member-001 failed in generation 0 and continued: its process was killed by SIGKILL" in said.out
    assert "the winner is member-00" in said.out
    ledger = Ledger.read(path / LEDGER)
    assert list(ledger.failures) == [(1, 0)]
    assert ledger.decisions[1, 0].donor == 0
    assert sorted(ledger.scores) == [(0, 0), (0, 1), (1, 1)]
