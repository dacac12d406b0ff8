"""What happens to a replay's actors, envs and main process breaks neither the ratio nor any transition."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.support.replay_runs import (
    LINKS,
    SMALL_RATIO,
    SMALL_SAC,
    assert_no_burst,
    assert_ratio,
    learning_steps,
    linked_rows,
    sac_arguments,
    samples_checked,
    sequences_checked,
    small_sac,
)
from tests.support.runs import Started, actors_of, has_saved, lines_of, offbeat, status_of, untimed, weights_of
from tests.support.thorough import thorough

from offbeat.api.callbacks.callback import CallbackFunction
from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.core.errors import OffbeatError
from offbeat.run_directory.checkpoint import load

WARMUP = SMALL_SAC["warmup"]
RATIO = Fraction(1, 2)
LAYOUT: dict[str, Any] = {
    **LINKS,
    "actors": 2,
    "max_ahead": 4,
    "chunk_length": 4,
    "utd_ratio": "1/2",
    "capacity": 2000,
    "steps": 600,
}
"""The replay holds all rows of the run."""


pytestmark = pytest.mark.usefixtures("in_temporary_folder")


def last_of(run: Path) -> dict[str, Any]:
    return lines_of(run)[-1]


def cut_rows(run: Path) -> int:
    """Count the rows that mark a cut: each is the first of its ticket, and an episode begins in the row after."""
    arrays = load(run / "checkpoints" / "latest", with_replay=True).replay
    assert arrays is not None
    cuts = 0
    for name in [name.removesuffix("/valid") for name in arrays if name.endswith("/valid")]:
        valid, observation = arrays[f"{name}/valid"][:-1], arrays[f"{name}/observation"]
        for row, column in zip(*np.nonzero(~valid), strict=True):
            if observation[row, column, 2] == 0:  # an episode's end would say how it ended
                assert row % LAYOUT["chunk_length"] == 0
                assert observation[row + 1, column, 1] == 0
                cuts += 1
    return cuts


# --- actors -------------------------------------------------------------------------------------------------


def killing_actors(run: Path, random: Random, most: int) -> tuple[Any, list[int]]:
    """Return a callback that kills actors at random moments, and the pids of those that it has killed."""
    killed: list[int] = []

    def callback(_line: dict[str, Any]) -> None:
        if len(killed) < most and random.random() < 0.3:
            time.sleep(random.uniform(0, 0.01))  # meanwhile they act
            pids = [pid for pid in actors_of(run) if pid not in killed]
            if pids:
                killed.append(random.choice(pids))
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    return callback, killed


@pytest.mark.parametrize(("n_step", "kills"), [(3, 2), *thorough((3, 5), (1, 5))])
def test_no_transition_crosses_the_cut_of_an_actor_killed_at_a_random_moment(tmp_path, n_step, kills):
    path = tmp_path / "run"
    callback, killed = killing_actors(path, Random(n_step), most=kills)
    settings: dict[str, Any] = {**LAYOUT, "runtime": "processes", "restart_budget": 100, "n_step": n_step}
    with learning_steps() as taken, samples_checked(n_step) as counted:
        small_sac(path, "links/SlowlyLinked-v0", **settings, callbacks=[callback])
    last = last_of(path)
    assert len(killed) == kills
    assert len(killed) - 1 <= last["actor_restarts"] <= len(killed)
    assert_ratio(path, RATIO, WARMUP)
    assert_no_burst(taken, RATIO)
    assert counted == [32 * last["updates"]]
    assert linked_rows(path) == last["env_steps"] >= 600, "only valid rows count"
    assert 0 < cut_rows(path) <= 2 * last["actor_restarts"]
    assert_whole_and_resumable(path, n_step)


def assert_whole_and_resumable(run: Path, n_step: int) -> None:
    with samples_checked(n_step):
        resumed = resume(run, steps=700)
    assert_ratio(run, RATIO, WARMUP)
    assert linked_rows(run) == resumed.metrics["env_steps"]


@pytest.mark.thorough  # once: `actor_killed` of dqn-recurrent in test_matrix.py
def test_sequences_of_actors_killed_at_random_moments_contain_no_other_episode(tmp_path):
    path = tmp_path / "run"
    callback, killed = killing_actors(path, Random(0), most=2)
    memory: dict[str, Any] = {"core": "gru", "core_size": 4, "n_step": 2}
    settings: dict[str, Any] = {**LAYOUT, **memory, "runtime": "processes", "restart_budget": 100, "steps": 300}
    with sequences_checked(2) as counted:
        small_sac(path, "links/SlowlyLinked-v0", **settings, callbacks=[callback])
    assert last_of(path)["actor_restarts"] >= len(killed) - 1 > 0, killed
    assert_ratio(path, RATIO, WARMUP)
    assert counted == [8 * last_of(path)["updates"]]
    assert linked_rows(path) == last_of(path)["env_steps"]
    assert_cuts_reset_states(path)
    with sequences_checked(2):
        resume(path, steps=350, runtime="serial")
    assert_cuts_reset_states(path)


def assert_cuts_reset_states(run: Path) -> None:
    """The state of a ticket that begins with a cut is zero, and no other's is in the middle of an episode."""
    arrays = load(run / "checkpoints" / "latest", with_replay=True).replay
    assert arrays is not None
    cuts = 0
    for name in [name.removesuffix("/valid") for name in arrays if name.endswith("/valid")]:
        first = slice(0, -1, LAYOUT["chunk_length"])
        valid, observation = arrays[f"{name}/valid"][first], arrays[f"{name}/observation"][first]
        remembers = np.abs(arrays[f"{name}/initial_state"]).max(axis=2) > 0
        cut = ~valid & (observation[..., 2] == 0)
        assert not remembers[cut].any()
        assert remembers[valid & (observation[..., 1] > 0)].all()
        assert not remembers[valid & (observation[..., 1] == 0)].any(), "it begins"
        cuts += int(cut.sum())
    assert cuts > 0


def test_an_actor_process_whose_env_raises_repeats_its_ticket_after_a_cut(tmp_path):
    path = tmp_path / "run"
    with learning_steps() as taken, samples_checked(3):
        small_sac(path, "links/LinkedRaisesTwice-v0", **LAYOUT, runtime="processes", n_step=3)
    assert last_of(path)["actor_restarts"] == 2
    assert (path / "log.txt").read_text().count("started again, at a marked cut") == 2
    assert_ratio(path, RATIO, WARMUP)
    assert_no_burst(taken, RATIO)
    assert linked_rows(path) == last_of(path)["env_steps"]
    assert 0 < cut_rows(path) <= 4


@pytest.mark.parametrize("runtime", ["serial", *thorough("threads", "processes")])
def test_a_run_failed_by_its_env_keeps_its_update_ratio_and_rows_when_resumed(tmp_path, runtime):
    path = tmp_path / "run"
    budget = {"restart_budget": 0} if runtime == "processes" else {}
    with learning_steps() as taken, samples_checked(3):
        with pytest.raises(OffbeatError, match="the chain has no link"):
            small_sac(path, "links/LinkedUntilMended-v0", **LAYOUT, runtime=runtime, n_step=3, **budget)
        assert status_of(path)["state"] == "failed"
        failed = last_of(path)
        assert 0 < linked_rows(path) == failed["env_steps"] < 600
        Path("MENDED").touch()
        resume(path)
    assert (
        f"the replay of {failed['env_steps']} transitions restored; unfinished episodes were not saved"
        in (path / "log.txt").read_text()
    )
    assert_ratio(path, RATIO, WARMUP)
    assert_no_burst(taken, RATIO)
    assert linked_rows(path) == last_of(path)["env_steps"]
    assert cut_rows(path) > 0


# --- signals ------------------------------------------------------------------------------------------------


@contextmanager
def signal_later(seconds: float) -> Iterator[CallbackFunction]:
    """Yield a callback that has SIGINT sent to this process so long after the first line, unless this has ended."""
    timers: list[threading.Timer] = []

    def callback(_line: dict[str, Any]) -> None:
        if not timers:
            timers.append(threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()

    try:
        yield callback
    finally:
        for timer in timers:
            timer.cancel()


@pytest.mark.parametrize(
    "runtimes", [["threads", "processes", "serial"], *thorough(["processes", "threads", "threads"])]
)
def test_a_run_interrupted_by_signals_at_random_moments_keeps_its_update_ratio_and_rows(tmp_path, runtimes):
    path, random = tmp_path / "run", Random(str(runtimes))
    far = {**LAYOUT, "steps": 20_000, "capacity": 30_000}  # so far off that no run ends before its signal
    first, then = partial(small_sac, path, "links/Linked-v0", **far), partial(resume, path)
    starts: list[Callable[..., Run]] = [first, *[then] * len(runtimes[1:])]
    with learning_steps() as taken, samples_checked(1):
        for start, runtime in zip(starts, runtimes, strict=True):
            with signal_later(random.uniform(0, 0.2)) as callback:
                stopped = start(runtime=runtime, callbacks=[callback])
            assert (stopped.state, stopped.reason) == ("interrupted", "stopped by SIGINT")
        ended = resume(path, steps=stopped.metrics["env_steps"] + 100)
    assert ended.state == "finished"
    assert_ratio(path, RATIO, WARMUP)
    assert_no_burst(taken, RATIO)
    assert linked_rows(path) == ended.metrics["env_steps"]


# --- the main process ---------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [1, 2])
def test_a_run_killed_at_random_moments_resumes_from_its_last_checkpoint_with_the_same_bits(tmp_path, kills):
    settings: dict[str, Any] = {
        "steps": 100 + 350 * kills,
        "max_ahead": 2,
        "actors": 2,
        "checkpoint_every": 80,
        "lag": "exact",
    }
    whole = small_sac(tmp_path / "whole", **settings).path
    random, path = Random(1), tmp_path / "run"
    latest = path / "checkpoints" / "latest"
    arguments = [*sac_arguments(path, **settings), "runtime=processes"]
    for _ in range(kills):
        started = Started(arguments, tmp_path)
        wanted = len(lines_of(path)) + random.randint(10, 30)
        started.wait_until(lambda: has_saved(path) and len(lines_of(path)) >= wanted)  # noqa: B023
        assert started.end(signal.SIGKILL).code == -signal.SIGKILL
        assert load(latest, with_replay=True).replay is not None
        arguments = ["resume", str(path), "--progress", "none"]
    assert offbeat(*arguments).code == 0
    assert weights_of(path) == weights_of(whole)
    assert [untimed(line) for line in lines_of(path)] == [untimed(line) for line in lines_of(whole)]
    assert_ratio(path, SMALL_RATIO, WARMUP)
    assert len(list(path.glob("checkpoints/*/replay.safetensors"))) <= 2, "the newest, and latest means it"
