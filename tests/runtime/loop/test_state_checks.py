"""Going on from a stranger's state: it ends with words, or goes on; never a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tests.support.mutations import in_json, rehashed
from tests.support.replay_runs import small_sac
from tests.support.runs import small_run, status_of
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.runtime.loop.state_checks import refuse_mismatches


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stopped")
    return {
        "unrolls": small_run(folder / "unrolls", stop_at=100, steps=200).path,
        "replay": small_sac(folder / "replay", stop_at=80, steps=110).path,
        "hogwild": small_sac(folder / "hogwild", stop_at=80, steps=110, runtime="hogwild", workers=1).path,
    }


def with_state(run: Path, target: Path, state: bytes) -> Path:
    """Copy a run, with another state.json whose hash fits."""
    shutil.copytree(run, target, symlinks=True)
    latest = target / "checkpoints/latest"
    data = {path.name: path.read_bytes() for path in latest.iterdir()} | {"state.json": state}
    (latest / "state.json").write_bytes(state)
    (latest / "manifest.json").write_bytes(rehashed(data))
    return target


def state_of(run: Path) -> Any:
    return json.loads((run / "checkpoints/latest/state.json").read_text())


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("counters", "env_steps"), -1, "env_steps is -1, but a whole number at least 0"),
        (("counters", "env_steps"), 10**30, "env_steps is 1000"),
        (("counters", "wall_time_s"), float("nan"), "wall_time_s is nan"),
        (("counters", "learning_step"), 10**6, "versions"),
        (("counters",), None, "counters is None, but a table of keys and values is expected"),
        (("runtime",), [], r"runtime \[\]"),
        (("settings",), [], r"settings \[\]"),
        (("versions",), {}, r"versions \[\]"),
        (("progress",), {"1": 0.5}, "progress"),
        (("learner", "adam"), {}, "learner, adam {}"),
        (("learner", "algorithm", "observations", "mean"), [1, 2], r"observations, mean \[1, 2\]"),
        (("recorder", "returns"), 5, "returns 5, which is not valid"),
        (("actors", 0, "policies", 0, "envs"), {}, "KeyError"),
        (("actors",), 7, "actors 7"),
        (("actors",), [], "the state has 0 actors, but the run has 1"),
        (("actors",), [None, None], "the state has 2 actors, but the run has 1"),
        (("recorder", "given"), {"a": "b"}, "given {'a': 'b'}"),
        (("recorder", "agent_steps"), None, "agent_steps None"),
        (("evaluations",), {"cost_s": "much"}, "evaluations {'cost_s': 'much'}"),
        (("evaluations",), {}, "evaluations {}"),
        (("evaluations", "cost_s"), None, "evaluations {'cost_s': None"),
        (("evaluations", "is_due"), 1, "'is_due': 1}"),
    ],
)
def test_invalid_values_in_a_saved_state_are_refused_by_name(stopped, tmp_path, place, value, words):
    assert_refused(stopped["unrolls"], tmp_path, place, value, words)


def test_a_lack_of_memory_is_not_reported_as_an_invalid_state(tmp_path):
    with pytest.raises(RuntimeError, match="can't allocate memory"), refuse_mismatches(tmp_path):
        torch.empty(1 << 50, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("workers",), [], r"workers \[\]"),
        (("workers", 0), None, "workers, 0 None"),
        (("workers", 0, "updates"), -1, "workers, 0, updates is -1"),
        (("workers", 0, "updates"), 3, "3 updates of all workers"),
        (("workers", 0, "done", "valid"), "many", "valid is 'many'"),
        (("workers", 0, "done", "env_steps"), 3, "3 env_steps of all workers"),
        (("workers", 0, "actor"), 5, "workers, 0, actor 5"),
        (("learned",), {}, "learned {}"),
        (("statistics",), {"more": 1}, "statistics"),
    ],
)
def test_invalid_values_in_a_saved_state_of_hogwild_workers_are_refused_by_name(stopped, tmp_path, place, value, words):
    assert_refused(stopped["hogwild"], tmp_path, place, value, words)


def assert_refused(stopped: Path, tmp_path: Path, place: tuple[Any, ...], value: Any, words: str) -> None:
    """A resume of the run, with another value at a place of its state, is refused with such words."""
    state = holder = state_of(stopped)
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    run = with_state(stopped, tmp_path / "run", json.dumps(state).encode())
    with pytest.raises(ConfigError, match=words):
        resume(run)


@pytest.mark.parametrize(
    ("kind", "tries"), [("unrolls", 10), ("replay", 10), *thorough(("unrolls", 30), ("replay", 30), ("hogwild", 10))]
)
def test_a_fuzzed_state_is_refused_with_a_message_or_resumes(stopped, tmp_path, kind, tries):
    random, original, refused = Random(kind), (stopped[kind] / "checkpoints/latest/state.json").read_bytes(), 0
    for number in range(tries):
        run = with_state(stopped[kind], tmp_path / str(number), in_json(original, random))
        try:
            resume(run)
        except OffbeatError:
            refused += 1
        except Exception as error:  # noqa: BLE001 - the point of the test
            pytest.fail(f"{kind}, change {number}: {type(error).__name__}: {error}")
        else:
            assert status_of(run)["state"] == "finished"
        shutil.rmtree(run)
    assert refused > tries // 6
