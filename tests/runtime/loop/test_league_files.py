"""The snapshots of a league in a run directory."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.support.runs import small_run

import offbeat
from offbeat.config.league import LeagueConfig
from offbeat.core.errors import ConfigError
from offbeat.league.opponents import OpponentOdds
from offbeat.league.players import LATEST
from offbeat.league.table import LeagueTable
from offbeat.run_directory.checkpoint import load
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.snapshots import SnapshotStore

GAME = "offbeat.envs.testing.games:RockPaperScissors"
LEAGUE: dict[str, Any] = {"window": 3, "snapshot_every": 2}
SETTINGS: dict[str, Any] = {
    "steps": 320,
    "unroll_length": 8,
    "env": GAME,
    "runtime": "serial",
    "lag": "exact",
    "league": LEAGUE,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    run = small_run(tmp_path_factory.mktemp("runs") / "trained", **SETTINGS)
    return run.path


@pytest.fixture
def copy(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy", symlinks=True))


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory) -> Path:
    run = small_run(tmp_path_factory.mktemp("runs") / "stopped", stop_at=160, **SETTINGS)
    return run.path


@pytest.fixture
def stopped(stopped_once, tmp_path) -> Path:
    """The run that `trained` is, stopped on the way."""
    return Path(shutil.copytree(stopped_once, tmp_path / "stopped", symlinks=True))


def files_of(run: Path) -> dict[str, bytes]:
    """Name -> content of all files of the snapshots."""
    return {str(path.relative_to(run)): path.read_bytes() for path in (run / "league").rglob("*") if path.is_file()}


def taken(run: Path) -> int:
    """Number of snapshots that the league has taken."""
    state = load(run / "checkpoints" / "latest").state
    assert state is not None
    return len(state["league"]["table"]["policies"][0]["snapshots"])


def test_the_snapshots_of_the_window_are_on_disk_and_older_ones_are_not(trained):
    count = taken(trained)
    assert count > 4
    assert SnapshotStore(trained / "league").numbers("default") == list(range(count - 3, count))


@pytest.fixture(scope="module")
def separate(tmp_path_factory) -> Path:
    """A run with two policies that keeps all snapshots."""
    settings = {**SETTINGS, "policies": "separate", "league": {**LEAGUE, "keep_all": True}}
    return small_run(tmp_path_factory.mktemp("runs") / "separate", **settings).path


def test_a_league_with_keep_all_keeps_every_snapshot(separate):
    store = SnapshotStore(separate / "league")
    assert taken(separate) > 4
    assert [store.numbers(policy) for policy in store.policies] == [list(range(taken(separate)))] * 2


def test_a_loaded_snapshot_has_the_weights_that_the_league_has_in_memory(trained):
    state = load(trained / "checkpoints" / "latest").state
    assert state is not None
    ring, number = state["league"]["arrays"]["snapshots/default"], taken(trained) - 1
    loaded = offbeat.load(trained, snapshot=number)
    assert np.array_equal(loaded.acting_policy.vector, ring[number % len(ring)])
    table = state["league"]["table"]["policies"][0]["snapshots"][number]
    assert (loaded.trained.learning_step, loaded.trained.env_steps) == (table["learning_step"], table["env_steps"])
    assert not np.array_equal(
        loaded.acting_policy.vector, offbeat.load(trained, snapshot=number - 1).acting_policy.vector
    )


def test_each_policy_of_a_league_has_its_own_snapshots(separate):
    first, second = sorted(RunDirectory(separate).snapshot_store().policies)
    number = taken(separate) - 1
    one, other = (offbeat.load(separate, snapshot=number, policy=name) for name in (first, second))
    assert one.trained.agents != other.trained.agents
    assert not np.array_equal(one.acting_policy.vector, other.acting_policy.vector)
    with pytest.raises(ConfigError, match=f"has the policies {first}, {second}: choose one"):
        offbeat.load(separate, snapshot=number)


def test_the_window_of_a_league_is_that_of_each_policy_also_if_one_has_more_snapshots(tmp_path):
    """In turns of 8 of 20 learning steps, the first policy has snapshots after steps 0 to 8 and 18 to 20."""
    league = {"window": 2, "snapshot_every": 2, "team_change_every": 8}
    run = small_run(tmp_path / "run", **{**SETTINGS, "policies": "separate", "league": league})
    state = load(run.path / "checkpoints" / "latest").state
    assert state is not None
    arrays, table = state["league"]["arrays"], LeagueTable.restore(state["league"]["table"])
    counts = {name: len(snapshots) for name, snapshots in table.snapshots.items()}
    assert list(counts.values()) == [7, 5]
    assert arrays["odds/snapshots"][table.version % len(arrays["odds/snapshots"])].tolist() == [7, 5]
    odds = OpponentOdds.of(LeagueConfig(window=2), table, list(counts))
    for name, count in counts.items():
        window = [count - 2, count - 1]
        assert SnapshotStore(run.path / "league").numbers(name) == window
        assert [player.snapshot for player in odds.lotteries[name, name][1]] == [LATEST, *window]
        ring = arrays[f"snapshots/{name}"]
        assert len(ring) < count, "no place was used twice"
        saved = [offbeat.load(run.path, snapshot=number, policy=name).acting_policy.vector for number in window]
        assert np.array_equal(saved, [ring[number % len(ring)] for number in window])


def test_a_resumed_league_has_the_snapshot_files_of_a_run_without_a_stop(trained, stopped):
    assert taken(stopped) < taken(trained)
    offbeat.resume(stopped)
    assert files_of(stopped) == files_of(trained)


def test_a_resume_replaces_snapshots_of_a_crash_and_writes_those_of_the_window_that_are_missing(trained, stopped):
    store, number = SnapshotStore(stopped / "league"), taken(stopped)
    shutil.copytree(stopped / f"league/default/snapshot-{number - 1:06d}", store._path("default", number))
    shutil.rmtree(store._path("default", number - 1))
    (stopped / "league/default/.writing-snapshot-000009").mkdir()
    offbeat.resume(stopped)
    assert files_of(stopped) == files_of(trained)
    assert not list((stopped / "league/default").glob(".writing-*"))


def test_a_full_disk_does_not_end_the_run_and_the_snapshot_is_written_later(tmp_path, monkeypatch):
    calls: list[int] = []

    def fails_once(store: SnapshotStore, policy: str, number: int, saved: Any) -> None:
        calls.append(number)
        if calls.count(2) == 1 and number == 2:
            raise OSError("No space left on device")
        original(store, policy, number, saved)

    original = SnapshotStore.save
    monkeypatch.setattr(SnapshotStore, "save", fails_once)
    run = small_run(tmp_path / "run", **{**SETTINGS, "league": {**LEAGUE, "keep_all": True}})
    assert calls[:4] == [0, 1, 2, 2]
    assert SnapshotStore(run.path / "league").numbers("default") == list(range(taken(run.path)))
    assert "could not be written (No space left on device)" in (run.path / "log.txt").read_text()


def test_a_run_that_fails_while_it_writes_a_snapshot_saves_the_counters_of_its_weights(tmp_path):
    save = patch.object(SnapshotStore, "save", side_effect=[None, LookupError("no such table")])
    with save, pytest.raises(LookupError):
        small_run(tmp_path / "run", **SETTINGS)
    saved = load(tmp_path / "run" / "checkpoints" / "latest")
    assert saved.state is not None
    assert saved.policy["learning_step"] == max(map(int, saved.state["versions"])) == LEAGUE["snapshot_every"]


@pytest.mark.parametrize("name", ["weights.safetensors", "policy.json"])
def test_a_changed_snapshot_is_refused(copy, name):
    number = taken(copy) - 1
    file = copy / f"league/default/snapshot-{number:06d}" / name
    file.write_bytes(file.read_bytes()[:-1] + b" ")
    with pytest.raises(ConfigError, match="was changed after it was saved"):
        offbeat.load(copy, snapshot=number)


def test_a_snapshot_of_another_env_is_refused(copy):
    config = copy / "config.toml"
    config.write_text(config.read_text().replace("RockPaperScissors", "Nim"))
    with pytest.raises(
        ConfigError, match=r"snapshot \d+ of .* was trained on .*RockPaperScissors.*config.toml has .*Nim"
    ):
        offbeat.load(copy, snapshot=taken(copy) - 1)


def test_a_snapshot_whose_encoder_is_code_of_a_stranger_is_refused(copy):
    folder = copy / f"league/default/snapshot-{taken(copy) - 1:06d}"
    about = json.loads((folder / "policy.json").read_text())
    about["policy"]["encoder"] = "antigravity:encoder"
    (folder / "policy.json").write_text(json.dumps(about))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["policy.json"] = sha256((folder / "policy.json").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="antigravity"):
        offbeat.load(copy, snapshot=taken(copy) - 1)


def test_a_snapshot_that_is_not_there_is_refused_with_those_that_are(trained, tmp_path):
    last = taken(trained) - 1
    with pytest.raises(ConfigError, match=rf"no snapshot 0: it has {last - 2}, {last - 1}, {last}. A run with .*keep"):
        offbeat.load(trained, snapshot=0)
    with pytest.raises(ConfigError, match="choose one"):
        offbeat.load(trained, "best", snapshot=last)
    with pytest.raises(ConfigError, match=r"^snapshot is .* hf://me/mine has no snapshots: leave it out"):
        offbeat.load("hf://me/mine", snapshot=last)
    run = small_run(tmp_path / "run", "CartPole-v1", runtime="serial", steps=256)
    with pytest.raises(ConfigError, match=r"it has none\. Only a run with a league has snapshots"):
        offbeat.load(run.path, snapshot=0)
