"""Benchmarks that train some works and score them, seed by seed; results of other works and seeds are kept."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from benchmarks.common import write_json
from benchmarks.options import new_parser, read_options
from offbeat.api.train import train

Scores = dict[str, Any]
CPU_S = "train_cpu_s.json"
"""File that a run has when it has been trained to its end: the CPU seconds of the training."""


def train_once(run: Path, env: str, seed: int, settings: dict[str, Any]) -> None:
    """Train a run with PPO, if it is not there yet; one that was stopped is trained again from its start."""
    started = time.process_time()
    if not (run / CPU_S).exists():
        shutil.rmtree(run, ignore_errors=True)
        train("ppo", env, run_dir=run, seed=seed, **settings)
        (run / CPU_S).write_text(json.dumps(round(time.process_time() - started, 1)))


def train_cpu_s(run: Path) -> float:
    """Return the CPU seconds of the training of a run."""
    return float(json.loads((run / CPU_S).read_text()))


def with_seed(file: Path, name: str, seed: int, scores: Scores, about: dict[str, Any]) -> dict[str, Any]:
    """Add the scores of a seed to a file of results, with what is the same for all seeds; return all results."""
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    results.setdefault(name, {**about, "seeds": {}}).update(about)
    results[name]["seeds"][str(seed)] = scores
    write_json(file, results)
    return results


def measure(
    doc: str | None,
    noun: str,
    names: Collection[str],
    measured: Callable[[str, int], Scores],
    written: Callable[[Path, str, int, Scores], None],
) -> int:
    """Measure the works and seeds that the command line asks for.

    Args:
        doc: docstring of the module.
        noun: what a name is, for messages.
        names: of all works.
        measured: function of a name and a seed.
        written: adds the scores of a seed to the results in a folder.
    """
    parser = new_parser(doc)
    parser.add_argument("names", nargs="*", metavar=noun.upper(), help=f"of {', '.join(names)}; without any: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = read_options(parser, "names", "seeds")
    if unknown := set(options.names) - set(names):
        parser.error(f"no {noun} {', '.join(sorted(unknown))}: choose from {', '.join(names)}")
    for name in options.names or names:
        for seed in options.seeds:
            scores = measured(name, seed)
            print(name, seed, json.dumps(scores), flush=True)
            written(options.out, name, seed, scores)
    return 0
