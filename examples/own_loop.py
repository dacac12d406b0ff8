"""Pace, gate and replay in a loop of your own, without an algorithm, a policy or a run directory of offbeat.

Actor threads fill a replay with random steps while the main thread learns a linear model of how CartPole moves. The
pace says how many updates are due: one per two transitions, after a warm-up. The gate lets actors be at most three
tickets ahead of the learner.

python examples/own_loop.py --actors 2 --tickets 400
"""

from __future__ import annotations

import argparse
import threading
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed
from offbeat.core.pace import ReplayPace
from offbeat.core.types import Field
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.runtime.gate import ActorGate, LearnerGate, PaceBoard, pace_board_slabs

FIELDS = [
    Field("observation", (4,), "float32"),
    Field("action", (), "int64"),
    Field("reward", (), "float32"),
    Field("terminated", (), "bool"),
    Field("truncated", (), "bool"),
    Field("valid", (), "bool"),
]
LENGTH, COLUMNS = 8, 4


def act(gate: ActorGate, rings: Rings, seed: int) -> None:
    """Fill ticket after ticket with random steps of a vector env, until the gate closes."""
    envs = gym.make_vec("CartPole-v1", COLUMNS)  # NEXT_STEP: after an end comes the row that resets
    random = np.random.default_rng(seed)
    observation, _ = envs.reset(seed=seed)
    ended = np.zeros(COLUMNS, bool)
    try:
        while True:
            ticket = gate.open_ticket
            gate.start(ticket)  # waits, if the pace says so
            slot = rings.open(ticket)
            for row in range(LENGTH):
                slot["observation"][row], slot["valid"][row] = observation, ~ended
                slot["action"][row] = random.integers(2, size=COLUMNS)
                observation, slot["reward"][row], terminated, truncated, _ = envs.step(slot["action"][row])
                slot["terminated"][row], slot["truncated"][row] = terminated, truncated
                ended = terminated | truncated
            slot["observation"][LENGTH] = observation
            gate.commit(ticket)
    except Closed:
        pass
    finally:
        envs.close()


def learn(
    gate: LearnerGate, replay: TransitionReplay, pace: ReplayPace, tickets: int, actors: list[threading.Thread]
) -> None:
    """Add ticket after ticket to the replay, and make the updates that are then due."""

    def watch() -> None:
        """Raise an error if an actor has died. The gate calls this while it waits."""
        if not all(actor.is_alive() for actor in actors):
            raise RuntimeError("an actor has died")

    random, model = np.random.default_rng(0), np.zeros((6, 4))
    valid, updates, error = 0, 0, float("nan")
    for step in range(tickets):
        gate.wait(step + 1, watch)
        replay.take_in(step, behavior_updates=updates)
        valid += int(replay.ticket(step)["valid"].sum())
        while updates < pace.due(valid):
            error = update(model, replay.sample(random).arrays)
            updates += 1
        gate.finish(step + 1)
        if (step + 1) % max(1, tickets // 4) == 0:
            print(f"{valid:6} transitions, {updates:5} updates, {pace.due(valid) - updates} due, error {error:.5f}")


def update(model: Any, sampled: Any) -> float:
    """Take a step of gradient descent on how observations change, and return the mean squared error before it."""
    inputs = np.column_stack([sampled["observation"], sampled["action"], np.ones(len(sampled["action"]))])
    error = inputs @ model - (sampled["next/observation"] - sampled["observation"])
    model -= 0.1 * inputs.T @ error / len(error)
    return float(np.square(error).mean())


def main() -> None:
    """Join actors and learner by a gate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--tickets", type=int, default=400)
    given = parser.parse_args()
    pace = ReplayPace(utd_ratio=Fraction(1, 2), warmup=500, max_ahead=3)
    runtime = RuntimeConfig(runtime="threads", actors=given.actors)
    shape = RingShape(pace, given.actors, COLUMNS, LENGTH, capacity=5_000)
    rings = shape.slots(FIELDS, private_arena(shape.slabs(FIELDS)))
    replay = TransitionReplay(rings, batch_size=64, n_step=1, gamma=0.99)
    board = PaceBoard(private_arena(pace_board_slabs(given.actors)), given.actors)
    board.reset(origin=0, learned=0)
    gate = LearnerGate(board, pace)
    threads = [
        threading.Thread(
            target=act,
            args=(ActorGate(board, pace, runtime, actor, gate.acting_bells[actor], gate.own_bell), rings, actor),
        )
        for actor in range(given.actors)
    ]
    for thread in threads:
        thread.start()
    try:
        learn(gate, replay, pace, given.tickets, threads)
    finally:
        gate.close()  # all waits raise Closed
        for thread in threads:
            thread.join()
        gate.discard()


if __name__ == "__main__":
    main()
