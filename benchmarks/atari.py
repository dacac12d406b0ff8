"""Pong and Breakout with the preset for Atari's classic protocol, in processes: curves, scores and times.

    python -m benchmarks.atari                 both: two hours or more on two cores
    python -m benchmarks.atari --games Pong    one of them

One run at a time, with two actors that share the preset's envs. A game whose run directory, runs/atari/GAME, is there
goes on from its last checkpoint, or is only evaluated if it has come to its end.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, describe, machine, markdown_table, offbeat, write_json
from benchmarks.options import new_parser, read_options
from benchmarks.scores.run import CURVE_KEYS, curve, train_to_end
from offbeat.metrics.sinks import read_metrics

GAMES = {"Pong": (3_000_000, 18.0), "Breakout": (1_000_000, None)}
"""Game -> env steps of the run, and the evaluation whose time is told."""
LAYOUT = "--preset ppo-atari --runtime processes --actors 2 --envs-per-actor 16 --max-lag 1 --seed 1"
EVALUATIONS = 20
EPISODES = 20
RUNS = Path("runs/atari")


def train(game: str) -> Path:
    """Train a game to the end of its steps and return the run directory."""
    steps, _ = GAMES[game]
    run = RUNS / game
    every = f"--eval-every {steps // EVALUATIONS} --progress none"
    train_to_end(run, f"train ppo {game}NoFrameskip-v4 --steps {steps} {LAYOUT} {every} --run-dir {run}")
    return run


def record(game: str, run: Path, out: Path) -> dict[str, Any]:
    """Evaluate the best and the last weights, and write what came of a run."""
    evaluations = {
        name: json.loads(offbeat("eval", str(run), "--checkpoint", name, "--episodes", str(EPISODES), "--json"))
        for name in ("best", "latest")
    }
    result = {
        "game": game,
        "layout": LAYOUT,
        "evaluations": evaluations,
        "machine": machine(),
        "config": tomllib.loads((run / "config.toml").read_text()),
        "curve_keys": CURVE_KEYS,
        "curve": curve(read_metrics(run)),
    }
    write_json(out / f"{game.lower()}.json", result)
    offbeat("plot", str(run), "--out", str(out / f"{game.lower()}.png"))
    return result


def write_table(results: list[dict[str, Any]], out: Path) -> str:
    """Write a line for each game, and return the table."""
    header = ["game", "env steps", "best weights", "last weights", "minutes", "reached in training"]
    method = (
        f"`offbeat train ppo GAMENoFrameskip-v4 {LAYOUT}`, the preset's other settings as they are. Returns are those "
        f"of whole games, unclipped: greedy, {EPISODES} games. The best weights are those with the best evaluation in "
        "training. Minutes are those of the run, evaluations included."
    )
    rows = [_row(result) for result in results]
    text = "\n\n".join(["# Atari", method, f"{describe(results[0]['machine'])}.", markdown_table(header, rows)])
    (out / "atari.md").write_text(text)
    return text


def _row(result: dict[str, Any]) -> list[str]:
    scores = [result["evaluations"][name] for name in ("best", "latest")]
    last = result["curve"][-1]
    return [
        result["game"],
        f"{last[0]:,} of {result['config']['run']['steps']:,}",
        *(f"{score['return_mean']:.1f} ({score['return_min']:.0f} to {score['return_max']:.0f})" for score in scores),
        f"{last[1] / 60:.0f}",
        _reached(result),
    ]


def _reached(result: dict[str, Any]) -> str:
    wanted = GAMES[result["game"]][1]
    if wanted is None:
        return "-"
    there = [point for point in result["curve"] if point[-1] is not None and point[-1] >= wanted]
    return f"{wanted:.0f} after {there[0][0]:,} env steps, {there[0][1] / 60:.0f} minutes" if there else "no"


def main() -> None:
    """Train what is not trained yet, then write results and table of all games that are there."""
    parser = new_parser(__doc__)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    options = read_options(parser, "games", folder=RESULTS / "atari")
    options.out.mkdir(parents=True, exist_ok=True)
    for game in options.games:
        record(game, train(game), options.out)
    paths = [options.out / f"{game.lower()}.json" for game in GAMES]
    print(write_table([json.loads(path.read_text()) for path in paths if path.exists()], options.out))


if __name__ == "__main__":
    main()
