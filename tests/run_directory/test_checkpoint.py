from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from tests.support.mutations import rehashed
from tests.support.runs import contents, files_up_to, lines_of, offbeat, small_arguments, small_run
from tests.support.thorough import examples, stride, thorough

from offbeat.config.policies import is_name
from offbeat.core import files
from offbeat.core.errors import ConfigError
from offbeat.run_directory import checkpoint
from offbeat.run_directory import store as checkpoint_store
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy, load
from offbeat.run_directory.snapshots import SnapshotStore
from offbeat.run_directory.store import CheckpointStore

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
    if is_dataclass(a):
        return type(a) is type(b) and same(vars(a), vars(b))
    return type(a) is type(b) and a == b


@examples(60)
@given(st.dictionaries(keys, states, max_size=4), st.dictionaries(keys, arrays, max_size=3))
def test_a_saved_checkpoint_is_loaded_bit_for_bit(tmp_path_factory, state, weights):
    store = store_in(tmp_path_factory.mktemp("run"))
    saved = Checkpoint.of_one(weights, {"env": "E"}, state)
    loaded = load(store.save(5, saved, ["latest"]))
    assert same(state, loaded.state)
    assert same(dict(sorted(weights.items())), dict(sorted(loaded.weights.items())))
    assert loaded.policy == {"env": "E"}


@given(st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True))
def test_a_checkpoint_of_policies_with_any_valid_name_can_be_loaded(tmp_path_factory, name):
    assert is_name(name)
    policies = {each: SavedPolicy({"w": np.ones(2)}, {"env": "E"}) for each in (name, "other")}
    loaded = load(store_in(tmp_path_factory.mktemp("run")).save(5, Checkpoint(policies, None), ["latest"]))
    assert loaded.policies.keys() == policies.keys()


def test_states_of_random_generators_and_large_integers_are_restored(tmp_path):
    random = np.random.default_rng(3)
    random.random(5)
    state = {"random": random.bit_generator.state, "big": 2**127 + 1, "tiny": 5e-324}
    loaded = load(store_in(tmp_path).save(1, Checkpoint.of_one({}, {}, state), []))
    assert loaded.state == state
    again = np.random.default_rng()
    again.bit_generator.state = loaded.state["random"]
    assert again.random() == random.random()


def test_equal_weights_give_equal_files(tmp_path):
    weights = {"b": np.arange(3.0), "a": np.ones((2, 2), np.float32)}
    first = store_in(tmp_path / "1").save(1, Checkpoint.of_one(weights, {}, {"counters": 1}), ["latest"])
    other = store_in(tmp_path / "2").save(2, Checkpoint.of_one(dict(reversed(weights.items())), {}, None), ["best"])
    files = [path / "weights.safetensors" for path in (first, other)]
    assert files[0].read_bytes() == files[1].read_bytes()
    with safe_open(files[0], "numpy") as file:
        assert file.metadata() is None


# --- links and pruning --------------------------------------------------------------------------------------


def store_in(run: Path, max_full: int = 3) -> CheckpointStore:
    run.mkdir(exist_ok=True)
    return CheckpointStore(run / "checkpoints", max_full)


def full(number: int) -> Checkpoint:
    return Checkpoint.of_one({"w": np.full(4, number, np.float32)}, {"env": "E"}, {"number": number})


def weights_alone() -> Checkpoint:
    return Checkpoint.of_one({"w": np.zeros(4, np.float32)}, {"env": "E"}, None)


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.path("latest").parent.iterdir())


def test_the_best_and_the_newest_checkpoints_are_kept(tmp_path):
    store = store_in(tmp_path, max_full=2)
    store.save(1, weights_alone(), ["best"])
    for number in range(2, 9):
        store.save(number, full(number), ["latest"])
    assert names(store) == ["best", "latest", *(f"step-{n:012d}" for n in (1, 7, 8))]
    assert load(store.path("latest")).state == {"number": 8}
    assert load(store.path("best")).state is None


def test_weights_only_checkpoints_are_kept_while_best_and_do_not_count_as_full_ones(tmp_path):
    store = store_in(tmp_path, max_full=2)
    for number in range(1, 9):
        store.save(number, full(number) if number % 2 else weights_alone(), ["latest" if number % 2 else "best"])
    assert names(store) == ["best", "latest", *(f"step-{n:012d}" for n in (5, 7, 8))]
    assert store.full() == [f"step-{n:012d}" for n in (5, 7)]


def test_weights_that_were_deleted_because_they_had_no_name_are_saved_again(tmp_path):
    store = store_in(tmp_path)
    for links in ([], ["best"]):
        store.save(1, weights_alone(), links)
    assert load(store.path("best")).state is None


def test_a_checkpoint_is_saved_where_the_others_cannot_be_listed(tmp_path, monkeypatch):
    def refuse(_folder: Path) -> Any:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert load(store_in(tmp_path).save(1, full(1), ["latest"])).state == {"number": 1}


def test_checkpoints_after_the_resumed_one_are_dropped_except_the_best(tmp_path):
    store = store_in(tmp_path)
    for number in (1, 2, 3):
        store.save(number, full(number), ["latest"])
    store.save(4, weights_alone(), ["best"])
    store._link("latest", store.path("step-000000000001"))
    store.drop_beyond(1)
    assert names(store) == ["best", "latest", "step-000000000001", "step-000000000004"]


def test_a_best_checkpoint_after_the_latest_neither_has_a_replay_nor_counts_as_full(tmp_path):
    store = store_in(tmp_path, max_full=2)
    store.save(1, replayed(1), ["latest"])
    store.save(9, replayed(9), ["best", "latest"])
    store._link("latest", store.save(2, replayed(2), ["latest"]))
    for number in (3, 4):
        store.save(number, replayed(number), ["latest"])
    assert store.full() == [f"step-{n:012d}" for n in (3, 4, 9)]
    assert load(store.path("latest"), with_replay=True).replay is not None
    assert load(store.path("best"), with_replay=True).replay_dropped


def test_a_second_save_at_the_same_env_step_has_a_separate_directory(tmp_path):
    store = store_in(tmp_path)
    for number in (1, 2, 3):
        store.save(7, full(number), ["latest"])
    store.save(8, full(8), ["latest"])
    assert names(store) == ["latest", "step-000000000007-3", "step-000000000008"]
    assert load(store.path("step-000000000007")).state == {"number": 3}


def test_weights_saved_by_an_earlier_process_are_not_reused(tmp_path):
    store_in(tmp_path).save(7, weights_alone(), ["best"])
    other = Checkpoint.of_one({"w": np.ones(4, np.float32)}, {"env": "E"}, None)
    store = store_in(tmp_path)
    store.save(7, other, ["best", "latest"])
    assert same(load(store.path("best")).weights, other.weights)


def test_a_weights_only_checkpoint_never_replaces_a_full_one_of_the_same_step(tmp_path):
    store = store_in(tmp_path)
    store.save(1, full(1), ["latest"])
    store.save(1, weights_alone(), ["best"])
    assert load(store.path("latest")).state == load(store.path("best")).state == {"number": 1}


def test_a_full_checkpoint_is_saved_beside_a_weights_only_one_of_the_same_step(tmp_path):
    store = store_in(tmp_path)
    store.save(1, weights_alone(), ["best"])
    store.save(1, full(1), ["latest"])
    assert load(store.path("best")).state is None
    assert load(store.path("latest")).state == {"number": 1}


def test_a_checkpoint_that_is_partly_deleted_is_not_found(tmp_path, monkeypatch):
    store = store_in(tmp_path, max_full=1)
    store.save(1, full(1), ["latest"])

    def fail(path: Path, **_options: object) -> None:
        if path.exists():
            next(path.iterdir()).unlink()
            raise OSError("it is killed here")

    monkeypatch.setattr("shutil.rmtree", fail)
    with pytest.raises(OSError, match="killed"):
        checkpoint_store.delete_whole(store.path("latest").resolve())
    assert not list((tmp_path / "checkpoints").glob("step-*"))


def test_temporary_files_of_a_killed_process_are_deleted(tmp_path):
    store = store_in(tmp_path)
    store.save(1, full(1), ["latest"])
    left = tmp_path / "checkpoints" / ".writing-step-000000000002"
    left.mkdir()
    (left / "weights.safetensors").write_bytes(b"half")
    store.save(2, full(2), ["latest"])
    assert names(store) == ["latest", "step-000000000001", "step-000000000002"]
    assert load(store.path("latest")).state == {"number": 2}


def test_an_unknown_checkpoint_name_is_refused_with_the_existing_names(tmp_path):
    store = store_in(tmp_path)
    store.save(7, full(7), ["latest"])
    with pytest.raises(ConfigError, match="has no checkpoint 'best'; it has latest, step-000000000007"):
        store.path("best")


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_not_called_damaged(tmp_path, monkeypatch):
    path = store_in(tmp_path).save(7, full(7), ["latest"])
    monkeypatch.setattr(checkpoint, "_verify", lambda *_: shutil.rmtree(path, ignore_errors=True))
    with pytest.raises(ConfigError, match=r"step-000000000007 does not exist: if the run still trains, it was deleted"):
        load(path)


def test_a_link_whose_checkpoint_is_replaced_while_it_is_read_gives_the_new_one(tmp_path, monkeypatch):
    store, verify = store_in(tmp_path, max_full=1), checkpoint._verify
    store.save(7, full(7), ["latest"])

    def replace_and_verify(*arguments: Any) -> Any:
        monkeypatch.setattr(checkpoint, "_verify", verify)
        store.save(8, full(8), ["latest"])
        return verify(*arguments)

    monkeypatch.setattr(checkpoint, "_verify", replace_and_verify)
    assert load(store.path("latest")).state == {"number": 8}


def test_a_run_without_checkpoints_is_refused_without_advice_to_name_one(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ConfigError, match=f"{tmp_path} has no checkpoints: pass another run, or train a new one"):
        store_in(tmp_path).path("latest")


def test_a_missing_link_to_the_latest_checkpoint_is_refused_with_those_that_can_be_named(tmp_path):
    store = store_in(tmp_path)
    store.save(7, full(7), ["latest"])
    (tmp_path / "checkpoints" / "latest").unlink()  # by a program that copies no links
    with pytest.raises(ConfigError, match=r"has no checkpoint 'latest'; it has step-0+7: pass .* --checkpoint"):
        store.path("latest")
    store.make_latest("step-000000000007")
    assert load(store.path("latest")).state == {"number": 7}


def test_of_two_checkpoints_at_one_env_step_the_named_one_becomes_the_latest(tmp_path):
    store = store_in(tmp_path)
    store.save(7, full(1), ["best"])
    store.save(7, full(2), ["latest"])
    store.make_latest("step-000000000007")
    assert load(store.path("latest")).state == {"number": 1}


@pytest.mark.parametrize("latest", ["link", "copy"])
def test_a_damaged_checkpoint_is_refused_with_the_command_to_resume_from_another_full_one(tmp_path, latest):
    run = tmp_path / "a run"
    run.mkdir()
    store = store_in(run)
    for step in (5, 6, 7):
        store.save(step, full(step), ["latest"])
    store.save(8, weights_alone(), ["best"])
    expected = "step-000000000006"
    if latest == "copy":  # by a program that copies what links point to
        (run / "checkpoints" / "latest").unlink()
        shutil.copytree(store.path("step-000000000007"), run / "checkpoints" / "latest")
        expected = "step-000000000007"
    flip_a_byte(store.path("latest") / "state.safetensors")
    with pytest.raises(
        ConfigError, match=rf"is damaged: state\.safetensors .*resume '{run}' --checkpoint {expected}`$"
    ):
        store.load("latest")


def test_a_run_resumes_from_the_full_save_of_an_env_step_that_also_has_weights_alone(tmp_path):
    """As an evaluation saves that ends after the checkpoint."""
    store = store_in(tmp_path)
    store.save(7, full(7), ["latest"])
    store.save(7, Checkpoint.of_one(full(7).weights, {"env": "E", "score": 1.0}, None), ["best"])
    assert store.load("best").state is None
    assert store.load("step-000000000007").state is not None
    assert store.how_to_resume(but="step-000000000009").endswith("--checkpoint step-000000000007`")


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


OTHER_DAMAGES = [cut_short, empty, Path.unlink]


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *product(FILES, [flip_a_byte]),
        *product(["state.safetensors"], OTHER_DAMAGES),
        *thorough(*product([file for file in FILES if file != "state.safetensors"], OTHER_DAMAGES)),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_a_damaged_checkpoint_is_refused_and_no_file_changes(run, file, damage, tmp_path):
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


def test_a_checkpoint_of_another_format_is_refused_with_the_version_that_reads_it(run):
    file = run / "checkpoints" / "latest" / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(manifest | {"format": 99}))
    said = offbeat("resume", run)
    assert said.code == 2
    assert "format 99" in said.err
    assert "use the version of offbeat that saved it" in said.err


def test_another_checkpoint_can_be_selected_when_the_latest_is_damaged(tmp_path):
    run = small_run(tmp_path / "run", checkpoint_every=500).path
    flip_a_byte(run / "checkpoints" / "latest" / "weights.safetensors")
    older = min((run / "checkpoints").glob("step-*")).name
    assert offbeat("eval", run, "--episodes", 1).code == 2
    assert offbeat("eval", run, "--episodes", 1, "--checkpoint", older).code == 0
    assert offbeat("resume", run).code == 2
    assert offbeat("resume", run, "--checkpoint", older).code == 0
    assert offbeat("eval", run, "--episodes", 1).code == 0


# --- the replay ---------------------------------------------------------------------------------------------

REPLAY = "replay.safetensors"
recorded = st.sampled_from([*"?BHILbhil", "float16", "float32", "float64"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
)


def with_gaps(array: np.ndarray) -> np.ndarray:
    """The same values, at every other place of a larger array, in another order of axes."""
    wide = np.zeros([2 * length for length in array.shape[::-1]], array.dtype)
    every_other: Any = (*(slice(1, None, 2) for _ in wide.shape), ...)
    view = wide[every_other].T
    view[...] = array
    return view


def rings(number: int, rows: int = 50) -> dict[str, np.ndarray]:
    return {
        "0/observation": np.full((rows, 3), number, np.float32),
        "0/valid": np.ones(rows, bool),
        "0/behavior_version": np.arange(number, number + rows),
    }


def replayed(number: int, rows: int = 50) -> Checkpoint:
    saved = Checkpoint.of_one({"w": np.full(4, number)}, {"env": "E"}, {"number": number})
    return replace(saved, replay=rings(number, rows))


@examples(60)
@given(st.dictionaries(keys, recorded, max_size=4), st.integers(8, 40), st.booleans())
def test_a_replay_is_loaded_bit_for_bit_for_any_chunks_and_gaps(tmp_path_factory, replay, chunk_bytes, gaps):
    store = store_in(tmp_path_factory.mktemp("run"))
    given_ = {name: with_gaps(array) for name, array in replay.items()} if gaps else replay
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "CHUNK_BYTES", chunk_bytes)
        path = store.save(5, replace(Checkpoint.of_one({}, {}, {}), replay=given_), ["latest"])
    loaded = load(path, with_replay=True)
    assert loaded.replay is not None
    assert same(dict(sorted(replay.items())), dict(sorted(loaded.replay.items())))
    assert not any(array.flags.writeable for array in loaded.replay.values())
    assert all(array.flags.aligned for array in loaded.replay.values())
    with safe_open(path / REPLAY, "numpy") as file:  # what others read of it
        assert sorted(file.keys()) == sorted(replay)
        assert all(same(array, file.get_tensor(name)) for name, array in replay.items())


def test_the_hash_is_that_of_the_written_bytes_if_the_array_changes_during_the_save(tmp_path, monkeypatch):
    row = np.zeros(64, np.float32)

    class Meddled:
        """A digest; before it looks, an actor has gone on."""

        def __init__(self, *given: bytes) -> None:
            self._digest = real(*given)

        def update(self, data: bytes) -> None:
            row[:] += 1
            self._digest.update(data)

        def hexdigest(self) -> str:
            return str(self._digest.hexdigest())

    real = hashlib.sha256
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "sha256", Meddled)
        saved = replace(Checkpoint.of_one({}, {}, {}), replay={"row": row})
        path = store_in(tmp_path).save(1, saved, ["latest"])
    assert row[0] > 0
    assert load(path, with_replay=True).replay is not None


def test_a_checkpoint_and_a_snapshot_are_played_without_parsing_their_state(tmp_path, monkeypatch):
    path = store_in(tmp_path).save(1, full(1), ["latest"])
    shutil.copytree(path, tmp_path / "league/default/snapshot-000001")
    monkeypatch.setattr(checkpoint, "_with_arrays", None)
    assert load(path, with_state=False).state is None
    assert SnapshotStore(tmp_path / "league").load("default", 1)


def test_a_replay_is_loaded_only_on_request(tmp_path):
    path = store_in(tmp_path).save(1, replayed(1), ["latest"])
    flip_a_byte(path / REPLAY)
    loaded = load(path)
    assert (loaded.state, loaded.replay, loaded.replay_dropped) == ({"number": 1}, None, False)


def test_a_loaded_replay_is_mapped_and_stays_valid_if_the_checkpoint_is_deleted(tmp_path):
    path = store_in(tmp_path).save(1, replayed(1), ["latest"])
    loaded = load(path, with_replay=True).replay
    assert loaded is not None
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert {line.split()[-1] for line in maps if str(tmp_path) in line} == {str(path / REPLAY)}
    shutil.rmtree(path)
    assert same(dict(sorted(loaded.items())), dict(sorted(rings(1).items())))


def test_a_checkpoint_that_never_had_a_replay_reports_no_dropped_replay(tmp_path):
    loaded = load(store_in(tmp_path).save(1, full(1), ["latest"]), with_replay=True)
    assert (loaded.replay, loaded.replay_dropped) == (None, False)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("replay", "does not list the files of the checkpoint"),
        ("weights.safetensors", r"lists .* where .* are expected"),
    ],
)
def test_a_manifest_without_an_entry_for_a_file_is_refused(tmp_path, entry, message):
    path = store_in(tmp_path).save(1, full(1), ["latest"])
    manifest = json.loads((path / "manifest.json").read_text())
    del (manifest if entry in manifest else manifest["files"])[entry]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=message):
        load(path, with_replay=True)


@pytest.mark.parametrize("damage", [flip_a_byte, *OTHER_DAMAGES], ids=lambda damage: damage.__name__)
def test_a_damaged_replay_is_never_loaded(tmp_path, damage):
    path = store_in(tmp_path).save(1, replayed(1), ["latest"])
    damage(path / REPLAY)
    with pytest.raises(ConfigError, match=r"is damaged: replay\.safetensors"):
        load(path, with_replay=True)


FLOAT = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize("file", ["weights.safetensors", REPLAY])
@pytest.mark.parametrize(
    "header",
    [
        {"a": FLOAT, "b": FLOAT},
        {"a": {**FLOAT, "data_offsets": [4, 8]}},
        {"a": {**FLOAT, "shape": [2**40]}},
        {"a": {**FLOAT, "shape": [0, 2**62], "data_offsets": [0, 0]}, "b": FLOAT},
        {"a": {**FLOAT, "shape": [1] * 65}},
        {"a": {**FLOAT, "shape": [2], "dtype": "BF16"}},
        {"a": {**FLOAT, "shape": [4], "dtype": "F8_E4M3"}},
        {"a": {**FLOAT, "dtype": "C32"}},
        {"a": {"dtype": "F32"}},
    ],
    ids=["same place", "gap", "too large", "too large and empty", "65 axes", "BF16", "F8", "unknown", "no shape"],
)
def test_arrays_with_an_invalid_header_are_refused_even_if_the_hash_is_right(tmp_path, file, header):
    path = store_in(tmp_path).save(1, replayed(1), ["latest"])
    text = json.dumps(header).encode()
    data = {each.name: each.read_bytes() for each in path.iterdir()}
    data[file] = len(text).to_bytes(8, "little") + text + bytes(4)
    (path / file).write_bytes(data[file])
    (path / "manifest.json").write_bytes(rehashed(data))
    # With the package ml_dtypes, which a test may have imported, NumPy has BF16.
    with pytest.raises(
        ConfigError, match=rf"is damaged: {re.escape(file)} (cannot be read|has 'a' in an unknown dtype)"
    ):
        load(path, with_replay=True)


def loaded_with_a_changed_byte(path: Path, file: str, place: int, difference: int) -> Checkpoint | None:
    """What is loaded then, None where it is refused; the byte is put back."""
    sound = (path / file).read_bytes()
    changed = bytearray(sound)
    changed[place % len(changed)] ^= difference
    (path / file).write_bytes(changed)
    try:
        return load(path, with_replay=True)
    except ConfigError:
        return None
    finally:
        (path / file).write_bytes(sound)


@examples(100)
@example(file="manifest.json", place=2, difference=ord(" ") ^ ord("\t"))  # loads
@given(st.sampled_from([*FILES, REPLAY]), st.integers(0, 10**6), st.integers(1, 255))
def test_a_checkpoint_with_a_changed_byte_is_refused_or_loads_equally(tmp_path_factory, file, place, difference):
    path = store_in(tmp_path_factory.mktemp("run")).save(1, replayed(1, rows=3), [])
    loaded = loaded_with_a_changed_byte(path, file, place, difference)
    assert loaded is None or same(load(path, with_replay=True), loaded)


def test_a_changed_byte_of_a_manifest_never_hides_a_replay_or_a_dropped_one(tmp_path):
    store = store_in(tmp_path)
    dropped, newest = (store.save(number, replayed(number, rows=3), ["latest"]) for number in (1, 2))
    for path in (dropped, newest):
        expected = (path == newest, path == dropped)
        for place in range(len((path / "manifest.json").read_bytes())):
            loaded = loaded_with_a_changed_byte(path, "manifest.json", place, 1)
            assert loaded is None or (loaded.replay is not None, loaded.replay_dropped) == expected


def test_saving_and_loading_a_replay_make_no_copy(tmp_path):
    wide = np.arange(2 * 2_000_000, dtype=np.float32).reshape(500, -1, 2)
    replay: dict[str, np.ndarray] = {
        "contiguous": wide,
        "gaps": wide[:, :, 1],
        "transposed": wide.T,
        "bytes": wide.view(np.uint8),
    }
    store = store_in(tmp_path)
    tracemalloc.start()
    path = store.save(1, replace(Checkpoint.of_one({}, {}, {}), replay=replay), ["latest"])
    loaded = load(path, with_replay=True).replay
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded is not None
    assert all(np.array_equal(replay[name], loaded[name]) for name in replay)
    assert sum(array.nbytes for array in replay.values()) > 50_000_000
    assert most < 5_000_000


def test_a_loaded_replay_stays_valid_after_its_file_is_deleted(tmp_path):
    store = store_in(tmp_path, max_full=1)
    loaded = load(store.save(1, replayed(1), ["latest"]), with_replay=True).replay
    store.save(2, replayed(2), ["latest"])
    assert not (tmp_path / "checkpoints" / "step-000000000001").exists()
    assert loaded is not None
    assert same(dict(sorted(rings(1).items())), dict(sorted(loaded.items())))


def with_replays(store: CheckpointStore) -> list[int]:
    """Those that have one, which all can be loaded; the others say that theirs was dropped."""
    found = []
    for name in store.full():
        loaded = load(store.path(name), with_replay=True)
        assert loaded.state == {"number": int(name.split("-")[1])}
        assert loaded.replay_dropped == (loaded.replay is None)
        if loaded.replay is not None:
            assert same(dict(sorted(rings(loaded.state["number"]).items())), dict(sorted(loaded.replay.items())))
            found.append(loaded.state["number"])
    return found


def test_only_the_newest_full_checkpoint_keeps_its_replay(tmp_path):
    store = store_in(tmp_path, max_full=3)
    for number in range(1, 6):
        store.save(number, replayed(number), ["best", "latest"] if number == 1 else ["latest"])
        assert with_replays(store) == [number]
        assert len(list(tmp_path.rglob(REPLAY))) == 1
    assert store.full() == [f"step-{n:012d}" for n in (1, 3, 4, 5)]
    assert load(store.path("best"), with_replay=True).replay_dropped


def test_saving_a_checkpoint_without_a_replay_deletes_no_replay(tmp_path):
    store = store_in(tmp_path)
    store.save(1, replayed(1), ["latest"])
    store.save(2, weights_alone(), ["best"])
    store.save(3, full(3), ["latest"])
    assert load(store.path("step-000000000001"), with_replay=True).replay is not None


def test_the_same_step_saved_again_has_the_new_replay(tmp_path):
    store = store_in(tmp_path)
    store.save(1, weights_alone(), ["best"])
    for _ in range(2):
        store.save(1, replayed(1), ["latest"])
        assert with_replays(store) == [1]


@pytest.mark.parametrize("room", [0, 1000, 500_000, 1_000_000])
def test_on_a_full_disk_the_last_replay_is_kept(tmp_path, room):
    store = store_in(tmp_path)
    store.save(1, replayed(1), ["latest"])
    before = contents(tmp_path)
    with files_up_to(room), pytest.raises(OSError, match="too large"):
        store.save(2, replayed(2, rows=50_000), ["latest"])
    assert contents(tmp_path) == before
    store.save(2, replayed(2), ["latest"])
    assert with_replays(store) == [2]


def test_a_state_that_is_larger_than_what_a_resume_reads_is_not_written(tmp_path, monkeypatch):
    store = store_in(tmp_path)
    state = {"diary": 1000 * "x"}
    size = len(json.dumps(state))
    monkeypatch.setattr(checkpoint, "STATE_BYTES", size)
    path = store.save(1, Checkpoint.of_one({}, {}, state), ["latest"])
    assert load(path).state == state
    before = contents(tmp_path)
    with pytest.raises(OSError, match=f"state.json would have {size + 1} bytes, but a resume reads at most {size}"):
        store.save(2, Checkpoint.of_one({}, {}, {"diary": 1001 * "x"}), ["latest"])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("runtime", ["serial", "hogwild"])
def test_the_states_of_envs_that_are_too_large_for_a_checkpoint_are_left_out(tmp_path, monkeypatch, runtime):
    monkeypatch.setattr(checkpoint, "STATE_BYTES", 300_000)
    path, imports = tmp_path / "run", ("tests.sample_envs.curious_envs",)
    settings: dict[str, Any] = {"imports": imports, "runtime": runtime, "checkpoint_every": 128, "stop_at": 512}
    stopped = offbeat(*small_arguments(path, "curious/Diary-v0", **settings))
    assert stopped.code == 0, stopped.err
    assert "bytes, but a resume reads at most 300000. The checkpoint was written without the states" in stopped.err
    saved = load(path / "checkpoints/latest")
    assert saved.policy["env_steps"] >= 512
    assert (path / "checkpoints/latest/state.json").stat().st_size < 300_000
    resumed = offbeat("resume", path, "--import", *imports, "--progress", "lines", "--set", "stop_at=none")
    assert resumed.code == 0, resumed.err
    assert "unfinished episodes were not saved" in resumed.err


def test_an_older_replay_is_deleted_where_nothing_can_be_written(tmp_path, monkeypatch):
    store = store_in(tmp_path)
    store.save(1, replayed(1), ["latest"])
    prune = store._prune
    monkeypatch.setattr(store, "_prune", lambda: None)
    store.save(2, replayed(2), ["latest"])
    with files_up_to(0):
        prune()
    assert with_replays(store) == [2]


def test_a_replay_is_deleted_only_after_the_new_manifest_is_synced(tmp_path, monkeypatch):
    store = store_in(tmp_path)
    first = store.save(1, replayed(1), ["latest"])
    sync = files.sync

    def fail(path: Path) -> None:
        if path == first:
            raise OSError("no answer from the disk")
        sync(path)

    monkeypatch.setattr(checkpoint_store, "sync", fail)
    store.save(2, replayed(2), ["latest"])
    assert (first / REPLAY).exists()
    assert with_replays(store) == [2]
    monkeypatch.setattr(checkpoint_store, "sync", sync)
    store.save(3, replayed(3), ["latest"])
    assert with_replays(store) == [3]
    assert not (first / REPLAY).exists()


def test_an_older_checkpoint_is_deleted_only_after_the_new_links_are_synced(tmp_path, monkeypatch):
    store = store_in(tmp_path, max_full=1)
    first = store.save(1, full(1), ["latest"])
    synced: list[tuple[str | None, bool]] = []
    monkeypatch.setattr(checkpoint_store, "sync", lambda _path: synced.append((store.linked_latest(), first.exists())))
    second = store.save(2, full(2), ["latest"])
    assert (second.name, True) in synced
    assert not first.exists()


CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink"}
"""What Python tells before it changes something on the disk."""


def killed_at(moment: int, store: CheckpointStore, number: int, names: list[str]) -> bool:
    """Save in a child that ends without a word before its so-manieth touch of the disk; return whether it got there."""
    child = os.fork()
    if not child:
        try:
            touches = count(1)

            def touch(*_: object) -> None:
                if next(touches) == moment:
                    os._exit(9)

            chunks, sync = checkpoint._chunks, files.sync

            def touched_chunks(array: np.ndarray) -> Iterator[memoryview]:
                for chunk in chunks(array):
                    touch()
                    yield chunk

            def touched_sync(path: Path) -> None:
                touch()
                sync(path)

            checkpoint._chunks, checkpoint.CHUNK_BYTES = touched_chunks, 200
            for module in (checkpoint, checkpoint_store):
                setattr(module, "sync", touched_sync)  # noqa: B010 - it is imported there
            sys.addaudithook(lambda event, _: touch() if event in CHANGES else None)
            store.save(number, replayed(number), names)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, 9}
    return code == 9


def moments() -> Iterator[int]:
    """Every moment in `make test-all`, every fifth one in `make test`."""
    return count(1, stride(2))


def test_a_save_killed_at_any_moment_leaves_complete_checkpoints_and_a_replay(tmp_path):
    """Three are kept, of which the last save deletes one and takes a replay away from another."""
    for moment in moments():
        store = store_in(tmp_path / str(moment), max_full=3)
        for number in range(1, 5):
            store.save(number, replayed(number), ["latest"])
        killed = killed_at(moment, store, 5, ["latest", "best"])
        latest = load(store.path("latest"), with_replay=True)
        assert latest.state is not None
        assert latest.state["number"] in {4, 5}
        assert latest.replay is not None
        assert set(with_replays(store)) <= {4, 5}
        for name in ("latest", "best"):
            link = tmp_path / str(moment) / "checkpoints" / name
            assert not link.is_symlink() or link.exists()
        store.drop_beyond(latest.state["number"])  # as a run does that goes on from there
        store.save(6, replayed(6), ["latest"])
        assert with_replays(store) == [6]
        assert len(list((tmp_path / str(moment)).rglob(REPLAY))) == 1
        assert not list((tmp_path / str(moment) / "checkpoints").glob(".writing*"))
        shutil.rmtree(tmp_path / str(moment))
        if not killed:
            break
    assert moment > 60  # nothing was left out


def test_latest_and_best_are_complete_if_a_second_save_at_the_same_step_is_killed(tmp_path):
    for moment in moments():
        store = store_in(tmp_path / str(moment))
        store.save(5, replayed(5), ["best", "latest"])
        killed = killed_at(moment, store, 5, ["best", "latest"])
        for name in ("latest", "best"):
            assert load(store.path(name), with_replay=True).state == {"number": 5}
        assert load(store.path("latest"), with_replay=True).replay is not None
        shutil.rmtree(tmp_path / str(moment))
        if not killed:
            break
    assert moment > 40  # nothing was left out


# --- what is best -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint_every", [300, *thorough(0, 256)])
def test_the_link_best_points_to_the_best_evaluation(tmp_path, checkpoint_every):
    run = small_run(tmp_path / "run", checkpoint_every=checkpoint_every, eval_every=256, eval_episodes=3, steps=1536)
    lines = [line for line in lines_of(run.path) if line["evaluations"]]
    best = max(line["eval_return_mean"] for line in lines)
    first = next(line for line in lines if line["eval_return_mean"] == best)
    policy = load(run.path / "checkpoints" / "best").policy
    assert (policy["env_steps"], policy["learning_step"]) == (first["env_steps"], first["learning_step"])
    assert lines[-1]["best_eval_return_mean"] == best
    assert len({line["eval_return_mean"] for line in lines}) > 2
