"""What a user does with a run that has several policies: load, watch, export, push, plot, resume, start anew."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from PIL import Image
from tests.sample_envs.drawn_worlds import PICTURES, DrawnSpaces
from tests.support.runs import offbeat, small_arguments, small_run, weights_of_each

import offbeat as package
from offbeat.api.playing.load import load, load_all, loaded_from
from offbeat.config.trust import Code
from offbeat.core.errors import ConfigError
from offbeat.run_directory.checkpoint import load as load_checkpoint

WORLD = "tests.sample_envs.drawn_worlds:DrawnSpaces"
AGENTS = ("scout", "driver", "gunner")
NAMES = ["driver", "gunner", "scout"]
SETTINGS: dict[str, Any] = {"steps": 256, "envs_per_actor": 2, "runtime": "serial"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    return small_run(path, WORLD, policies="separate", **SETTINGS).path


def observations() -> dict[str, Any]:
    world = DrawnSpaces()
    return world.reset(seed=3)[0]


# --- load ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("play", [package.evaluate, package.watch])
def test_one_of_several_policies_is_not_played_alone_and_what_to_pass_is_said(play, run, tmp_path):
    one = package.load_all(run)["scout"]
    where = {"video": tmp_path / "a.gif"} if play is package.watch else {"episodes": 1}
    with pytest.raises(ConfigError, match=r"no policy is given for 'driver', 'gunner' of .*offbeat\.load_all\(run\)"):
        play(one, **where)


def test_load_without_a_name_lists_the_policies_of_the_run(run):
    with pytest.raises(ConfigError, match=r"has the policies driver, gunner, scout: choose one with --policy NAME"):
        load(run)


def test_load_of_an_unknown_policy_suggests_the_nearest_one(run):
    with pytest.raises(ConfigError, match=r"unknown policy 'scuot'.*scout.*has driver, gunner, scout"):
        load(run, policy="scuot")


def test_each_loaded_policy_acts_for_its_own_agents(run):
    policies = package.load_all(run)
    assert {name: policy.trained.agents for name, policy in policies.items()} == {name: (name,) for name in NAMES}
    world, seen = DrawnSpaces(), observations()
    for name in NAMES:
        action = load(run, policy=name)(seen[name])
        assert world.action_space(name).contains(np.asarray(action) if name == "driver" else action)
        assert np.array_equal(action, policies[name](seen[name]))


def test_load_all_returns_the_single_policy_of_a_run_as_default(tmp_path):
    run = small_run(tmp_path / "run", **SETTINGS)
    assert list(load_all(run.path)) == ["default"]
    assert load(run.path, policy="default").trained.agents == ()


@pytest.mark.parametrize("agents", [[1], ["\x1b[31m"], ["a" * 1001], {"scout": 1}, 1])
def test_agents_of_a_changed_file_are_refused(agents, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    latest = (copy / "checkpoints" / "latest").resolve()
    name = "policies/scout/policy.json"
    (latest / name).write_text(json.dumps({**json.loads((latest / name).read_text()), "agents": agents}))
    with pytest.raises(ConfigError, match=r"SHA-256 differs"):
        load(copy, policy="scout")
    manifest = json.loads((latest / "manifest.json").read_text())
    manifest["files"][name] = sha256((latest / name).read_bytes()).hexdigest()
    (latest / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=r"agents is .* but a comma-separated list, .* printable characters"):
        load(copy, policy="scout")


# --- watch --------------------------------------------------------------------------------------------------


def test_watch_plays_one_episode_of_all_policies_and_prints_the_return_of_each_agent(run, tmp_path):
    PICTURES.clear()
    said = offbeat("watch", run, "--video", tmp_path / "episode.gif", "--seed", 5)
    assert said.code == 0, said.err
    found = re.match(r"return scout (.+), driver (.+), gunner (.+) in 8 env steps, written to ", said.out)
    assert found, said.out
    assert [float(each) for each in found.groups()] == pytest.approx(list(returns_by_hand(run, seed=5)), abs=0.051)
    assert [int(picture[0, 0, 0]) for picture in PICTURES] == list(range(9))
    with Image.open(tmp_path / "episode.gif") as video:
        assert getattr(video, "n_frames", 1) > 1


def returns_by_hand(run: Path, seed: int) -> Any:
    policies, world = load_all(run), DrawnSpaces()
    returns = dict.fromkeys(AGENTS, 0.0)
    seen, _ = world.reset(seed)
    while world.agents:
        seen, rewards, _, _, _ = world.step({name: policies[name](seen[name]) for name in world.agents})
        returns = {name: returns[name] + rewards[name] for name in AGENTS}
    return returns.values()


def test_watch_cuts_an_episode_of_a_world(run, tmp_path):
    said = offbeat("watch", run, "--video", tmp_path / "episode.gif", "--max-steps", 3)
    assert "in 3 env steps, cut by --max-steps 3, written to" in said.out


@pytest.mark.parametrize(
    ("fails_in", "code", "words"),
    [
        (None, 0, ""),
        ("render", 2, "cannot be rendered here (RuntimeError: no screen)"),
        ("step", 1, "step() raised RuntimeError: no screen"),
    ],
)
def test_watch_closes_the_world_also_if_it_fails(run, tmp_path, monkeypatch, fails_in, code, words):
    def fail(_world: DrawnSpaces, *_: Any) -> None:
        raise RuntimeError("no screen")

    def close(world: DrawnSpaces) -> None:
        closed.append(world)
        raise RuntimeError("no window to close")

    closed: list[DrawnSpaces] = []
    monkeypatch.setattr(DrawnSpaces, "close", close, raising=False)
    if fails_in:
        monkeypatch.setattr(DrawnSpaces, fails_in, fail)
    video = tmp_path / "episode.gif"
    with pytest.warns(UserWarning, match=r"close\(\) raised RuntimeError: no window to close"):
        said = offbeat("watch", run, "--video", video)
    assert len(closed) == 1
    assert (said.code, video.exists()) == (code, not fails_in)
    assert words in said.err
    assert ("cannot be rendered" in said.err) == (fails_in == "render")


def test_watch_of_agents_that_appear_late_and_end_early_plays_all_of_them(tmp_path):
    world = "tests.sample_envs.drawn_worlds:DrawnArrivals"
    run = small_run(tmp_path / "run", world, core="gru", core_size=4, **SETTINGS)
    said = offbeat("watch", run.path, "--video", tmp_path / "episode.gif")
    found = re.match(r"return agent_0 (.+), agent_1 (.+), agent_2 (.+) in 9 env steps", said.out)
    assert found, said.out + said.err


def test_a_world_without_pictures_is_not_watched(tmp_path):
    run = small_run(tmp_path / "run", "offbeat.envs.testing.worlds:CartPoles", **SETTINGS)
    said = offbeat("watch", run.path, "--video", tmp_path / "episode.gif")
    assert said.code == 2
    assert "cannot be rendered here" in said.err
    assert "it has no argument render_mode" in said.err
    assert "Give its __init__ the argument" in said.err  # its env is a class


# --- export -------------------------------------------------------------------------------------------------


def test_export_writes_the_chosen_policy(run):
    said = offbeat("export", run, "--policy", "gunner", "--format", "torchscript")
    assert said.code == 0, said.err
    assert f"ppo on {WORLD} (agents gunner) after 256 env steps" in said.out
    assert (run / "policy-gunner.pt").is_file()


def test_export_without_a_chosen_policy_lists_them(run):
    said = offbeat("export", run, "--format", "torchscript")
    assert said.code == 2
    assert "has the policies driver, gunner, scout: choose one with --policy NAME" in said.err


# --- push ---------------------------------------------------------------------------------------------------


def test_push_writes_the_chosen_policy_with_its_own_scores(run):
    said = offbeat("push", run, "someone/gunner", "--policy", "gunner", "--episodes", 2, "--dry-run")
    assert said.code == 0, said.err
    folder = run / "hub"
    assert not (folder / "policies").exists()
    card = (folder / "README.md").read_text()
    assert f"# PPO on {WORLD}, for gunner" in card
    assert 'action = policy(observations["gunner"])  # acts for gunner' in card
    scores = json.loads((folder / "evaluation.json").read_text())
    evaluated = json.loads(offbeat("eval", run, "--episodes", 2, "--json").out)
    assert scores == evaluated["policies"]["gunner"] != evaluated["policies"]["driver"]
    pushed, seen = loaded_from(load_checkpoint(folder), "the hub", Code()), observations()["gunner"]
    assert pushed.trained.agents == ("gunner",)
    assert pushed(seen) == load(run, policy="gunner")(seen)


def test_push_without_a_chosen_policy_lists_them(run):
    said = offbeat("push", run, "someone/gunner", "--dry-run")
    assert said.code == 2
    assert "has the policies driver, gunner, scout: choose one with --policy NAME" in said.err


# --- plot ---------------------------------------------------------------------------------------------------


def test_plot_draws_a_line_for_each_policy(run, tmp_path):
    out = tmp_path / "return.svg"
    assert offbeat("plot", run, "--out", out).code == 0
    text = out.read_text()
    for color in ("#0072b2", "#d55e00", "#009e73"):
        assert color in text


# --- resume and start anew ----------------------------------------------------------------------------------


def changed(run: Path, copy: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a run, and change the tables of its policies."""
    shutil.copytree(run, copy, symlinks=True)
    config = tomllib.loads((copy / "config.toml").read_text())
    change(config["policies"])
    (copy / "config.toml").write_text(tomli_w.dumps(config))
    return copy


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "name": (
        lambda tables: tables.update(spy=tables.pop("scout")),
        "policies is scout, driver, gunner in the checkpoint and driver, gunner, spy now",
    ),
    "agents": (
        lambda tables: tables["scout"].update(agents=["scout", "spy"]),
        r"policies\.scout\.agents is \['scout'\] in the checkpoint and \['scout', 'spy'\] now",
    ),
    "learning": (
        lambda tables: tables["scout"].update(train=False, init_from="runs/earlier"),
        r"policies\.scout\.train is True in the checkpoint and False now",
    ),
    "network": (
        lambda tables: tables["scout"].update(settings={"hidden_sizes": [4]}),
        r"as the policy scout: hidden_sizes is \(16,\) in the checkpoint and \(4,\) now",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_resume_with_changed_policies_is_refused(change, run, tmp_path):
    change_tables, message = CHANGES[change]
    said = offbeat("resume", changed(run, tmp_path / "run", change_tables), "--steps", 512)
    assert said.code == 2
    assert re.search(message, said.err), said.err
    assert weights_of_each(tmp_path / "run") == weights_of_each(run)


# --- initial weights ----------------------------------------------------------------------------------------


def tables(**changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a table for each agent."""
    return {name: {"agents": [name], **changes.get(name, {})} for name in AGENTS}


def at_start(run: Path) -> dict[str, bytes]:
    """Return the weights of version 0."""
    (first,) = (run / "checkpoints").glob("step-000000000000")
    return {path.name: (path / "weights.safetensors").read_bytes() for path in sorted((first / "policies").iterdir())}


def test_init_from_of_the_run_gives_each_policy_the_weights_of_its_namesake(run, tmp_path):
    new = small_run(tmp_path / "run", WORLD, policies="separate", init_from=run, **SETTINGS)
    assert at_start(new.path) == weights_of_each(run)
    log = (new.path / "log.txt").read_text()
    assert f"initial weights and normalisation are those of {run}" in log


def test_init_from_of_a_policy_initializes_this_policy_alone(run, tmp_path):
    own = tables(scout={"init_from": run})
    new, fresh = (
        small_run(tmp_path / name, WORLD, policies=policies, **SETTINGS)
        for name, policies in (("new", own), ("fresh", tables()))
    )
    expected = {**at_start(fresh.path), "scout": weights_of_each(run)["scout"]}
    assert at_start(new.path) == expected
    assert weights_of_each(new.path)["scout"] != expected["scout"]
    assert f"are those of {run} for scout" in (new.path / "log.txt").read_text()


@pytest.mark.parametrize("trained", [True, False])
def test_init_policy_takes_the_weights_of_a_policy_with_another_name(trained, run, tmp_path):
    renamed = {"agents": ["scout"], "train": trained, "init_from": str(run), "init_policy": "scout"}
    others = {name: table for name, table in tables().items() if name != "scout"}
    new = small_run(tmp_path / "run", WORLD, policies={"spy": renamed, **others}, **SETTINGS)
    assert at_start(new.path)["spy"] == weights_of_each(run)["scout"]
    assert (weights_of_each(new.path)["spy"] == weights_of_each(run)["scout"]) is not trained


def test_policies_take_the_weights_of_a_run_with_one_policy(tmp_path):
    carts = "offbeat.envs.testing.worlds:CartPoles"
    shared = small_run(tmp_path / "shared", carts, **SETTINGS)
    new = small_run(tmp_path / "run", carts, policies="separate", init_from=str(shared.path), **SETTINGS)
    weights = (shared.path / "checkpoints" / "latest" / "weights.safetensors").read_bytes()
    assert at_start(new.path) == dict.fromkeys(["cart_0", "cart_1", "cart_2"], weights)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another name": (
        {"spy": {"agents": ["scout"], "init_from": "{run}"}},
        'which has the policies driver, gunner, scout, but none with this name: write init_policy = "driver"',
    ),
    "unknown": (
        {"scout": {"agents": ["scout"], "init_from": "{run}", "init_policy": "spy"}},
        "but no policy 'spy': write init_policy",
    ),
    "another network": (
        {"scout": {"agents": ["scout"], "init_from": "{run}", "settings": {"hidden_sizes": [4]}}},
        r"as the policy scout: hidden_sizes is 16 in .* 4 now\..*: write hidden_sizes = \[16\] .*\[policies\.scout\]",
    ),
    "another scale of values": (
        {"scout": {"agents": ["scout"], "init_from": "{run}", "settings": {"return_scale": 2.0}}},
        r"return_scale is 2, but .* learned with 3\.0, .* write return_scale = 3\.0 in .*\[policies\.scout",
    ),
    "no run": (
        {"scout": {"agents": ["scout"], "init_from": "nowhere"}},
        "nowhere is not a run directory",
    ),
    "no weights": (
        {"scout": {"agents": ["scout"], "train": False}},
        r"the policy scout does not learn \(train = false\), but it has no weights: write init_from",
    ),
    "policy of no run": (
        {"scout": {"agents": ["scout"], "init_policy": "scout"}},
        "the policy scout has init_policy 'scout', but no run to take it from",
    ),
    "nothing learns": (
        {"all": {"agents": ["*"], "train": False, "init_from": "{run}"}},
        "none of the policies all learns",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_initial_weights_are_refused_before_anything_is_written(case, run, tmp_path):
    policies, message = REFUSED[case]
    others = {} if "all" in policies else {name: table for name, table in tables().items() if name != "scout"}
    file = tmp_path / "policies.toml"
    file.write_text(tomli_w.dumps({"policies": {**policies, **others}}).replace("{run}", str(run)))
    arguments = small_arguments(tmp_path / "new", WORLD, **SETTINGS)
    said = offbeat(*arguments, f"policies={file}")
    assert said.code == 2
    assert re.search(message, said.err), said.err
    assert not (tmp_path / "new").exists()


def test_an_encoder_in_the_settings_of_a_policy_may_be_given_as_its_class(tmp_path):
    policies = {"all": {"agents": "*", "settings": {"encoder": lambda _leaves: None}}}
    with pytest.raises(ConfigError, match="cannot be imported by its name"):
        package.train("ppo", "CartPole-v1", policies=policies, run_dir=tmp_path / "run")
