"""Asynchronous PPO from scratch: the idea of offbeat in one file, without offbeat. Needs NumPy, torch and Gymnasium.

    python examples/async_ppo_from_scratch.py                                  # solves CartPole-v1
    python examples/async_ppo_from_scratch.py --runtime threads --max-lag 3
    for runtime in serial threads processes; do
        python examples/async_ppo_from_scratch.py --exact --runtime $runtime   # three times the same SHA-256
    done

Actors step envs while a learner updates the network. With queues between them, the age of the weights that act depends
on timing. Here it does not: acting is cut into numbered *tickets*, and a small scheduler, the *pace*, computes how many
learning steps a ticket waits for, and how many tickets a learning step waits for. From it follow

* a bound: weights that act are at most D learning steps older than the weights that learn from the data;
* memory without queues or locks: the number of a ticket says which slot it may write, and nobody else uses it then;
* with --exact, the same weights bit for bit from one thread, several threads and several processes.

The file is in the order of the data: envs -> actor -> slots -> learner -> weights -> actor.
Shapes: A actors of N envs each; a ticket is an unroll of T rows; a batch has a ticket from each actor, so B = A * N
columns; M is the number of rows of a minibatch.
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import count
from math import nan, prod
from multiprocessing.connection import Connection, Pipe
from time import perf_counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy and torch are loaded: more only gets in the actors' way

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """What can be set by flags."""

    runtime: str = "processes"  # or threads, or serial
    exact: bool = False  # act with the oldest weights that the pace allows, not with the newest ones
    env: str = "CartPole-v1"  # any env of Gymnasium with a vector as observation and a choice as action
    steps: int = 150_000  # env steps
    seed: int = 1
    actors: int = 2  # A
    envs: int = 8  # N
    length: int = 32  # T
    max_lag: int = 1  # D, in learning steps


HIDDEN, GAMMA, LAMBDA = 64, 0.98, 0.95
LEARNING_RATE, EPOCHS, MINIBATCH, CLIP, MAX_GRAD_NORM = 1e-3, 8, 256, 0.2, 0.5


# --- the pace: who may start, and which memory it uses -----------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """Ticket k belongs to actor k % A and to batch k // A; learning step j consumes batch j."""

    actors: int
    max_lag: int

    def learned_before_act(self, ticket: int) -> int:
        """Learning steps that must be finished before a ticket may begin."""
        return max(0, ticket // self.actors - self.max_lag)

    def acted_before_learn(self, step: int) -> int:
        """Tickets that must be finished, from 0 on without a gap, before a learning step may begin."""
        return (step + 1) * self.actors

    def place(self, number: int) -> int:
        """Return the place of the slots of a batch, or of the weights after so many learning steps.

        D + 1 places are enough for both. Batch b + D + 1 waits until batch b is learned from. A ticket of batch b acts
        with the weights after b - D to b learning steps, and learning step b waits for the ticket.
        """
        return number % (self.max_lag + 1)


# --- memory: slots and versions, without locks -------------------------------------------------------------------


def shared(layout: np.dtype[Any], *shape: int) -> Array:
    """Return an array that forked processes share. It has no name, so it is gone when the last of them is."""
    return np.frombuffer(mmap.mmap(-1, prod(shape) * layout.itemsize), layout).reshape(shape)


def slot_layout(rows: int, envs: int, inputs: int) -> np.dtype[Any]:
    """Return the layout of a slot: T rows of N envs, and the observations that follow the last row."""
    return np.dtype(
        [
            ("observation", np.float32, (rows + 1, envs, inputs)),
            ("action", np.int64, (rows, envs)),
            ("behavior_log_prob", np.float32, (rows, envs)),  # of the action, under the weights that acted
            ("reward", np.float32, (rows, envs)),
            ("terminated", np.bool_, (rows, envs)),
            ("valid", np.bool_, (rows, envs)),  # not the rows between episodes, in which the env only resets itself
            ("episode_return", np.float32, (rows, envs)),  # where an episode ended; elsewhere NaN
            ("version", np.int64),  # learning steps that had made the weights that acted
        ],
        align=True,
    )


# --- the actor: only NumPy, because a forked process should not use torch ----------------------------------------


def log_probs(policy: Array, x: Array) -> Array:
    """Return log pi(a | x) of all actions, for observations x [N, inputs] and the weights of a version."""
    names = policy.dtype.names or ()  # of the matrix and the bias of each layer
    for layer, (matrix, bias) in enumerate(zip(names[::2], names[1::2], strict=True)):
        x = (np.tanh(x) if layer else x) @ policy[matrix].T + policy[bias]  # [N, inputs] -> [N, HIDDEN] -> [N, actions]
    x = x - x.max(axis=1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))


class Actor:
    """Steps N envs. Its episodes continue from one of its tickets to the next."""

    def __init__(self, settings: Settings, pace: Pace, index: int, slots: Array, weights: Array) -> None:
        self.settings, self.pace, self.index, self.slots, self.weights = settings, pace, index, slots, weights
        self.envs = gym.make_vec(settings.env, settings.envs)
        self.observation, _ = self.envs.reset(seed=1_000 * settings.seed + index)  # [N, inputs]
        self.ended = np.zeros(settings.envs, np.bool_)
        self.returns = np.zeros(settings.envs)

    def act(self, ticket: int, learned: int) -> None:
        """Fill the ticket's slot, while at least `learned` learning steps are finished."""
        version = self.pace.learned_before_act(ticket) if self.settings.exact else learned
        policy = self.weights[self.pace.place(version)]
        random = np.random.default_rng([self.settings.seed, 0, ticket])  # keyed by the ticket, never by time
        slot = self.slots[self.pace.place(ticket // self.pace.actors), self.index]
        slot["version"] = version
        for row in range(self.settings.length):
            every = log_probs(policy, self.observation)  # [N, actions]
            action = (every + random.gumbel(size=every.shape)).argmax(axis=1)  # [N], drawn from the policy
            slot["observation"][row], slot["valid"][row] = self.observation, ~self.ended
            slot["action"][row] = action
            slot["behavior_log_prob"][row] = every[np.arange(len(action)), action]
            self.observation, reward, terminated, truncated, _ = self.envs.step(action)
            slot["reward"][row], slot["terminated"][row] = reward, terminated
            self.ended = terminated | truncated
            self.returns += reward
            slot["episode_return"][row] = np.where(self.ended, self.returns, np.nan)
            self.returns[self.ended] = 0
        slot["observation"][-1] = self.observation


# --- the runtimes: who calls `act`, and how actors and learner wait for each other -------------------------------


class Serial:
    """One thread does all: before it learns, it acts all tickets that the pace allows. So it simulates any lag."""

    def __init__(self, actors: Sequence[Actor]) -> None:
        self.actors, self.learned = actors, 0
        self.finished, self.waited = 0, [0.0 for _ in actors]  # tickets, and seconds that each actor has waited

    def wait_for(self, tickets: int) -> None:
        """Return once so many tickets are finished, from 0 on without a gap."""
        while self.actors[0].pace.learned_before_act(self.finished) <= self.learned:
            self.actors[self.finished % len(self.actors)].act(self.finished, self.learned)
            self.finished += 1
        assert self.finished >= tickets

    def notify(self, learned: int) -> None:
        """Let the actors know that so many learning steps are finished, and their weights published."""
        self.learned = learned

    def close(self) -> None:
        """End the actors."""


class Parallel:
    """A thread or a process for each actor, and a pipe to it, which carries only numbers: the data is in the arrays.

    A death is noticed too: who ends closes its end of the pipe, and the other side gets an EOFError.
    """

    def __init__(self, actors: Sequence[Actor], processes: bool) -> None:
        self.pipes: list[Connection[int, float]] = []  # sends learning steps, receives seconds
        self.workers: list[Any] = []
        self.finished, self.waited = 0, [0.0 for _ in actors]
        worker = multiprocessing.get_context("fork").Process if processes else threading.Thread
        for actor in actors:
            ours, theirs = Pipe()
            self.pipes.append(ours)
            inherited = list(self.pipes) if processes else []
            self.workers.append(worker(target=work, args=(actor, theirs, inherited), daemon=True))
            self.workers[-1].start()
            if processes:
                theirs.close()  # the fork has its own

    def wait_for(self, tickets: int) -> None:
        while self.finished < tickets:
            actor = self.finished % len(self.pipes)  # the actor of the next ticket
            self.waited[actor] += self.pipes[actor].recv()
            self.finished += 1

    def notify(self, learned: int) -> None:
        for pipe in self.pipes:
            pipe.send(learned)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for worker in self.workers:
            worker.join()


def work(actor: Actor, pipe: Connection[float, int], inherited: Sequence[Connection[Any, Any]]) -> None:
    """Act ticket after ticket, each as soon as the pace allows, until the learner closes the pipe."""
    for end in inherited:
        end.close()  # a fork has the learner's ends too: while they are open, the end of the learner is not noticed
    learned = 0
    try:
        for ticket in count(actor.index, actor.pace.actors):
            began = perf_counter()
            while learned < actor.pace.learned_before_act(ticket) or pipe.poll():  # poll: is there anything newer?
                learned = pipe.recv()
            waited = perf_counter() - began
            actor.act(ticket, learned)
            pipe.send(waited)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass
    finally:
        pipe.close()


# --- the learner: GAE and PPO ------------------------------------------------------------------------------------


def gae(reward: Array, values: Array, terminated: Array, valid: Array) -> tuple[Array, Array]:
    """Return advantages and value targets, [T, B] (arXiv:1506.02438); all are [T, B], but `values` [T + 1, B].

    The row after an episode's end is not valid and has the final observation. So a truncated row is worth the value of
    what follows, a terminated row is worth nothing more, and no trace passes from one episode to the next.
    """
    error = reward + GAMMA * np.where(terminated, 0, values[1:]) - values[:-1]
    advantages = np.zeros_like(values)  # [T + 1, B]
    for row in reversed(range(len(reward))):
        advantages[row] = valid[row] * (error[row] + GAMMA * LAMBDA * advantages[row + 1])
    return advantages[:-1], values[:-1] + advantages[:-1]


def side_by_side(unrolls: Array) -> Tensor:
    """Put the unrolls of a batch next to each other: [A, T, N, ...] -> [T, B, ...]."""
    rows = unrolls.swapaxes(0, 1)  # [T, A, N, ...]
    return torch.from_numpy(rows.reshape(len(rows), -1, *rows.shape[3:]))


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Return the network that `log_probs` computes in NumPy."""
    hidden = nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, outputs))


def arrays(network: nn.Module) -> tuple[Array, ...]:
    """Return all parameters: matrix and bias of each layer."""
    return tuple(part.detach().numpy() for part in network.parameters())


class Learner:
    """Two networks, for the policy and for values, and their optimizer."""

    def __init__(self, seed: int, inputs: int, actions: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.seed = seed
        self.policy, self.value = mlp(inputs, actions), mlp(inputs, 1)
        self.parameters = [*self.policy.parameters(), *self.value.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, LEARNING_RATE, eps=1e-5)

    def log_prob(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return log pi(a | o): [..., inputs], [...] -> [...]."""
        every: Tensor = self.policy(observation).log_softmax(-1)  # [..., actions]
        return every.gather(-1, action[..., None])[..., 0]

    def learn(self, batch: Array, step: int, progress: float) -> None:
        """Make a learning step: several updates from the slots of a batch, [A]."""
        self.optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - progress)
        names = "observation", "action", "behavior_log_prob", "reward", "terminated", "valid"
        observation, action, behavior, reward, terminated, valid = (side_by_side(batch[name]) for name in names)
        with torch.no_grad():
            values = self.value(observation)[..., 0].numpy()  # [T + 1, B]
        inputs = reward.numpy(), values, terminated.numpy(), valid.numpy()
        advantages, targets = map(torch.from_numpy, gae(*inputs))  # [T, B]
        columns = observation[:-1], action, behavior, advantages, targets
        rows = [column[valid] for column in columns]  # [T, B, ...] -> [valid rows, ...]
        random = np.random.default_rng([self.seed, 1, step])  # keyed by the learning step
        for _ in range(EPOCHS):
            order = torch.from_numpy(random.permutation(len(rows[0])))
            for start in range(0, len(order), MINIBATCH):
                self.update(*(row[order[start : start + MINIBATCH]] for row in rows))  # [M, ...]

    def update(self, observation: Tensor, action: Tensor, behavior: Tensor, advantage: Tensor, target: Tensor) -> None:
        """Make an update from M rows (arXiv:1707.06347, equation 7).

        The clip compares with the policy that acted, which is up to D learning steps old. So what these steps changed
        counts too: D of them cannot all make the same large step before the data shows the effect of the first one.
        """
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        ratio = (self.log_prob(observation, action) - behavior).exp()  # [M]
        policy_loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        value_loss = 0.5 * (self.value(observation)[..., 0] - target).square().mean()
        self.optimizer.zero_grad()
        (policy_loss + value_loss).backward()
        nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM)
        self.optimizer.step()


# --- all of it ---------------------------------------------------------------------------------------------------


def main() -> None:
    """Make the parts, and train."""
    settings = read_flags()
    pace = Pace(settings.actors, settings.max_lag)
    with gym.make(settings.env) as env:
        inputs, actions = env.observation_space.shape[0], env.action_space.n  # type: ignore[attr-defined, index]
    learner = Learner(settings.seed, inputs, int(actions))
    slots = shared(slot_layout(settings.length, settings.envs, inputs), pace.max_lag + 1, pace.actors)
    parts = [(name, np.float32, tuple(part.shape)) for name, part in learner.policy.named_parameters()]
    weights = shared(np.dtype(parts), pace.max_lag + 1)
    weights[0] = arrays(learner.policy)
    actors = [Actor(settings, pace, index, slots, weights) for index in range(pace.actors)]
    acting = Serial(actors) if settings.runtime == "serial" else Parallel(actors, settings.runtime == "processes")
    try:
        train(max(1, settings.steps // slots[0]["reward"].size), pace, learner, acting, slots, weights)
    except (EOFError, ConnectionError) as error:
        raise SystemExit("an actor has died: its error is above") from error
    finally:
        acting.close()


def train(steps: int, pace: Pace, learner: Learner, acting: Serial | Parallel, slots: Array, weights: Array) -> None:
    """Wait for a batch, learn from it, publish the weights, notify the actors; at the end print the measurements."""
    returns: deque[float] = deque(maxlen=50)
    lags: list[int] = []
    env_steps, waited, began = 0, 0.0, perf_counter()
    for step in range(steps):
        asked = perf_counter()
        acting.wait_for(pace.acted_before_learn(step))
        waited += perf_counter() - asked
        batch = slots[pace.place(step)]  # [A]
        learner.learn(batch, step, step / steps)
        weights[pace.place(step + 1)] = arrays(learner.policy)
        env_steps += int(batch["valid"].sum())
        returns.extend(batch["episode_return"][np.isfinite(batch["episode_return"])].tolist())
        lags.extend((step - batch["version"]).tolist())
        assert 0 <= min(lags) <= max(lags) <= pace.max_lag
        acting.notify(step + 1)  # from here on, actors may write to the slots of this batch
        if (step + 1) * 10 // steps > step * 10 // steps:
            mean = np.mean(returns or [nan])
            print(f"{env_steps:7} env steps, return {mean:.1f} of the last {len(returns)} episodes", flush=True)

    seconds = perf_counter() - began
    shares = [f"{100 * each / seconds:.0f} %" for each in (waited, *acting.waited)]
    print(f"{env_steps} env steps in {seconds:.1f} s, {env_steps / seconds:.0f} a second")
    print(f"policy lag min {min(lags)}, mean {np.mean(lags):.2f}, max {max(lags)} learning steps")
    print(f"waited: the learner {shares[0]} of the time for its actors, the actors {', '.join(shares[1:])} for it")
    trained = b"".join(part.tobytes() for part in arrays(learner.policy) + arrays(learner.value))
    print(f"{hashlib.sha256(trained).hexdigest()}  SHA-256 of the weights")


def read_flags() -> Settings:
    """Return the settings from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", choices=["serial", "threads", "processes"], default="processes")
    parser.add_argument("--exact", action="store_true")
    for field in fields(Settings)[2:]:
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
