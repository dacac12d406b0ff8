"""Returns over wall-clock time on HalfCheetah-v5, a million env steps: offbeat beside Stable-Baselines3.

    python -m benchmarks.time_to_return --sb3-python .venv-sb3/bin/python

Both use Stable-Baselines3's best published setting (RL Baselines3 Zoo, hyperparams/ppo.yml, HalfCheetah-v3), which
offbeat's preset follows; the peer with its own single env, offbeat with four for the same batch. The return is the
mean of the last 100 training episodes. The peer has one thread of PyTorch or two: both are tried first, and the quicker
is measured. One run at a time, seed by seed, the sides by turns; imports are left out.
Runs whose results are there are not repeated, and the results are written after each run. `python -m
benchmarks.curves` draws them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from benchmarks.common import (
    children_cpu_s,
    describe,
    machine,
    markdown_table,
    publish,
    spread,
    spread_reached,
    thinned,
)
from benchmarks.options import new_parser, read_options
from benchmarks.speed import calibrate, quickest
from benchmarks.works import EARLIER, LAYOUTS, PPO, Settings, run_offbeat, run_peer

PEER = "sb3"
RETURN = 3000.0
POINTS = 200
WORK: Settings = {
    **PPO, "env": "HalfCheetah-v5", "steps": 1_000_000, "envs": 4, "unroll_length": 128, "minibatch_size": 64,
    "epochs": 20, "learning_rate": 2.0633e-5, "gamma": 0.98, "gae_lambda": 0.92, "clip": 0.1, "value_coef": 1.16192,
    "entropy_coef": 0.000401762, "max_grad_norm": 0.8, "hidden_sizes": [256, 256], "activation": "relu",
    "log_std_init": -2.0, "c_clip": 1.0, "normalize_observations": True, "normalize_returns": True,
    "return_scale": 1.0,
}  # fmt: skip
PEERS_OWN: Settings = {"envs": 1, "unroll_length": 512, "ortho_init": False}


@cache
def sps_by_threads(python: Path) -> dict[str, list[float]]:
    """Return the peer's speeds in trials with one thread and with two."""
    return calibrate({**WORK, **PEERS_OWN}, PEER, {PEER: python})["sps"]


def run(side: str, seed: int, python: Path, threads: int | None) -> Settings:
    """Train on one side; return the curve, and when the return was reached, None where it was not.

    Args:
        side: a layout of offbeat, or the peer.
        seed: of the run.
        python: interpreter of the peer's environment.
        threads: those of the peer; None: one or two, with which it is quicker.
    """
    tried = sps_by_threads(python) if side == PEER and threads is None else {}
    used = 1 if side != PEER else threads or quickest(tried)
    work = {**WORK, "seed": seed, "threads": used}
    before_s = children_cpu_s()
    report = run_peer({**work, **PEERS_OWN}, PEER, python) if side == PEER else run_offbeat(work, side)
    curve = report["curve"]
    reached = next((point for point in curve if (point[2] or 0.0) >= RETURN), None)
    return {
        "side": side,
        "seed": seed,
        "machine": machine(),
        "threads": used,
        "sps_by_threads": tried,
        "env_steps": reached and reached[0],
        "seconds": reached and round(reached[1], 1),
        "total_s": round(curve[-1][1], 1),
        "cpu_s": round(children_cpu_s() - before_s, 1),
        "curve": thinned([[steps, round(time, 2), score and round(score, 1)] for steps, time, score in curve], POINTS),
    }


def earlier_runs(out: Path) -> list[Settings]:
    """Return the runs that an earlier call has written.

    Raises:
        SystemExit: they are of another work.
    """
    path = out / "time-to-return.json"
    if not path.is_file():
        return []
    record = json.loads(path.read_text())
    if {**EARLIER, **record["work"]} != WORK:
        raise SystemExit(f"{path} has runs with other settings than today's: pass another --out FOLDER, or delete it")
    runs: list[Settings] = record["runs"]
    return runs


def page(runs: list[Settings]) -> list[str]:
    """Return the paragraphs of the page."""
    sides = dict.fromkeys(run["side"] for run in runs)
    rows = [_row(side, [run for run in runs if run["side"] == side]) for side in sides]
    reached = f"to a return of {RETURN:.0f}"
    header = ["side", "runs that reached it", f"seconds {reached}", f"env steps {reached}", "seconds", "CPU seconds"]
    method = (
        f"HalfCheetah-v5, {WORK['steps']:,} env steps, one run at a time. The return "
        "is the mean of the last 100 training episodes. Median (least to most) of the seeds. CPU seconds are those of "
        "all processes of a run, with imports."
    )
    machines = sorted({f"{describe(run['machine'])}." for run in runs})
    return ["# Returns over time", method, *machines, markdown_table(header, rows)]


def _row(side: str, runs: list[Settings]) -> list[str]:
    reached = sum(run["env_steps"] is not None for run in runs)
    to_return = [spread_reached([run[key] for run in runs], ",.0f") for key in ("seconds", "env_steps")]
    in_total = [spread([run[key] for run in runs], ",.0f") for key in ("total_s", "cpu_s")]
    return [side, f"{reached} of {len(runs)}", *to_return, *in_total]


def main() -> None:
    """Run all seeds on all sides and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--sides", nargs="+", choices=(*LAYOUTS, PEER), default=["serial", "processes", PEER])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--sb3-python", type=Path, default=Path(".venv-sb3/bin/python"))
    parser.add_argument("--sb3-threads", type=int, help="of PyTorch; default: the quicker of 1 and 2")
    options = read_options(parser, "sides", "seeds", "sb3_python")
    runs = earlier_runs(options.out)
    done = {(run["side"], run["seed"]) for run in runs}
    for seed in options.seeds:
        for side in options.sides if seed % 2 else reversed(options.sides):
            if (side, seed) in done:
                continue
            runs.append(run(side, seed, options.sb3_python, options.sb3_threads))
            print(f"{side}, seed {seed}: {runs[-1]['env_steps']} env steps, {runs[-1]['seconds']} s", flush=True)
            record = {"work": WORK, "peers_own": PEERS_OWN, "runs": runs}
            publish(options.out, "time-to-return", record, *page(runs))


if __name__ == "__main__":
    main()
