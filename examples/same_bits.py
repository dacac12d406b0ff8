"""Train in each runtime, and once with a stop and a resume, and compare: the weights are the same, bit for bit.

python examples/same_bits.py --steps 100000 --max-lag 1
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

import offbeat


def digest(run: offbeat.Run) -> str:
    """Return the SHA-256 of a run's last weights."""
    return hashlib.sha256((run.path / "checkpoints/latest/weights.safetensors").read_bytes()).hexdigest()


def main() -> None:
    """Train in each runtime and with a stop, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=100_000, help="env steps: several batches, to stop in between")
    parser.add_argument("--max-lag", type=int, default=1)
    parser.add_argument("--runtimes", nargs="+", default=["serial", "threads", "processes"])
    given = parser.parse_args()
    settings = {"steps": given.steps, "max_lag": given.max_lag, "lag": "exact", "actors": 2, "eval_every": 0}

    with tempfile.TemporaryDirectory() as folder:
        digests = set()
        for runtime in given.runtimes:
            run = offbeat.train("ppo", given.env, runtime=runtime, run_dir=Path(folder) / runtime, **settings)
            digests.add(digest(run))
            print(f"{digest(run)}  {runtime}, policy lag up to {run.metrics['policy_lag_max']:.0f}")

        path, half = Path(folder) / "stopped", given.steps // 2
        stopped = offbeat.train("ppo", given.env, runtime="threads", run_dir=path, stop_at=half, **settings)
        if stopped.state != "interrupted":
            raise SystemExit("the run has ended before its stop: pass more --steps")
        resumed = offbeat.resume(stopped, runtime="serial")
        digests.add(digest(resumed))
        print(f"{digest(resumed)}  threads, stopped at {stopped.metrics['env_steps']} env steps, resumed in serial")
    if len(digests) > 1:
        raise SystemExit("the weights differ: please report it")


if __name__ == "__main__":
    main()
