from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from tests.reference.runs import contents, lines_of, offbeat, small_run

from offbeat.checkpoint import Checkpoint, CheckpointStore, load
from offbeat.errors import ConfigError

# --- round trips --------------------------------------------------------------------------------------------

dtypes = st.sampled_from(["float32", "float64", "int64", "int32", "uint8", "bool"])
arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
keys = st.text("abc/._ -", min_size=1, max_size=5)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
states = st.recursive(
    plain | arrays, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)


def same(a: Any, b: Any) -> bool:
    """Equal in value, type, dtype and bits."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(keys, states, max_size=4), st.dictionaries(keys, arrays, max_size=3))
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path_factory, state, weights):
    store = store_in(tmp_path_factory.mktemp("run"))
    saved = Checkpoint(weights, {"env": "E"}, state)
    loaded = load(store.save(5, saved, ["latest"]))
    assert same(state, loaded.state)
    assert same(dict(sorted(weights.items())), dict(sorted(loaded.weights.items())))
    assert loaded.policy == {"env": "E"}


def test_random_generators_and_large_numbers_survive(tmp_path):
    random = np.random.default_rng(3)
    random.random(5)
    state = {"random": random.bit_generator.state, "big": 2**127 + 1, "tiny": 5e-324}
    loaded = load(store_in(tmp_path).save(1, Checkpoint({}, {}, state), []))
    assert loaded.state == state
    again = np.random.default_rng()
    again.bit_generator.state = loaded.state["random"]
    assert again.random() == random.random()


def test_the_weights_file_has_no_metadata_so_equal_weights_are_equal_files(tmp_path):
    weights = {"b": np.arange(3.0), "a": np.ones((2, 2), np.float32)}
    first = store_in(tmp_path / "1").save(1, Checkpoint(weights, {}, {"counters": 1}), ["latest"])
    other = store_in(tmp_path / "2").save(2, Checkpoint(dict(reversed(weights.items())), {}, None), ["best"])
    files = [path / "weights.safetensors" for path in (first, other)]
    assert files[0].read_bytes() == files[1].read_bytes()
    with safe_open(files[0], "numpy") as file:
        assert file.metadata() is None


# --- links and pruning --------------------------------------------------------------------------------------


def store_in(run: Path, kept: int = 3) -> CheckpointStore:
    run.mkdir(exist_ok=True)
    return CheckpointStore(run / "checkpoints", kept)


def full(number: int) -> Checkpoint:
    return Checkpoint({"w": np.full(4, number, np.float32)}, {"env": "E"}, {"number": number})


def weights_alone() -> Checkpoint:
    return Checkpoint({"w": np.zeros(4, np.float32)}, {"env": "E"}, None)


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.path("latest").parent.iterdir())


def test_the_best_and_the_newest_few_are_kept(tmp_path):
    store = store_in(tmp_path, kept=2)
    store.save(1, weights_alone(), ["best"])
    for number in range(2, 9):
        store.save(number, full(number), ["latest"])
    assert names(store) == ["best", "latest", *(f"step-{n:012d}" for n in (1, 7, 8))]
    assert load(store.path("latest")).state == {"number": 8}
    assert load(store.path("best")).state is None


def test_weights_alone_are_kept_while_they_are_the_best_and_take_no_place_of_others(tmp_path):
    store = store_in(tmp_path, kept=2)
    for number in range(1, 9):
        store.save(number, full(number) if number % 2 else weights_alone(), ["latest" if number % 2 else "best"])
    assert names(store) == ["best", "latest", *(f"step-{n:012d}" for n in (5, 7, 8))]
    assert store.full() == [f"step-{n:012d}" for n in (5, 7)]


def test_what_lies_beyond_the_point_that_a_run_goes_on_from_is_dropped(tmp_path):
    store = store_in(tmp_path)
    store.save(1, full(1), ["latest"])
    store.save(2, weights_alone(), ["best"])
    store.drop_beyond(1)
    assert names(store) == ["latest", "step-000000000001"]


def test_weights_alone_never_take_the_place_of_a_full_checkpoint_of_that_step(tmp_path):
    store = store_in(tmp_path)
    store.save(1, full(1), ["latest"])
    store.save(1, weights_alone(), ["best"])
    assert load(store.path("latest")).state == load(store.path("best")).state == {"number": 1}


def test_a_full_checkpoint_takes_the_place_of_weights_alone_of_that_step(tmp_path):
    store = store_in(tmp_path)
    store.save(1, weights_alone(), ["best"])
    store.save(1, full(1), ["latest"])
    assert load(store.path("best")).state == load(store.path("latest")).state == {"number": 1}


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path):
    store = store_in(tmp_path)
    store.save(1, full(1), ["latest"])
    left = tmp_path / "checkpoints" / ".writing-step-000000000002"
    left.mkdir()
    (left / "weights.safetensors").write_bytes(b"half")
    store.save(2, full(2), ["latest"])
    assert names(store) == ["latest", "step-000000000001", "step-000000000002"]
    assert load(store.path("latest")).state == {"number": 2}


def test_a_name_that_is_not_there_is_told_with_those_that_are(tmp_path):
    store = store_in(tmp_path)
    store.save(7, full(7), ["latest"])
    with pytest.raises(ConfigError, match="has no checkpoint 'best'; it has latest, step-000000000007"):
        store.path("best")


# --- damage -------------------------------------------------------------------------------------------------

FILES = ["weights.safetensors", "policy.json", "state.json", "state.safetensors", "manifest.json"]


@pytest.fixture(scope="module")
def sound_run(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("sound") / "run", stop_at=500, steps=1000).path


@pytest.fixture
def run(sound_run, tmp_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(sound_run, tmp_path / "run", symlinks=True))


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def empty(file: Path) -> None:
    file.write_bytes(b"")


DAMAGES = [flip_a_byte, cut_short, empty, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_checkpoint_is_never_used_and_nothing_changes(run, file, damage, tmp_path):
    damage(run / "checkpoints" / "latest" / file)
    before = contents(tmp_path)
    commands = [
        ("resume", run),
        ("eval", run, "--episodes", 1),
        ("train", "ppo", "CartPole-v1", "--init-from", run, "--run-dir", tmp_path / "new"),
    ]
    for command in commands:
        said = offbeat(*command)
        assert said.code == 2
        assert "is damaged" in said.err
        assert file in said.err or file == "manifest.json"  # which may name another file by a wrong hash
        assert "Traceback" not in said.err
    assert contents(tmp_path) == before


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(FILES), st.integers(0, 10**6), st.integers(1, 255))
def test_no_changed_byte_changes_what_is_loaded(sound_run, tmp_path_factory, file, place, difference):
    sound = sound_run / "checkpoints" / "latest"
    checkpoint = Path(shutil.copytree(sound, tmp_path_factory.mktemp("changed") / "checkpoint"))
    data = bytearray((checkpoint / file).read_bytes())
    data[place % len(data)] ^= difference
    (checkpoint / file).write_bytes(bytes(data))
    try:
        loaded = load(checkpoint)
    except ConfigError:
        return
    assert file == "manifest.json"  # a space may have become another kind of space
    assert same(vars(load(sound)), vars(loaded))


def test_a_checkpoint_of_another_format_names_what_can_read_it(run):
    file = run / "checkpoints" / "latest" / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(manifest | {"format": 99}))
    said = offbeat("resume", run)
    assert said.code == 2
    assert "format 99" in said.err
    assert "use the version of offbeat that wrote it" in said.err


def test_another_checkpoint_can_be_named_when_the_latest_is_damaged(tmp_path):
    run = small_run(tmp_path / "run", checkpoint_every=500).path
    flip_a_byte(run / "checkpoints" / "latest" / "weights.safetensors")
    older = min((run / "checkpoints").glob("step-*")).name
    assert offbeat("eval", run, "--episodes", 1).code == 2
    assert offbeat("eval", run, "--episodes", 1, "--checkpoint", older).code == 0


# --- what is best -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint_every", [0, 256, 300])
def test_the_best_checkpoint_is_the_best_by_evaluation(tmp_path, checkpoint_every):
    run = small_run(tmp_path / "run", checkpoint_every=checkpoint_every, eval_every=256, eval_episodes=3, steps=3000)
    lines = [line for line in lines_of(run.path) if line["evaluations"]]
    best = max(line["eval_return_mean"] for line in lines)
    first = next(line for line in lines if line["eval_return_mean"] == best)
    policy = load(run.path / "checkpoints" / "best").policy
    assert (policy["env_steps"], policy["learning_step"]) == (first["env_steps"], first["learning_step"])
    assert lines[-1]["best_eval_return_mean"] == best
    assert len({line["eval_return_mean"] for line in lines}) > 2
