"""An algorithm may learn from several samples per update, which its settings' replay gives names of their own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from tests.reference.replay import FIELDS, Chances, Writers
from tests.support.runs import weights_of

from offbeat.algorithms.base import LossResult
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.api.train import train
from offbeat.core.pace import ReplayPace
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.rings import RingShape
from offbeat.memory.replay.transitions import TransitionReplay

NEWEST = "newest/"
ROWS = 2


class ReplayWithNewest(TransitionReplay):
    """Samples uniformly, and in addition rows of the newest ticket, under names with a prefix."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._newest = self.new_buffers(ROWS)

    def sample(self, random):
        samples = super().sample(random)
        ticket = self.next_ticket - 1
        buffers = next(self._newest)
        buffers.samples.cells[:] = ticket % len(self._tickets) * self._ticket_cells + np.arange(ROWS)
        newest = self.samples_of(buffers)
        assert (newest.tickets == ticket).all()
        return samples._replace(arrays=samples.arrays | {NEWEST + name: part for name, part in newest.arrays.items()})


@dataclass(frozen=True)
class NewestConfig(DQNConfig):
    def replay(self, rings, buffers=2):
        return ReplayWithNewest(rings, batch_size=self.batch_size, n_step=1, gamma=self.gamma, buffers=buffers)


class NewestDQN(DQN):
    """Learns from both samples, and reports the reward of the second one."""

    config_class = NewestConfig

    def minibatch(self, sampled, random):
        newest = {name.removeprefix(NEWEST): part for name, part in sampled.items() if name.startswith(NEWEST)}
        return {**super().minibatch(sampled, random), "newest": super().minibatch(newest, random)}

    def loss(self, minibatch):
        first, second = super().loss(minibatch), super().loss(minibatch["newest"])
        metrics = {**first.metrics, "newest_reward": minibatch["newest"]["reward"].mean()}
        return LossResult(first.loss + second.loss, metrics, first.outputs)


def test_an_algorithm_learns_from_two_samples_per_update_with_the_same_bits_in_serial_and_threads(tmp_path):
    settings: dict[str, Any] = {"steps": 80, "warmup": 20, "batch_size": 8, "capacity": 100, "hidden_sizes": (8,)}
    settings |= {"actors": 1, "envs_per_actor": 2, "max_ahead": 1, "lag": "exact", "eval_every": 0}
    serial, threads, plain = (
        train(algorithm, "CartPole-v1", run_dir=tmp_path / name, runtime=runtime, **settings)
        for name, algorithm, runtime in (
            ("serial", NewestDQN, "serial"),
            ("threads", NewestDQN, "threads"),
            ("plain", "dqn", "serial"),
        )
    )
    assert weights_of(serial.path) == weights_of(threads.path) != weights_of(plain.path)
    assert serial.metrics["newest_reward"] == 1  # of each step of CartPole


def test_a_second_sample_is_not_overwritten_before_as_many_samples_as_the_replay_has_buffers():
    random, shape = np.random.default_rng(0), RingShape(ReplayPace(Fraction(1), 1, 1), 1, ROWS, 2, capacity=40)
    rings = shape.slots(FIELDS, private_arena(shape.slabs(FIELDS)))
    writers, newest = Writers(rings, random, Chances()), []
    replay = ReplayWithNewest(rings, batch_size=4, n_step=1, gamma=0.9, buffers=3)
    for ticket in range(3):
        writers.go_ahead(ticket + 1, ticket + 1)
        replay.take_in(ticket, 0)
        newest.append(replay.sample(random).arrays[f"{NEWEST}observation/number"])
    for ticket, numbers in enumerate(newest):
        np.testing.assert_array_equal(numbers, writers.committed[ticket]["observation/number"][0])
