"""A stranger's checkpoint: 10,000 random changes end with words or load, take no memory, and run no code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.support.mutations import mutated, rehashed
from tests.support.pearl_runs import ROBOT, SMALL_PEARL
from tests.support.replay_runs import small_sac
from tests.support.runs import OFFBEAT, contents, small_run
from tests.support.thorough import thorough

from offbeat.api.playing.load import loaded_from
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.train import train
from offbeat.config.trust import Code
from offbeat.core.errors import OffbeatError
from offbeat.run_directory.checkpoint import load

KINDS = {"vectors": 26, "replay": 26, "images": 16, "core": 12, "hogwild": 10, "tasks": 10}
"""Checkpoint -> in how many parts it is tried."""
TRIES = 100
"""Changes a part: 10,000 in all."""
MEASURED = 5
"""The memory of each so many-th is measured, as that takes time."""
ROOM = 32 << 20
"""Bytes that reading may take beyond a few times the size of the files."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sound")
    small: dict[str, Any] = {"stop_at": 100, "steps": 1000, "normalize_observations": False}
    runs = {
        "vectors": small_run(folder / "vectors", stop_at=100, steps=1000),
        "replay": small_sac(folder / "replay", stop_at=100),
        "hogwild": small_sac(folder / "hogwild", stop_at=100, runtime="hogwild", workers=1),
        "images": small_run(folder / "images", env="offbeat/PixelsGoal-v0", hidden_sizes=(), **small),
        "core": small_run(folder / "core", core="gru", core_size=4, **small),
        "tasks": train("pearl", ROBOT, run_dir=folder / "tasks", **{**SMALL_PEARL, "eval_every": 0}),
    }
    sound = {name: run.path / "checkpoints/latest" for name, run in runs.items()}
    for checkpoint in sound.values():
        load_and_act(checkpoint)  # the type hints of all parts of a policy.json are evaluated only once
    return sound


@contextmanager
def nothing_imported_or_started() -> Iterator[None]:
    """Fail where a process is started, a shell is asked, or a module is imported that is not there yet."""
    seen: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "exec"):
            seen.append(f"{event} {arguments}")

    watching, modules, path = True, set(sys.modules), list(sys.path)
    sys.addaudithook(hook)
    try:
        yield
    finally:
        watching = False
    assert seen == []
    assert set(sys.modules) <= modules
    assert sys.path == path


def load_and_act(checkpoint: Path) -> LoadedPolicy:
    """Read all of a checkpoint and act with its policy."""
    saved = load(checkpoint, with_replay=True)
    policy = loaded_from(saved, "stranger", Code())
    spec = policy.acting_policy.spec
    leaves = {leaf.name: leaf for leaf in (*spec.observation, *spec.vectors)}
    observation = {name: np.full((1, *leaf.stacked_shape), leaf.is_mask, leaf.dtype) for name, leaf in leaves.items()}
    policy.acting_policy.greedy(observation, np.zeros((1, spec.state_size), np.float32))
    return policy


FIRST = [(kind, 0) for kind in KINDS]
PARTS = [(kind, part) for kind, parts in KINDS.items() for part in range(1, parts)]


@pytest.mark.parametrize(("kind", "part"), [*FIRST, *thorough(*PARTS)])
def test_a_fuzzed_checkpoint_is_refused_with_a_message_or_loads_in_little_memory(checkpoints, kind, part, tmp_path):
    random, target = Random(f"{kind} {part}"), tmp_path / "changed"
    sound = checkpoints[kind]
    size = sum(file.stat().st_size for file in sound.iterdir())
    load_and_act(sound)
    refused = 0
    with nothing_imported_or_started():
        for number in range(TRIES):
            what = f"{kind} {part}, change {number}: {mutated(sound, target, random)}"
            with limited_memory(10 * size + ROOM, what) if number % MEASURED == 0 else nullcontext():
                try:
                    load_and_act(target)
                except OffbeatError:
                    refused += 1
                except Exception as error:  # noqa: BLE001 - the point of the test
                    pytest.fail(f"{what}: {type(error).__name__}: {error}")
    assert TRIES // 3 < refused < TRIES


@contextmanager
def limited_memory(most: int, what: str) -> Iterator[None]:
    """Fail where more memory is taken at once."""
    tracemalloc.start()
    try:
        yield
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < most, f"{what} took {taken} bytes"


LIMITED = f"import resource; resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30)); {OFFBEAT}"
"""`offbeat` where a process cannot have more than 2 GiB."""
INVALID_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("policy.json", {"hidden_sizes": [2**30, 2**30, 2**30]}),
    ("policy.json", {"observation": [{"name": "observation", "shape": [2**31 - 1, 2**31 - 1], "dtype": "float32"}]}),
    ("policy.json", {"encoder": "subprocess:call"}),
    ("state.json", {"counters": {"$array": "missing"}}),
]


TYPED = [(command, *fields) for command in ("eval", "resume") for fields in INVALID_FIELDS]


@pytest.mark.parametrize(
    ("command", "file", "change"),
    [TYPED[0], TYPED[7], *thorough(*TYPED[1:7])],
    ids=lambda value: str(value)[:30],
)
def test_the_command_line_refuses_a_fuzzed_checkpoint_with_a_message_and_exit_code_2(
    checkpoints, tmp_path, command, file, change
):
    run = tmp_path / "run"
    shutil.copytree(checkpoints["vectors"].parents[1], run, symlinks=True)
    folder = run / "checkpoints/latest"
    data = {path.name: path.read_bytes() for path in folder.iterdir()}
    saved = json.loads(data[file])
    (saved["policy"] if file == "policy.json" else saved).update(change)
    data[file] = json.dumps(saved).encode()
    data["manifest.json"] = rehashed(data)
    for name in (file, "manifest.json"):
        (folder / name).write_bytes(data[name])
    before = contents(run)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, command, str(run)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.lstrip().startswith("offbeat: ")
    assert "Traceback" not in done.stderr
    assert {name: it for name, it in contents(run).items() if name != ".lock"} == {
        name: it for name, it in before.items() if name != ".lock"
    }
