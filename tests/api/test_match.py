"""Matches of real runs, in Python and on the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.runs import lines_of, small_run
from tests.support.runs import offbeat as typed

import offbeat
from offbeat.api.match import _pairings
from offbeat.api.playing.entrants import Entrant, entrants_of
from offbeat.cli.match import Match
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import ConfigError
from offbeat.run_directory.snapshots import SnapshotStore
from offbeat.workers.mixture import Mixture

NIM, CARTS = "offbeat.envs.testing.games:Nim", "offbeat.envs.testing.worlds:CartPoles"
THREE = "offbeat.envs.testing.worlds:MixedSpaces"
GAME = "offbeat.envs.testing.games:RockPaperScissors"
SETTINGS: dict[str, Any] = {"steps": 128, "runtime": "serial"}
LEAGUE: dict[str, Any] = {**SETTINGS, "steps": 480, "league": {"window": 2, "snapshot_every": 2, "keep_all": True}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return Path(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def league(folder) -> Path:
    return small_run(folder / "league", NIM, **LEAGUE).path


@pytest.fixture(scope="module")
def separate(folder) -> Path:
    return small_run(folder / "separate", NIM, policies="separate", **LEAGUE).path


@pytest.fixture(scope="module")
def plain(folder) -> Path:
    return small_run(folder / "plain", NIM, seed=3, **SETTINGS).path


def test_the_snapshots_of_the_window_and_the_latest_policy_of_a_league_play_each_pair(league):
    played = offbeat.match([league], episodes=7)
    players = played.payoffs.players
    assert players[-1] == "latest"
    assert [int(each) for each in players[:-1]] == [int(players[-2]) - 1, int(players[-2])]
    games = played.payoffs.games
    assert (games == 8 * (1 - np.eye(3))).all()  # 7 is rounded up: both have each side 4 times
    assert [each.player for each in played.standings] != []
    best = played.standings[0]
    assert repr(played).startswith(f"Match(24 games: {best.player} {best.rating:.0f} +- {best.error:.0f}, ")
    assert len(offbeat.match([league], episodes=2, snapshots="all").payoffs.players) == int(players[-2]) + 2
    step = (league / "checkpoints/latest").resolve().name
    players = offbeat.match([league], episodes=2, snapshots="window", average=True, checkpoint=step).payoffs.players
    assert players[2:] == ("average", step)


def test_a_snapshot_with_the_weights_of_the_latest_checkpoint_does_not_play_beside_it(folder):
    each_step = {"window": 2, "snapshot_every": 1}
    run = small_run(folder / "each-step", NIM, steps=192, runtime="serial", league=each_step).path
    newest = lines_of(run)[-1]["learning_step"]
    for given in (run, str(run), [run]):
        assert offbeat.match(given, episodes=2).payoffs.players == (str(newest - 1), "latest")


def test_a_policy_that_does_not_learn_does_not_meet_its_own_snapshot(separate, folder):
    frozen = {"agents": "player_1", "train": False, "init_from": str(separate)}
    policies = {"player_0": {"agents": "player_0"}, "player_1": frozen}
    league = {"window": 2, "snapshot_every": 1}
    run = small_run(folder / "frozen", NIM, **{**SETTINGS, "steps": 192}, policies=policies, league=league).path
    players = offbeat.match([run], episodes=2).payoffs.players
    assert [name for name in players if name.startswith("player_1")] == ["player_1:latest"]
    assert len(players) > 2


def test_equal_players_without_chance_share_the_games_because_both_have_each_side_equally_often(plain, folder):
    others: dict[str, Any] = {"clip_rewards": True, "info_metrics": ("won",), "eval_kwargs": {"stones": 7}}
    again = small_run(folder / "again", NIM, seed=3, **others, **SETTINGS).path
    # these are of learning and evaluations only, so that the two runs have one world
    played = offbeat.match([plain, again], episodes=20, greedy=True)
    assert played.payoffs.win_rates[0, 1] == 0.5
    assert played.payoffs.players == ("plain", "again")


def test_a_match_repeats_with_its_seed(league, plain):
    first = offbeat.match([league, plain], episodes=40, seed=1)
    assert offbeat.match([league, plain], episodes=40, seed=1).as_json() == first.as_json()
    assert offbeat.match([league, plain], episodes=40, seed=2).as_json() != first.as_json()


def test_a_run_with_a_policy_for_each_side_meets_one_with_a_policy_for_both(separate, plain):
    played = offbeat.match([separate, plain], episodes=10, snapshots="none", average=False)
    assert played.payoffs.games[0, 1] == 10


def test_players_of_one_side_only_meet_those_of_the_other_side(separate):
    played = offbeat.match([separate], episodes=5, snapshots="none", average=True)
    assert played.payoffs.players == ("player_0:average", "player_0:latest", "player_1:average", "player_1:latest")
    meet = np.array([[0, 1], [1, 0]])
    assert (played.payoffs.games == 5 * np.kron(meet, np.ones((2, 2)))).all()
    assert played.lines == ("player_0:average", "player_0", "player_1:average", "player_1")
    assert played.agents == (("player_0",), ("player_0",), ("player_1",), ("player_1",))
    said = typed("match", separate, "--episodes", 2, "--snapshots", "none")
    assert "Only their ratings can be compared" in said.out


def test_of_policies_that_are_drawn_each_is_a_player_and_in_a_match_of_runs_one_is_drawn_per_game(plain, folder):
    league = {**LEAGUE["league"], "draw_policies": True}
    policies = {"small": {"agents": "*", "settings": {"core": "lstm", "core_size": 8}}, "large": {"agents": "*"}}
    drawn = small_run(folder / "drawn", NIM, policies=policies, **{**LEAGUE, "league": league}).path
    played = offbeat.match([drawn], episodes=6, snapshots="none")
    assert played.payoffs.players == ("large:latest", "small:latest")
    assert played.payoffs.games[0, 1] == 6
    assert offbeat.match([drawn, plain], episodes=6).payoffs.games[0, 1] == 6
    (both, _), _ = entrants_of([drawn, plain], "none", checkpoint="latest", average=False, trust_code=False)
    mixture = both.policy_of(("player_0",))[1]
    assert isinstance(mixture, Mixture)
    assert [policy.state_size for policy in mixture.policies] == [0, 16]
    scores = json.loads(typed("eval", str(drawn), "--episodes", "8", "--json").out)
    assert list(scores["policies"]) == ["large", "small"]


@pytest.fixture(scope="module")
def carts(folder) -> list[Path]:
    return [small_run(folder / f"carts-{seed}", CARTS, seed=seed, **SETTINGS).path for seed in range(2)]


@pytest.fixture(scope="module")
def carts_in_teams(folder) -> Path:
    teams = {"a": {"agents": "cart_0"}, "b": {"agents": "*"}}
    return small_run(folder / "carts-teams", CARTS, policies=teams, **SETTINGS).path


def test_a_game_of_three_sides_counts_once(carts):
    played = offbeat.match(carts, episodes=6)
    assert played.payoffs.games.tolist() == [[0, 6], [6, 0]]
    assert played.payoffs.wins.sum() == 6
    two = offbeat.match(carts, episodes=5, sides=("cart_0", "*"))
    assert two.payoffs.games[0, 1] == 6  # two seatings
    with flags_shown(False), pytest.raises(ConfigError, match=r'such as sides=\["red_\*", "blue_\*"\]$'):
        offbeat.match(carts, sides=("*",))


@pytest.mark.parametrize("sides", [(), ("cart_0", "*")])
def test_the_sides_of_a_match_do_not_depend_on_the_order_of_the_runs(sides, carts, carts_in_teams):
    runs = [carts[0], carts_in_teams]
    games = [offbeat.match(each, episodes=4, sides=sides) for each in (runs, runs[::-1])]
    assert [each.payoffs.games[0, 1] for each in games] == [4, 4]
    assert games[0].agents == games[1].agents == (("cart_0", "cart_1", "cart_2"),) * 2


def test_a_run_plays_a_team_with_all_the_policies_of_its_agents(folder):
    runs = [small_run(folder / f"team-{n}", THREE, policies="separate", seed=n, **SETTINGS).path for n in range(2)]
    played = offbeat.match(runs, episodes=4, sides=("scout", "*"))
    assert played.payoffs.games.tolist() == [[0, 4], [4, 0]]
    assert played.sides == (("scout",), ("driver", "gunner"))
    assert played.agents == (("scout", "driver", "gunner"),) * 2
    implied = "match: 3 sides, whose agents win or lose together: (driver); (gunner); (scout); for other sides pass"
    for flags, shown in (((), True), (("--sides", "scout,*"), False)):
        said = typed("match", *runs, "--episodes", 2, *flags)
        assert (implied in said.out) == shown


def test_match_json_has_players_payoffs_and_standings_and_pictures_are_drawn(league, tmp_path):
    said = typed(
        "match", league, "--episodes", 4, "--json", "--out", tmp_path / "a.png", "--ratings", tmp_path / "b.png"
    )
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert list(found) == ["sides", "players", "payoffs", "standings", "cut", "no_result"]
    assert len(found["payoffs"]["games"]) == len(found["players"]) == len(found["standings"]) == 3
    assert set(found["standings"][0]) == {"player", "agents", "games", "win_rate", "rating", "error"}
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("a.png", "b.png"))
    said = typed("match", league, "--episodes", 4)
    assert "latest" in said.out
    assert "±" in said.out
    assert "can be compared" not in said.out


def test_the_standings_come_with_the_number_of_games_that_were_cut(league):
    said = typed("match", league, "--episodes", 2, "--max-episode-steps", 1)
    assert "games cut by --max-episode-steps 1: 6 of 6 (their results up to there count)" in said.out


def test_games_that_are_cut_before_the_env_reports_an_outcome_are_in_no_score(folder):
    scored = {**LEAGUE, "league": {**LEAGUE["league"], "outcome": "won"}}
    run = small_run(folder / "scored", "tests.sample_envs.scored_games:ScoredNim", **scored).path
    flags = ("match", run, "--episodes", 20, "--import", "tests.sample_envs.scored_games", "--max-episode-steps")
    played = json.loads(typed(*flags, 5, "--json").out)
    assert 0 < played["no_result"] == played["cut"] < 60
    assert np.sum(played["payoffs"]["games"]) / 2 == 60 - played["no_result"]
    assert f"games without a result: {played['no_result']} of 60 (" in typed(*flags, 5).out.replace("\n", " ")
    said = typed(*flags, 3)
    assert said.code == 1
    assert "none of the 60 games has a result (cut by the limit on env steps: 60)" in said.err.replace("\n", " ")
    assert "the league.outcome of the first run that has a league" in said.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("runs", "flags", "message"),
    [
        ([], [], "RUN... is missing: run, for example, offbeat match runs/NAME"),
        (["plain"], [], "needs 2 players that can play against each other, but it has only latest: pass several"),
        (
            ["three"],
            [],
            "scout:latest, none of which can play all other sides: pass several runs: the policies of a single one",
        ),
        (["plain", "plain"], [], "is given twice"),
        (["plain", "other"], [], "plain and other were trained in .*Nim and .*RockPaperScissors"),
        (["plain", "longer"], [], "were trained in .*Nim with different settings"),
        (["cart"], [], "at least 2 sides, but CartPole-v1 has one agent"),
        (["plain"], ["--average"], "plain has no league, so it has no snapshots"),
        (["plain", "league"], ["--snapshots", "window"], "plain has no league"),
        (["league"], ["--checkpoint", "best"], "league has no checkpoint 'best'"),
        (["league"], ["--sides", "player_0"], "player_1 .* matches none of them"),
        (["league"], ["--episodes", "0"], "episodes is 0"),
        (["league"], ["--out", "a.png", "--ratings", "a.png"], "both --out and --ratings are a.png"),
        (["league"], ["--out", "rates.txt"], "rates.txt: its name must end in one of"),
        (["league"], ["--ratings", "ratings"], "ratings: its name must end in one of"),
    ],
)
def test_a_match_that_cannot_be_played_is_refused(runs, flags, message, folder, league, plain):  # noqa: ARG001
    made = {
        "other": lambda path: small_run(path, GAME, **SETTINGS),
        "longer": lambda path: small_run(path, NIM, max_episode_steps=50, **SETTINGS),
        "three": lambda path: small_run(path, THREE, policies="separate", **SETTINGS),
        "cart": lambda path: small_run(path, "CartPole-v1", **SETTINGS),
    }
    for name in runs:
        if name in made and not (folder / name).exists():
            made[name](folder / name)
    said = typed("match", *(folder / name for name in runs), *flags)
    assert (said.code, said.out) == (2, "")
    assert re.search(message, said.err.replace("\n", " ")), said.err


def test_runs_that_would_have_to_draw_a_policy_within_a_team_cannot_play_it():
    agents = {"goalie": ["red_0"], "keeper": ["red_0"], "striker": ["red_1"], "blue": ["blue_0"]}
    versions: Any = dict.fromkeys(agents, ("latest",))
    entrants = [Entrant(name, name, agents, versions) for name in ("one", "two")]
    words = "one, two, none of which .*, or runs with one policy for each agent: no policy is drawn within a team"
    with pytest.raises(ConfigError, match=words):
        _pairings(entrants, [(("red_0",), ("red_1",)), (("blue_0",),)], 4, alone=False)


def test_one_file_for_both_pictures_of_a_match_is_refused_however_it_is_written():
    with pytest.raises(ConfigError, match=r"are a\.png: pass another file"):
        Match(runs=(), out=Path("a.png"), ratings=Path("a.png").absolute()).run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runs": []}, "no run is given"),
        (
            {"episodes": 0},
            "episodes is 0, but a whole number at least 1 and at most 100000000 is expected: pass, for",
        ),
        ({"games": 7}, "unknown argument 'games'. offbeat.match has the arguments runs, episodes, "),
        ({"seed": -1}, "seed is -1, but at least 0"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0, but at least 1"),
        ({"snapshots": "newest"}, "snapshots is 'newest', but one of all, window, none"),
        ({"snapshots": "none"}, "pass several runs, or the run of a league with --snapshots window"),
    ],
    ids=str,
)
def test_a_match_in_python_refuses_wrong_values(arguments, message, league):
    with pytest.raises(ConfigError, match=re.escape(message)):
        offbeat.match(**{"runs": [league], **arguments})


@pytest.mark.parametrize("flag", ["--out", "--ratings"])
def test_a_picture_that_cannot_be_written_is_refused_before_the_games(league, tmp_path, flag):
    (tmp_path / "rates.png").mkdir()
    for picture in ("/proc/nobody/rates.png", tmp_path / "rates.png"):
        said = typed("match", league, "--episodes", 2, flag, picture)
        assert (said.code, said.out) == (2, "")
        assert f"{picture} cannot be written" in said.err.replace("\n", " ")


def test_a_match_that_is_refused_makes_no_folder_for_its_picture(tmp_path):
    assert typed("match", tmp_path / "nowhere", "--out", tmp_path / "pictures/rates.png").code == 2
    assert not any(tmp_path.iterdir())


def test_a_match_leaves_the_threads_of_its_caller_as_they_were(league):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        offbeat.match([league], episodes=2, snapshots="window")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_league_is_evaluated_by_the_average_of_its_snapshots(league, plain):
    said = typed("eval", league, "--average", "--sampled", "--json")
    assert said.code == 0
    assert json.loads(said.out)["team_return_mean"] == 0
    assert json.loads(said.out)["return_max"] == 1
    assert typed("eval", plain, "--average").code == 2
    assert typed("eval", league, "--average", "--checkpoint", "best").code == 2


def test_an_average_is_refused_if_one_of_the_policies_has_no_snapshots(separate, tmp_path):
    run = shutil.copytree(separate, tmp_path / "copy", symlinks=True)
    shutil.rmtree(run / "league" / "player_0")
    for said in (typed("match", run, "--average"), typed("eval", run, "--average")):
        assert said.code == 2
        assert "has no snapshots of player_0, so there is no average" in said.err


def test_a_damaged_snapshot_is_no_obstacle_to_a_match_in_which_no_snapshot_plays(league, plain, tmp_path):
    run = shutil.copytree(league, tmp_path / "copy", symlinks=True)
    for weights in run.glob("league/*/*/weights.safetensors"):
        weights.write_bytes(b"damaged")
    assert offbeat.match([run, plain], episodes=2).played == 2
    with pytest.raises(ConfigError, match="damaged"):
        offbeat.match([run], episodes=2)


def test_folders_are_listed_as_often_for_many_snapshots_as_for_few(league, tmp_path, monkeypatch):
    run = shutil.copytree(league, tmp_path / "copy", symlinks=True)
    listed: list[str] = []

    def note(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def noted(*given: Any) -> Any:
            listed.append(name)
            return original(*given)

        monkeypatch.setattr(owner, name, noted)

    note(SnapshotStore, "numbers")
    note(os, "walk")
    few, often = len(offbeat.load_snapshots(run)["default"]), len(listed)
    for number in range(100, 100 + few):
        shutil.copytree(run / "league/default/snapshot-000000", run / f"league/default/snapshot-{number:06d}")
    listed.clear()
    assert len(offbeat.load_snapshots(run)["default"]) == 2 * few
    assert len(listed) == often


def test_an_average_of_no_snapshots_or_with_weights_of_others_is_refused(league):
    with pytest.raises(ConfigError, match="snapshots is empty"):
        offbeat.AveragePolicy([])
    with pytest.raises(ConfigError, match="the weights of 1 policies are"):
        offbeat.AveragePolicy([offbeat.load(league)], [1.0, 2.0])


def test_a_loaded_average_plays_one_of_the_snapshots_per_episode(league):
    average, snapshots = offbeat.load_average(league, seed=2), offbeat.load_snapshots(league)["default"]
    assert len(average.snapshots) == len(snapshots) > 2
    observation = {"observation": np.eye(8, dtype=np.float32)[7], "action_mask": np.ones(2, np.int8)}
    drawn = set()
    for _ in range(20):
        average.reset()
        drawn.add(average.drawn)
        expected = list(snapshots.values())[average.drawn](observation, random=np.random.default_rng(0))
        assert average(observation, random=np.random.default_rng(0)) == expected
    assert len(drawn) > 1
    with pytest.raises(ConfigError, match="can only be computed for games of OpenSpiel"):
        average.tabular()


def test_the_exact_average_of_a_league_in_kuhn_poker_is_the_policy_itself_for_one_snapshot(folder):
    pytest.importorskip("pyspiel")
    run = small_run(folder / "kuhn", "openspiel:kuhn_poker", **LEAGUE).path
    average = offbeat.load_average(run)
    alone = offbeat.AveragePolicy(average.snapshots[-1:]).tabular()
    assert average.tabular().action_probability_array.shape == (12, 2)
    random, loaded = np.random.default_rng(0), average.snapshots[-1]
    state = alone.states[0]
    tensor = np.array(state.information_state_tensor(), np.float32)
    observation = {"observation": np.tile(tensor, (4000, 1)), "action_mask": np.ones((4000, 2), np.int8)}
    bets = loaded(observation, random=random).mean()
    assert bets == pytest.approx(alone.action_probability_array[0, 1], abs=0.03)
    separate = small_run(folder / "kuhn-2", "openspiel:kuhn_poker", policies="separate", **LEAGUE).path
    with pytest.raises(ConfigError, match="one policy of all 2 players"):
        offbeat.load_average(separate, policy="player_0").tabular()
    with pytest.raises(ConfigError, match="choose one"):
        offbeat.load_average(separate)
