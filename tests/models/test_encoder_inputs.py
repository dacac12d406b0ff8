"""A user's encoder gets the numbers, dtypes and shapes of the env, whatever memory stores them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.sample_envs import wide_observations
from tests.sample_envs.wide_observations import SEEN, Recording, extremes

import offbeat
from offbeat.exporting.export import export

ON_POLICY: dict[str, Any] = {"unroll_length": 8, "minibatch_size": 16}
REPLAY: dict[str, Any] = {"warmup": 20, "batch_size": 8, "capacity": 100}
SETTINGS: dict[str, dict[str, Any]] = {"ppo": ON_POLICY, "dqn": REPLAY, "sac": REPLAY}
PATH = f"{wide_observations.__name__}:WideObservations"
DTYPES = {"table": "int64", "card": "int64", "flags": "int8", "place": "float32", "pixels": "uint8"}
DTYPES |= {"counts": "int64", "pair/0": "int64", "pair/1": "uint16"}


def rows_of(kind: str) -> dict[str, set[tuple[str, str]]]:
    """Key -> dtype and value, as text, of the two observations of the env."""
    rows: dict[str, set[tuple[str, str]]] = {}
    for observation in extremes(wide_observations.SPACES[kind]):
        tree = observation if kind == "dict" else {"": observation}
        parts = {key: part for key, part in tree.items() if key != "pair"}
        parts |= {f"pair/{i}": part for i, part in enumerate(tree.get("pair", ()))}
        for key, part in parts.items():
            dtype = DTYPES.get(key, "int64")
            rows.setdefault(key, set()).add((f"torch.{dtype}", str(np.asarray(part).astype(dtype).tolist())))
    return rows


def train(algorithm: str, run_dir: Any, kind: str) -> offbeat.Run:
    SEEN.clear()
    env: dict[str, Any] = {"env.kwargs.kind": kind, "env.kwargs.box_actions": algorithm == "sac"}
    encoder = f"{wide_observations.__name__}:Recording"
    settings = {**SETTINGS[algorithm], "steps": 64, "envs_per_actor": 2, "eval_every": 32, "checkpoint_every": 0}
    return offbeat.train(algorithm, PATH, run_dir=run_dir, encoder=encoder, evaluator="inline", **env, **settings)


@pytest.mark.parametrize(
    ("algorithm", "kind"), [("ppo", "dict"), ("ppo", "numbers"), ("dqn", "dict"), ("sac", "numbers")]
)
def test_in_training_and_evaluation_an_own_encoder_gets_the_numbers_and_dtypes_of_the_env(tmp_path, algorithm, kind):
    run = train(algorithm, tmp_path / "run", kind)
    assert run.metrics["updates"] > 0
    expected = rows_of(kind)
    assert {key: SEEN[key] & rows for key, rows in expected.items()} == expected
    others = {key: SEEN[key] - rows for key, rows in expected.items()}
    assert all(len(rows) <= 1 for rows in others.values())  # the observations of zeros with which an encoder is tested
    assert SEEN["leaves"] == {(key, dtype.removeprefix("torch.")) for key in expected for dtype, _ in expected[key]}


def test_a_loaded_and_an_exported_policy_give_an_own_encoder_the_numbers_and_dtypes_of_the_env(tmp_path):
    path = train("ppo", tmp_path / "run", "dict").path
    policy = offbeat.load(path, encoder=Recording)
    SEEN.clear()
    for observation in extremes(wide_observations.NUMBERS):
        policy(observation)
    assert rows_of("dict") == SEEN
    SEEN.clear()
    assert export(path, tmp_path / "policy.pt", format="torchscript", encoder=Recording).agreement.decisions > 0
    assert {dtype for key in rows_of("dict") for dtype, _ in SEEN[key]} == {f"torch.{name}" for name in DTYPES.values()}
