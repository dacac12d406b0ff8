"""Going on from a stranger's state: it ends with words, or goes on; never a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.reference.mutations import in_json, rehashed
from tests.reference.replay_runs import small_sac
from tests.reference.runs import small_run, status_of

from offbeat.errors import ConfigError, OffbeatError
from offbeat.training import resume


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stopped")
    return {
        "unrolls": small_run(folder / "unrolls", stop_at=100, steps=200).path,
        "replay": small_sac(folder / "replay", stop_at=150).path,
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
        (("counters",), None, "counters is None, but a table is expected"),
        (("best",), "high", "best 'high', which cannot be"),
        (("runtime",), [], r"runtime \[\]"),
        (("versions",), {}, r"versions \[\]"),
        (("progress",), {"1": 0.5}, "progress"),
        (("learner", "adam"), {}, "learner, adam {}"),
        (("learner", "algorithm", "observations", "mean"), [1, 2], r"observations, mean \[1, 2\]"),
        (("recorder", "returns"), 5, "returns 5, which cannot be"),
        (("actors", 0, "envs"), {}, "KeyError"),
        (("actors",), 7, "actors 7"),
    ],
)
def test_what_cannot_be_in_a_state_is_named(stopped, tmp_path, place, value, words):
    state = holder = state_of(stopped["unrolls"])
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    run = with_state(stopped["unrolls"], tmp_path / "run", json.dumps(state).encode())
    with pytest.raises(ConfigError, match=words):
        resume(run)


@pytest.mark.parametrize("kind", ["unrolls", "replay"])
def test_a_changed_state_is_refused_with_words_or_goes_on(stopped, tmp_path, kind):
    random, original, refused = Random(kind), (stopped[kind] / "checkpoints/latest/state.json").read_bytes(), 0
    for number in range(30):
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
    assert refused > 5
