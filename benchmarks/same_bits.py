"""Whether two versions of the code train the same weights, bit for bit: short runs of all kinds, and their hashes.

    python -m benchmarks.same_bits REVISION_A [REVISION_B]

Without a second revision, the working tree is the second. Each trains every run of `RUNS` in one process of its own,
on one thread. A hash is the SHA-256 of the arrays in a run's last checkpoint, with their names, in order of the names.
Hashes depend on the processor and on the packages; that two versions have the same ones does not. A version that does
not know a setting of a run yet has no hash of it. 1 if one differs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import finish, markdown_table
from benchmarks.options import new_parser
from benchmarks.versions import ROOT, exported

UNROLLS: dict[str, Any] = {
    "steps": 1024, "actors": 2, "envs_per_actor": 4, "unroll_length": 8, "hidden_sizes": [16], "eval_every": 0,
    "checkpoint_every": 0, "lag": "exact", "max_lag": 1,
}  # fmt: skip
EPOCHS: dict[str, Any] = {
    "epochs": 2, "minibatch_size": 32, "learning_rate_schedule": "linear", "normalize_observations": False,
    "normalize_returns": False,
}  # fmt: skip
REPLAY: dict[str, Any] = {
    "steps": 240, "actors": 2, "envs_per_actor": 2, "chunk_length": 3, "warmup": 48, "batch_size": 16, "capacity": 160,
    "hidden_sizes": [16, 16], "utd_ratio": "1/4", "eval_every": 0, "checkpoint_every": 0, "lag": "exact",
    "max_ahead": 1,
}  # fmt: skip
NORMALIZED = {"normalize_observations": True, "normalize_returns": True}
RECURRENT = {"core": "gru", "core_size": 8}
ONE_WORKER: dict[str, Any] = {"runtime": "hogwild", "workers": 1}
"""Beside settings of unrolls, or of a replay, without those of actors."""
ENVS = {"imports": ["tests.sample_envs.run_envs"]}


def _without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


ALONE = _without(UNROLLS, "actors", "max_lag", "lag") | ONE_WORKER
REPLAY_ALONE = _without(REPLAY, "actors", "max_ahead", "lag") | ONE_WORKER
PPO = UNROLLS | EPOCHS
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo, serial": ("ppo", "CartPole-v1", PPO | NORMALIZED | {"runtime": "serial"}),
    "ppo, threads": ("ppo", "CartPole-v1", PPO | NORMALIZED | {"runtime": "threads"}),
    "ppo, processes": ("ppo", "CartPole-v1", PPO | NORMALIZED | {"runtime": "processes"}),
    "ppo, processes, resumed": ("ppo", "CartPole-v1", PPO | NORMALIZED | {"runtime": "processes", "stop_at": 512}),
    "ppo, box, on policy": ("ppo", "Pendulum-v1", PPO | NORMALIZED | {"max_lag": 0, "runtime": "serial", "actors": 1}),
    "ppo, lstm, processes": (
        "ppo", "offbeat/Recall-v0", PPO | RECURRENT | {"core": "lstm", "runtime": "processes", "env_groups": 2},
    ),
    "ppo, mixed actions, threads": ("ppo", "runs/Locks-v0", PPO | ENVS | {"runtime": "threads"}),
    "ppo, masks, processes": ("ppo", "runs/Doors-v0", PPO | ENVS | {"runtime": "processes"}),
    "ppo, hogwild": ("ppo", "CartPole-v1", ALONE | EPOCHS),
    "a2c, images, serial": ("a2c", "offbeat/Pixels-v0", UNROLLS | {"runtime": "serial"}),
    "a2c, hogwild, resumed": ("a2c", "CartPole-v1", ALONE | {"stop_at": 512}),
    "impala, serial": ("impala", "CartPole-v1", UNROLLS | {"runtime": "serial"}),
    "impala, gru, processes": ("impala", "offbeat/Recall-v0", UNROLLS | RECURRENT | {"runtime": "processes"}),
    "impala, stacks, threads, resumed": (
        "impala", "offbeat/PixelsMotion-v0", UNROLLS | {"frame_stack": 3, "runtime": "threads", "stop_at": 512},
    ),
    "sac, box, serial": ("sac", "Pendulum-v1", REPLAY | {"runtime": "serial"}),
    "sac, box, processes, resumed": ("sac", "Pendulum-v1", REPLAY | {"runtime": "processes", "stop_at": 120}),
    "sac, choices, threads": ("sac", "CartPole-v1", REPLAY | {"runtime": "threads", "n_step": 3}),
    "sac, masks, serial": ("sac", "runs/Doors-v0", REPLAY | ENVS | {"runtime": "serial"}),
    "sac, gru, serial": ("sac", "offbeat/Recall-v0", REPLAY | RECURRENT | {"runtime": "serial", "batch_size": 15}),
    "sac, hogwild": ("sac", "Pendulum-v1", REPLAY_ALONE),
    "td3, serial": ("td3", "Pendulum-v1", REPLAY | {"runtime": "serial", "learner_threads": 1}),
    "td3, threads": ("td3", "Pendulum-v1", REPLAY | {"runtime": "threads", "learner_threads": 1}),
    "td3, two learner threads, serial": (
        "td3", "Pendulum-v1", REPLAY | {"runtime": "serial", "learner_threads": 2},
    ),
    "dqn, vector, processes": ("dqn", "CartPole-v1", REPLAY | {"runtime": "processes", "prioritized": True}),
    "dqn, images and vectors, serial": ("dqn", "offbeat/PixelsGoal-v0", REPLAY | {"runtime": "serial"}),
    "dqn, stacks, threads, resumed": (
        "dqn", "offbeat/PixelsMotion-v0", REPLAY | {"frame_stack": 3, "runtime": "threads", "stop_at": 120},
    ),
    "dqn, masks, serial": ("dqn", "runs/Doors-v0", REPLAY | ENVS | {"runtime": "serial", "n_step": 3}),
}  # fmt: skip
"""Name -> algorithm, env, settings. One that has `stop_at` is stopped there, and resumed."""
PROBE = """
import hashlib, json, os, sys, tempfile
from pathlib import Path
from safetensors.numpy import load_file
from offbeat import OffbeatError, resume, train


def digest(run):
    arrays, hashed = load_file(run / "checkpoints" / "latest" / "weights.safetensors"), hashlib.sha256()
    for name in sorted(arrays):
        hashed.update(name.encode() + arrays[name].tobytes())
    return hashed.hexdigest()


if __name__ == "__main__":
    hashes = {}
    for name, (algorithm, env, settings) in json.loads(sys.argv[1]).items():
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            try:
                train(algorithm, env, run_dir=run, seed=3, progress="none", **settings)
                if "stop_at" in settings:
                    resume(run, progress="none")
                hashes[name] = digest(run)
            except OffbeatError as error:
                hashes[name] = None
                print(name, error, file=sys.stderr, flush=True)
        print(name, hashes[name], file=sys.stderr, flush=True)
    print(json.dumps(hashes))
"""


def hashes_of(folder: Path) -> dict[str, str | None]:
    """Train all runs with the code in a folder; return the hash of each run's weights, None where it was refused."""
    paths = os.pathsep.join([str(folder / "src"), str(folder)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    said = finish([sys.executable, "-P", "-c", PROBE, json.dumps(RUNS)], environment)
    answer: dict[str, str | None] = json.loads(said)
    return answer


def main() -> int:
    """Compare two versions on all runs, and print the hashes; 1 if one differs."""
    parser = new_parser(__doc__)
    parser.add_argument("first", metavar="REVISION_A")
    parser.add_argument("second", metavar="REVISION_B", nargs="?", help="without it: the working tree")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = hashes_of(exported(options.first, Path(folder) / "a").parent)
        after = hashes_of(exported(options.second, Path(folder) / "b").parent if options.second else ROOT)
    known = {name for name in RUNS if before[name] is not None and after[name] is not None}
    rows = [[name, *(found[name] or "refused" for found in (before, after))] for name in RUNS]
    same = sum(before[name] == after[name] for name in known)
    print(markdown_table(["run", options.first, options.second or "working tree"], rows))
    print(f"{same} of {len(known)} runs of both have the same bits.")
    return int(same < len(known))


if __name__ == "__main__":
    sys.exit(main())
