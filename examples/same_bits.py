"""Stop a run in the middle, resume it, and compare: the weights file is that of a run that never stopped.

python examples/same_bits.py --steps 20000 --max-lag 3
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
    """Train once in one go and once with a stop, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=20_000, help="env steps: several batches, to stop in between")
    parser.add_argument("--max-lag", type=int, default=3)
    given = parser.parse_args()
    settings = {"steps": given.steps, "max_lag": given.max_lag, "lag": "exact", "eval_every": 0}

    with tempfile.TemporaryDirectory() as folder:
        whole = offbeat.train("ppo", given.env, run_dir=Path(folder) / "whole", **settings)
        half = offbeat.train("ppo", given.env, run_dir=Path(folder) / "half", stop_at=given.steps // 2, **settings)
        print(f"stopped at {half.metrics['env_steps']} env steps")
        resumed = offbeat.resume(half.path)
        print(f"{digest(whole)}  {whole.metrics['env_steps']} env steps in one go")
        print(f"{digest(resumed)}  {resumed.metrics['env_steps']} env steps with a stop")
        if digest(whole) != digest(resumed):
            raise SystemExit("the weights differ: please report it")


if __name__ == "__main__":
    main()
