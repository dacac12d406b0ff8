"""PPO with a league in a game whose two sides see and do different things, scored exactly.

    python -m benchmarks.smuggling                    # all ways of training and seeds
    python -m benchmarks.smuggling turns --seeds 1    # some of them

`offbeat.envs.testing.smuggling` has the rules. Each side has a policy of its own. The value of the game and the best
response to any policy are computed exactly (tests/reference/smuggling.py), so each side has an exact *exploitability*:
by how much its worst-case return is below the value of the game. The sum of both is NashConv.

Two questions are answered:

* `WAYS`: does learning by turns help? All differ in the table `league` only.
* `FROZEN`: does a side find the best response to another one that does not learn (`train = false`)? The opponent is the
  newest one of a run that has hardly learned anything.

A run that is there is not trained again: delete its folder under runs/smuggling to do so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.reference.smuggling import against_patrols, against_smugglers, expected_return, strategy_of, value
from tests.support.league_players import latest_player, snapshot_players

from benchmarks.common import describe, machine, markdown_table
from benchmarks.seeds import Scores, measure, train_cpu_s, train_once, with_seed
from offbeat.core.types import F64
from offbeat.envs.testing.smuggling import PATROL, SIDES, SMUGGLER

ENV, RUNS = "offbeat.envs.testing.smuggling:Smuggling", Path("runs/smuggling")
Settings = dict[str, Any]

ALL: Settings = {
    "runtime": "serial", "actors": 1, "max_lag": 0, "learner_threads": 1, "eval_every": 0, "checkpoint_every": 0,
    "steps": 400_000, "envs_per_actor": 64, "unroll_length": 8, "minibatch_size": 512, "epochs": 4,
    "learning_rate": 1e-2, "adam_eps": 0.1, "gamma": 1.0, "gae_lambda": 1.0, "entropy_coef": 0.1,
    "normalize_advantages": False, "activation": "relu", "hidden_sizes": (64,), "learning_rate_schedule": "linear",
    "normalize_observations": False, "normalize_returns": False,
}  # fmt: skip
LEAGUE: Settings = {"window": 300, "snapshot_every": 10}
WAYS: dict[str, Settings] = {
    "turns": {"team_change_every": 2, "opponents": "latest"},
    "at-once": {"opponents": "latest"},
}
FROZEN = {"smuggler-against-frozen": PATROL, "patrol-against-frozen": SMUGGLER}
"""Way of training -> the side that does not learn."""
OPPONENT = "untrained"
"""The run of the side that does not learn: it ends after its first learning step, so all actions are about equally
likely, and the policy can be beaten."""
UNTRAINED: Settings = {"stop_at": 1, "learning_rate": 1e-9}
AGAINST_FROZEN: Settings = {"steps": 60_000, "entropy_coef": 0.01}


# --- scores -------------------------------------------------------------------------------------------------


def exploitability(strategies: Mapping[str, F64], weights: Sequence[float]) -> Scores:
    """Return NashConv of two mixtures, side -> [K, ...], and the exploitability of each side."""
    smugglers, patrols = strategies[SMUGGLER], strategies[PATROL]
    worst, best = against_smugglers(smugglers, weights), against_patrols(patrols, weights)
    return {"nash_conv": best - worst, SMUGGLER: value() - worst, PATROL: best - value()}


def scores_of(run: Path) -> Scores:
    """Score the newest players, the average of their snapshots, and the snapshots of the second half one by one.

    In the average, snapshot number n has a weight in proportion to n: the first ones have learned nothing yet.
    """
    newest = {side: strategy_of(latest_player(run, side), side)[None] for side in SIDES}
    old = {side: np.array([strategy_of(each, side) for _, each in snapshot_players(run, side)]) for side in SIDES}
    count = min(map(len, old.values()))  # by turns, one side may have a snapshot more
    single = [exploitability({side: old[side][n : n + 1] for side in SIDES}, [1])["nash_conv"] for n in range(count)]
    return {
        "newest": exploitability(newest, [1]),
        "average": exploitability({side: old[side][:count] for side in SIDES}, range(count)),
        "second_half": {"mean": float(np.mean(single[count // 2 :])), "worst": max(single[count // 2 :])},
        "nash_conv_of_snapshots": [round(each, 3) for each in single],
        "snapshots": count,
    }


def scores_against_frozen(run: Path, opponent: Path, frozen: str) -> Scores:
    """Score a side against one that does not learn: expected returns before and after, and of the best response.

    Raises:
        AssertionError: the policy that does not learn has changed.
    """
    before, after = ({side: strategy_of(latest_player(each, side), side) for side in SIDES} for each in (opponent, run))
    assert np.array_equal(before[frozen], after[frozen])
    sign = 1 if frozen == PATROL else -1
    if frozen == PATROL:
        best = against_patrols(after[PATROL][None], [1.0])
    else:
        best = -against_smugglers(after[SMUGGLER][None], [1.0])
    first, reached = (sign * expected_return(each[SMUGGLER], each[PATROL]) for each in (before, after))
    return {"before": first, "reached": reached, "best": best}


# --- runs and results ---------------------------------------------------------------------------------------


def run_of(way: str, seed: int) -> Path:
    """Return the folder of a run."""
    return RUNS / way / f"seed-{seed}"


def settings_of(way: str, seed: int) -> Settings:
    """Return all settings of a run but its seed."""
    policies: dict[str, Settings] = {side: {"agents": side} for side in SIDES}
    if way in WAYS:
        return {**ALL, "policies": policies, "league": {**LEAGUE, **WAYS[way]}}
    if way == OPPONENT:
        return {**ALL, **UNTRAINED, "policies": policies}
    policies[FROZEN[way]] |= {"train": False, "init_from": str(run_of(OPPONENT, seed))}
    return {**ALL, **AGAINST_FROZEN, "policies": policies, "league": {**LEAGUE, "opponents": "latest"}}


def trained(way: str, seed: int) -> Path:
    """Train a run if it is not there yet, and before it that of its opponent; return its folder."""
    if way in FROZEN:
        trained(OPPONENT, seed)
    run = run_of(way, seed)
    train_once(run, ENV, seed, settings_of(way, seed))
    return run


def measured(way: str, seed: int) -> Scores:
    """Train a run, if it is not there yet, and score it."""
    run = trained(way, seed)
    scores = scores_against_frozen(run, run_of(OPPONENT, seed), FROZEN[way]) if way in FROZEN else scores_of(run)
    return {"train_cpu_s": train_cpu_s(run), "machine": machine(), **scores}


def written(out: Path, way: str, seed: int, scores: Scores) -> None:
    """Add the scores of a run to the results, and write the tables of all."""
    results = with_seed(out / "smuggling.json", way, seed, scores, {"settings": settings_of(way, seed)})
    rows: dict[bool, list[list[str]]] = {True: [], False: []}
    for name in (*WAYS, *FROZEN):
        for number, found in sorted(results.get(name, {"seeds": {}})["seeds"].items()):
            rows[name in WAYS].append([name, number, *_cells(found)])
    method = "PPO in a game of two sides with different observations and actions, in the serial runtime on one thread"
    ways = ["way", "seed", "newest policies", "average", "second half: mean", "worst", "CPU s"]
    parts = [
        "# Smuggling",
        f"{method}: `python -m benchmarks.smuggling`. The value of the game is {value():.3f} for the smuggler.",
        f"{describe(scores['machine'])}.",
        "NashConv, and in brackets the exploitability of the smuggler and of the patrol:",
        markdown_table(ways, rows[True]),
        "Expected return of the side that learns against one that does not, and that of its best response:",
        markdown_table(["way", "seed", "before", "reached", "best response", "CPU s"], rows[False]),
    ]
    (out / "smuggling.md").write_text("\n\n".join(parts))


def _cells(scores: Scores) -> list[str]:
    cpu_s = f"{scores['train_cpu_s']:.0f}"
    if "reached" in scores:
        return [*(f"{scores[name]:.3f}" for name in ("before", "reached", "best")), cpu_s]
    pairs = (scores["newest"], scores["average"])
    parts = [f"{each['nash_conv']:.3f} ({each[SMUGGLER]:.3f}, {each[PATROL]:.3f})" for each in pairs]
    return [*parts, *(f"{scores['second_half'][name]:.3f}" for name in ("mean", "worst")), cpu_s]


if __name__ == "__main__":
    sys.exit(measure(__doc__, "way", (*WAYS, *FROZEN), measured, written))
