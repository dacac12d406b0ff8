"""PPO with a league, in games whose optimal play is known or that can be played against perfect players.

    python -m benchmarks.leagues                             # all works and seeds
    python -m benchmarks.leagues kuhn-poker --seeds 1 2      # some of them

Each seed of a work is trained in the serial runtime, on one thread. Then its players are scored: see `WORKS`. A run
that is there is not trained again: delete its folder under runs/leagues to do so. Results of other works and seeds are
kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tests.support.league_players import latest_player, probabilities_of, snapshot_players

from benchmarks.common import describe, installed, machine, markdown_table
from benchmarks.league_games import greedy, losing_lines, minimax, record, round_robin, uniform
from benchmarks.seeds import Scores, measure, train_cpu_s, train_once, with_seed
from offbeat.core.seeding import stream
from offbeat.league.average import ActionProbabilities, average_policy
from offbeat.league.ratings import fit_ratings

RUNS = Path("runs/leagues")
Settings = dict[str, Any]

ALL: Settings = {
    "runtime": "serial", "actors": 1, "max_lag": 0, "learner_threads": 1, "eval_every": 0, "checkpoint_every": 0,
    "gamma": 1.0, "activation": "relu", "hidden_sizes": (128, 128), "learning_rate_schedule": "linear",
    "normalize_observations": False, "normalize_returns": False,
}  # fmt: skip
"""Settings of all runs."""
SIDES = {"first": {"agents": "player_0"}, "second": {"agents": "player_1"}}


# --- scores -------------------------------------------------------------------------------------------------


def loaded(game: str) -> Any:
    """Return a game of OpenSpiel."""
    import pyspiel

    return pyspiel.load_game(game)


def distance_to_equilibrium(latest: ActionProbabilities, old: list[ActionProbabilities]) -> Scores:
    """Return NashConv of the newest players and of the average of their snapshots in Kuhn poker, and their values.

    NashConv is 0 in an equilibrium, and 0.917 for uniform players; the value of the game is -1/18. In the average,
    snapshot number n has a weight in proportion to n: the first ones have learned nothing yet.
    """
    from open_spiel.python.algorithms.expected_game_score import policy_value
    from open_spiel.python.algorithms.exploitability import nash_conv

    game = loaded("kuhn_poker")
    scores: Scores = {"snapshots": len(old)}
    weights = list(range(len(old)))
    for name, policy in (("latest", average_policy(game, [latest])), ("average", average_policy(game, old, weights))):
        scores[f"{name}_nash_conv"] = float(nash_conv(game, policy))
        scores[f"{name}_value"] = float(policy_value(game.new_initial_state(), [policy, policy])[0])
    return scores


def kuhn_poker(run: Path, seed: int) -> Scores:  # noqa: ARG001 - the scores are exact
    """Score one policy that plays as both players."""
    old = [probabilities_of(player) for _, player in snapshot_players(run)]
    return distance_to_equilibrium(probabilities_of(latest_player(run)), old)


def kuhn_poker_by_turns(run: Path, seed: int) -> Scores:  # noqa: ARG001 - the scores are exact
    """Score two policies, one for each player."""
    latest = probabilities_of({seat: latest_player(run, name) for seat, name in enumerate(SIDES)})
    sides = [[player for _, player in snapshot_players(run, name)] for name in SIDES]
    old = [probabilities_of(dict(enumerate(pair))) for pair in zip(*sides, strict=False)]
    return distance_to_equilibrium(latest, old)


def tic_tac_toe(run: Path, seed: int) -> Scores:
    """Play 1,000 games against a random and a perfect player, and all games that are possible, with greedy moves."""
    game, own = loaded("tic_tac_toe"), greedy(latest_player(run))
    lines = {seat: losing_lines(game, own, number) for number, seat in enumerate(("first", "second"))}
    return {
        "random": record(game, own, uniform(stream(seed, "random player")), 1000),
        "minimax": record(game, own, minimax(stream(seed, "perfect player")), 1000),
        "all_games": {seat: {"games": games, "lost": lost} for seat, (games, lost) in lines.items()},
    }


def connect_four(run: Path, seed: int) -> Scores:
    """Play 1,000 games against a random player, and fit ratings to games of eight snapshots."""
    game, snapshots = loaded("connect_four"), snapshot_players(run)
    chosen = [snapshots[number] for number in np.linspace(0, len(snapshots) - 1, 8).round().astype(int)]
    payoffs = round_robin(game, [(str(env_steps), player) for env_steps, player in chosen], games=100, seed=seed)
    ratings = fit_ratings(payoffs, anchor=0)
    return {
        "random": record(game, greedy(latest_player(run)), uniform(stream(seed, "random player")), 1000),
        "env_steps": [env_steps for env_steps, _ in chosen],
        "rating": ratings.rating.round(1).tolist(),
        "error": ratings.error.round(1).tolist(),
        "win_rates": payoffs.win_rates.round(3).tolist(),
    }


# --- works --------------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """A game, how it is learned, and what is measured."""

    env: str
    settings: Settings
    score: Callable[[Path, int], Scores]
    """Function of the run and its seed."""
    cells: Callable[[Scores], tuple[str, str]]
    """What the table says: what is wanted, and what a seed has reached."""


def _nash_conv_cells(scores: Scores) -> tuple[str, str]:
    wanted = "NashConv of the newest policy at most 0.1, of the average at most 0.05; value -0.056"
    latest, average = scores["latest_nash_conv"], scores["average_nash_conv"]
    return wanted, f"{latest:.3f}, {average:.3f}; value of the average {scores['average_value']:.3f}"


def _lost(scores: dict[str, dict[str, int]]) -> int:
    return sum(seat["lost"] for seat in scores.values())


def _tic_tac_toe_cells(scores: Scores) -> tuple[str, str]:
    wanted = "no loss in 1,000 games against a random and 1,000 against a perfect player"
    games = sum(seat["games"] for seat in scores["all_games"].values())
    against = f"{_lost(scores['random'])} and {_lost(scores['minimax'])} lost"
    return wanted, f"{against}; {_lost(scores['all_games'])} of all {games} possible games"


def _connect_four_cells(scores: Scores) -> tuple[str, str]:
    wanted = "0.9 of games won against a random player; ratings that never fall by more than their errors"
    won = sum(seat["won"] for seat in scores["random"].values()) / 1000
    rated = zip(scores["rating"], scores["error"], strict=True)
    return wanted, f"{won:.3f}; ratings {', '.join(f'{rating:.0f} ± {error:.0f}' for rating, error in rated)}"


KUHN: Settings = {
    **ALL, "steps": 800_000, "envs_per_actor": 64, "unroll_length": 16, "minibatch_size": 1024, "epochs": 4,
    "learning_rate": 1e-2, "adam_eps": 0.1, "gae_lambda": 1.0, "entropy_coef": 0.1, "normalize_advantages": False,
    "league": {"window": 300, "snapshot_every": 5, "latest_ratio": 0.9},
}  # fmt: skip
"""With this epsilon Adam is close to gradient descent with momentum: its steps become smaller near the equilibrium."""
WORKS: dict[str, Work] = {
    "kuhn-poker": Work("openspiel:kuhn_poker", KUHN, kuhn_poker, _nash_conv_cells),
    "kuhn-poker-by-turns": Work(
        "openspiel:kuhn_poker",
        KUHN
        | {"entropy_coef": 0.1, "policies": SIDES}
        | {"league": {"window": 300, "snapshot_every": 10, "team_change_every": 2, "latest_ratio": 0.9}},
        kuhn_poker_by_turns,
        _nash_conv_cells,
    ),
    "tic-tac-toe": Work(
        "openspiel:tic_tac_toe",
        ALL | {
            "steps": 800_000, "envs_per_actor": 64, "unroll_length": 16, "minibatch_size": 512, "epochs": 3,
            "learning_rate": 1e-3, "gae_lambda": 0.95, "entropy_coef": 0.1, "normalize_advantages": False,
            "league": {"window": 100, "snapshot_every": 10},
        },
        tic_tac_toe,
        _tic_tac_toe_cells,
    ),
    "connect-four": Work(
        "openspiel:connect_four",
        ALL | {
            "steps": 600_000, "envs_per_actor": 64, "unroll_length": 32, "minibatch_size": 512, "epochs": 4,
            "learning_rate": 1e-3, "gae_lambda": 0.95, "entropy_coef": 0.05, "normalize_advantages": False,
            "league": {"window": 50, "snapshot_every": 10},
        },
        connect_four,
        _connect_four_cells,
    ),
}  # fmt: skip


# --- runs and results ---------------------------------------------------------------------------------------


def measured(name: str, seed: int) -> Scores:
    """Train a seed of a work, if it is not there yet, and score it."""
    work, run = WORKS[name], RUNS / name / f"seed-{seed}"
    train_once(run, work.env, seed, work.settings)
    return {"train_cpu_s": train_cpu_s(run), **work.score(run, seed)}


def written(out: Path, name: str, seed: int, scores: Scores) -> None:
    """Add the scores of a seed to the results, and write the table of all."""
    about = machine() | {"open_spiel": installed("open_spiel")}
    same = {"env": WORKS[name].env, "settings": WORKS[name].settings}
    results = with_seed(out / "leagues.json", name, seed, {"machine": about, **scores}, same)
    rows = [
        [work, seed_, *WORKS[work].cells(found), f"{found['train_cpu_s']:.0f}"]
        for work in WORKS if work in results
        for seed_, found in sorted(results[work]["seeds"].items())
    ]  # fmt: skip
    table = markdown_table(["work", "seed", "wanted", "reached", "CPU s of training"], rows)
    method = "PPO with a league, in the serial runtime on one thread: `python -m benchmarks.leagues`."
    (out / "leagues.md").write_text("\n\n".join(["# Leagues", method, f"{describe(about)}.", table]))


if __name__ == "__main__":
    sys.exit(measure(__doc__, "work", WORKS, measured, written))
