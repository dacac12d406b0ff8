"""What must hold of every case of the matrix: a function each, given a case and an empty folder.

`same_bits`      a run that was stopped in one runtime and goes on in another has the bits of serial;
`actor_killed`   kill -9 of an actor: it takes its ticket again, and no row is torn;
`run_killed`     kill -9 of the whole run: it goes on in another runtime, to the bits of one that was not killed;
`interrupted`    SIGINT: likewise, from the checkpoint of that moment;
`env_raises`     in processes the actor is started again; elsewhere the run fails, whole, and goes on once mended.

Moments are drawn, and follow from the case.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import chdir
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.sample_envs import faulty_envs
from tests.support.matrix import FEATURES, RATIO, WARMUP, Case
from tests.support.replay_runs import assert_ratio
from tests.support.runs import (
    Started,
    actors_of,
    is_alive,
    lines_of,
    of_each_policy,
    record_pids,
    status_of,
    untimed,
    wait_until,
    weights_of,
)
from tests.support.self_checking_rows import CheckedStates, checked_rows

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.core.errors import OffbeatError
from offbeat.run_directory.checkpoint import load

RUNTIMES = ("serial", "threads", "processes")
OFTEN: dict[str, Any] = {"checkpoint_every": 40}
"""A checkpoint at about every second learning step: it changes no bit."""


def same_bits(case: Case, folder: Path) -> None:
    assert_parts_are_the_whole(case.train, *_two_runtimes(case), folder)


def assert_parts_are_the_whole(
    train: Callable[..., Run], here: str, there: str, folder: Path, **in_parts: Any
) -> tuple[Run, Run]:
    """A run whose first half is trained in one runtime, and its second half in another, has the bits of serial.

    Args:
        train: trains in the given run directory, with the given settings changed.
        here: the runtime of the first half.
        there: the runtime of the second half.
        folder: an empty one.
        in_parts: settings of the run in two parts alone.

    Returns:
        The run in serial, and the one in two parts.
    """
    whole = train(folder / "serial")
    stopped = train(folder / "parts", runtime=here, stop_at=whole.metrics["env_steps"] // 2, **in_parts)
    assert stopped.state == "interrupted"
    assert weights_of(stopped.path) != weights_of(whole.path)
    resumed = resume(stopped.path, runtime=there)
    assert_same(resumed, whole)
    return whole, resumed


def actor_killed(case: Case, folder: Path) -> None:
    path, killed = folder / "run", _Killed(case)
    keep, actors = record_pids(path, "actor")
    with checked_rows(case.feature) as seen:
        run = case.train(path, runtime="processes", callbacks=[lambda line: killed.see(path, line), keep])
        assert run.state == "finished"
        assert len(killed.pids) == run.metrics["actor_restarts"] == 1
        assert "this run is no longer exact" in (path / "log.txt").read_text()
        _assert_whole(case, path, seen)
        assert seen.cuts == (1 if "core" in FEATURES[case.feature].settings and not case.replayed else 0)
        assert resume(path, steps=run.metrics["env_steps"] + 50, runtime="serial").state == "finished"
    assert len({*killed.pids, *actors}) == case.actors + 1
    assert not any(map(is_alive, actors))


def run_killed(case: Case, folder: Path) -> None:
    path, whole = folder / "run", case.train(folder / "whole")
    here, there = _two_runtimes(case)
    said = Started([*map(str, case[:]), str(path), here], folder, code=KILLS_ITSELF).end()
    assert said.code == -signal.SIGKILL, said.err
    load(path / "checkpoints" / "latest")
    assert status_of(path)["state"] == "running"  # nobody was left to say otherwise
    actors = actors_of(path)
    assert len(actors) == (case.actors if here == "processes" else 0)
    wait_until(lambda: not any(map(is_alive, actors)))
    assert_same(resume(path, runtime=there), whole)


def interrupted(case: Case, folder: Path) -> None:
    path, whole = folder / "run", case.train(folder / "whole")
    here, there = _two_runtimes(case)
    stopped = case.train(path, runtime=here, callbacks=[_at(_moment(case), signal.SIGINT)])
    assert (stopped.state, stopped.reason) == ("interrupted", "stopped by SIGINT")
    saved = load(path / "checkpoints" / "latest").policies.values()
    assert {policy.about["env_steps"] for policy in saved} == {stopped.metrics["env_steps"]}
    assert stopped.metrics["env_steps"] < case.steps
    assert_same(resume(path, runtime=there), whole)


def env_raises(case: Case, folder: Path) -> None:
    feature = FEATURES[case.feature]
    modules = (*feature.settings.get("imports", ()), faulty_envs.__name__)
    faulty: dict[str, Any] = {"env": faulty_envs.faulty(feature.env), "imports": modules}
    for runtime in ("processes", _random(case).choice(("serial", "threads"))):
        path = folder / runtime / "run"
        path.parent.mkdir()
        with chdir(path.parent), checked_rows(case.feature) as seen:
            if runtime == "processes":
                run = case.train(path, runtime=runtime, **faulty)
                assert run.metrics["actor_restarts"] == 1
            else:
                with pytest.raises(OffbeatError, match="the env has no length"):
                    case.train(path, runtime=runtime, **faulty)
                assert status_of(path)["state"] == "failed"
                assert load(path / "checkpoints" / "latest").state is not None
                run = resume(path)
            assert run.state == "finished"
            assert "ZeroDivisionError: the env has no length" in (path / "log.txt").read_text()
            _assert_whole(case, path, seen)


CHECKS: dict[str, Callable[[Case, Path], None]] = {
    check.__name__: check for check in (same_bits, actor_killed, run_killed, interrupted, env_raises)
}


# --- what they share --------------------------------------------------------------------------------------------


def assert_same(run: Run, other: Run) -> None:
    """Two runs have the same weights, and the same figures in all lines but for what the clock decides."""
    assert run.state == other.state == "finished"
    assert weights_of(run.path) == weights_of(other.path)
    figures, others = figures_of(run.path), figures_of(other.path)
    assert [figures[step] for step in others] == list(others.values())


def figures_of(run: Path) -> dict[int, dict[str, Any]]:
    """Return what each learning step's last line says, but for what the clock decides, evaluations among it."""
    return {
        line["learning_step"]: {
            name: value
            for name, value in untimed(line).items()
            if not name.rpartition("/")[2].startswith(("eval", "best_eval"))
        }
        for line in lines_of(run)
    }


def _assert_whole(case: Case, path: Path, seen: CheckedStates) -> None:
    """Rows, which `checked_rows` checks, were learned from; weights are finite, and counts are as they should be."""
    lines = lines_of(path)
    assert seen.rows > 0
    for weights in load(path / "checkpoints" / "latest").weights_by_policy.values():
        assert all(np.isfinite(array).all() for array in weights.values())
    assert lines[-1]["env_steps"] >= case.steps
    if case.replayed:
        assert_ratio(path, Fraction(RATIO), WARMUP)
    else:
        assert seen.rows == lines[-1]["agent_steps"], "each row is learned from, once"
        assert (
            max(lag for line in lines for lag in of_each_policy(line, "policy_lag_max").values() if lag) <= case.ahead
        )


def _random(case: Case) -> Random:
    return Random(str(case))


def _two_runtimes(case: Case) -> tuple[str, str]:
    """Return the runtime in which a case is stopped and the one in which it goes on."""
    here, there = _random(case).sample(RUNTIMES, 2)
    return here, there


def _moment(case: Case) -> int:
    """Return after how many env steps something happens: there are batches before it, and after."""
    return int(case.steps * _random(case).uniform(0.4, 0.7))


def _at(env_steps: int, number: signal.Signals) -> Callable[[dict[str, Any]], None]:
    """Return a callback that has this process sent a signal, once."""
    sent: list[int] = []

    def callback(line: dict[str, Any]) -> None:
        if line["env_steps"] >= env_steps and not sent:
            sent.append(line["env_steps"])
            os.kill(os.getpid(), number)

    return callback


class _Killed:
    """Kills an actor process of a case's run at its moment, which is within a ticket or just before."""

    def __init__(self, case: Case) -> None:
        self.pids: list[int] = []
        self._moment, self._random = _moment(case), _random(case)

    def see(self, run: Path, line: dict[str, Any]) -> None:
        """Look at a metrics line."""
        if line["env_steps"] >= self._moment and not self.pids:
            self.pids.append(self._random.choice(actors_of(run)))
            os.kill(self.pids[0], signal.SIGKILL)


KILLS_ITSELF = "from tests.support.checks import train_and_kill_itself; train_and_kill_itself()"


def train_and_kill_itself() -> None:
    """Train what the command line says (a case, run directory, runtime), and be killed on the way."""
    algorithm, feature, ahead, actors, path, runtime = sys.argv[1:]
    case = Case(algorithm, feature, int(ahead), int(actors))
    case.train(Path(path), runtime=runtime, callbacks=[_at(_moment(case), signal.SIGKILL)], **OFTEN)
