"""Seconds from the start of a process to a score, imports and evaluations included: offbeat beside its peers.

    python -m benchmarks.seconds_to_score                                     all that is missing: hours on two cores
    python -m benchmarks.seconds_to_score cartpole --sides offbeat --seeds 9 10
    python -m benchmarks.seconds_to_score --only-page                         the page from the results that are there

A score is reached at the first evaluation of 20 greedy episodes whose mean return is as large; all sides evaluate
equally often, and offbeat skips no evaluation. offbeat trains with a preset that was chosen for its seconds, a peer
with its best published settings. One run at a time, seed by seed, the sides by turns; a run is appended to
benchmarks/results/seconds-to-score.jsonl at its end, and is not repeated. The environments of the peers are those of
`speed.py`, with `gymnasium[box2d]`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.common import OFFBEAT, RESULTS, children_cpu_s, machine
from benchmarks.lines import follow
from benchmarks.missing_runs import Job, make_missing, require_python
from benchmarks.options import new_parser
from benchmarks.records import Record, read_parts, read_records
from benchmarks.seconds_to_score.page import write_page
from benchmarks.seconds_to_score.works import OURS, PEERS, SAMPLE_FACTORY, WORKS, Work

PATH = RESULTS / "seconds-to-score.jsonl"
EVAL_EPISODES, EVAL_SEED = 20, 10_000
"""Episodes of an evaluation, on all sides; the seed of the first one of a peer, less that of the run."""
SCRIPTS = Path(__file__).parents[1] / "peers"


def command(work: Work, side: str, seed: int, python: Path, folder: Path) -> tuple[list[str], Path]:
    """Return the command that trains on a side, and the file to which it writes its evaluations."""
    if side in PEERS:
        given = {
            **work.peer_settings(side, seed), "peer": side, "threads": 1, "out": str(folder / "evaluations.jsonl"),
            "eval_episodes": EVAL_EPISODES, "eval_seed": seed + EVAL_SEED,
        }  # fmt: skip
        script = SCRIPTS / ("sample_factory_to_score.py" if side == SAMPLE_FACTORY else "sb3_to_score.py")
        return [str(python), str(script), json.dumps(given)], folder / "evaluations.jsonl"
    run = folder / "run"
    train = [
        "train",
        "ppo",
        work.env,
        "--preset",
        work.preset,
        *work.arguments,
        "--seed",
        str(seed),
        "--progress",
        "none",
    ]
    evaluations = [f"eval_episodes={EVAL_EPISODES}", "eval_time_share=1", "checkpoint_every=0"]
    return [
        OFFBEAT, *train, "--eval-every", str(work.eval_every),
        "--run-dir", str(run), "--set", *evaluations,
    ], run / "metrics.jsonl"  # fmt: skip


def make(work: Work, side: str, seed: int, python: Path) -> Record:
    """Train until the last score is reached, and return when each of them was, and what the run cost."""
    before_s = children_cpu_s()
    with tempfile.TemporaryDirectory() as folder:
        arguments, written = command(work, side, seed, python, Path(folder))
        messages = Path(folder) / "messages.txt"
        started_s = time.perf_counter()
        with (
            messages.open("w") as output,
            subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=output) as child,
        ):
            reached = reached_scores(work.scores, follow(written, child), started_s)
            seconds = time.perf_counter() - started_s
            is_running = child.poll() is None
            child.terminate()
        if child.returncode and not is_running:
            raise SystemExit(f"{' '.join(arguments)}\nended with {child.returncode}:\n{messages.read_text()}")
    return {
        "reached": reached,
        "seconds": round(seconds, 2),
        "cpu_s": round(children_cpu_s() - before_s, 2),
        "machine": machine(),
    }


def reached_scores(
    scores: tuple[float, ...], lines: Iterable[Record], started_s: float
) -> dict[str, tuple[int, float] | None]:
    """Return [env steps, seconds] at which each score was reached, None where it was not."""
    reached: dict[str, tuple[int, float] | None] = {f"{score:g}": None for score in scores}
    for line in lines:
        mean = line["eval_return_mean"]
        for score in scores:
            if mean is not None and mean >= score and reached[f"{score:g}"] is None:
                reached[f"{score:g}"] = (line["eval_env_steps"], round(time.perf_counter() - started_s, 2))
        if all(reached.values()):
            break
    return reached


def jobs(works: list[Work], sides: list[str], seeds: list[int] | None, pythons: dict[str, Path]) -> Iterator[Job]:
    """Yield the runs: one seed of each work, then the next one, the sides by turns."""
    for of_works in zip(*(seeds or work.seeds for work in works), strict=True):
        for work, seed in zip(works, of_works, strict=True):
            possible = [side for side in sides if side in work.sides]
            for side in possible if seed % 2 else reversed(possible):
                what = {"work": work.name, "side": side, "seed": seed, "settings": work.digest(side)}
                yield what, partial(make, work, side, seed, pythons.get(side, Path()))


def said(record: Record) -> str:
    """Return a run in one line."""
    return f"{record['work']}, {record['side']}, seed {record['seed']}: {record['reached']}"


def main() -> None:
    """Make what is missing, and write the page."""
    parser = new_parser(__doc__)
    parser.add_argument("--sides", nargs="+", choices=(OURS, *PEERS), default=[OURS, *PEERS])
    for peer in PEERS:
        usual = Path(f".venv-{peer}/bin/python")
        parser.add_argument(f"--{peer}-python", dest=peer, metavar="PYTHON", type=Path, default=usual)
    options, works = read_parts(parser, WORKS, None)
    for work in works:
        if unfair := set(options.seeds or ()) & set(work.chosen_on):
            names = ", ".join(map(str, sorted(unfair)))
            parser.error(f"{work.preset} was chosen with --seeds {names}: pass others, or name other works")
    pythons = {peer: vars(options)[peer] for peer in PEERS}
    for peer in PEERS:
        if peer in options.sides and any(peer in work.sides for work in works):
            require_python(parser, pythons[peer])
    make_missing(PATH, jobs(works, options.sides, options.seeds, pythons), said)
    write_page(read_records(PATH))


if __name__ == "__main__":
    main()
