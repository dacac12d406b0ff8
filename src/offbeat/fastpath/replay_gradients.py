"""What the analytic gradients of SAC, TD3 and CrossQ share: the critics' part, and its division among two threads.

For M rows, the targets y of the critics, and with d f for the derivative of the mean loss by f:

    critics      d Q_e = weight (Q_e - y) / M          as for a single critic, because the loss is a sum over critics

Each thread has half of the critics. They are not divided by rows, because one large product takes less time than two
halves.

Between two operators a thread needs Python's global interpreter lock. If the other thread holds the lock, waiting for
it takes longer than most operators. So few large operators are faster than many small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.replay_actor_critic import ReplayActorCritic, ReplayFastPath
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.td3 import TD3
from offbeat.core.types import F32
from offbeat.fastpath.layer_norm_mlp import LayerNormMLP
from offbeat.fastpath.operators import fastest_operators
from offbeat.fastpath.two_threads import Step, TwoThreadExecutor
from offbeat.models.buffer_layout import BufferLayout
from offbeat.models.mlp import MLP, Layers, MinibatchArrays, Operators
from offbeat.models.spec import PolicySpec

THREADS = 2
"""Number of parts of the work, also if both parts run on one thread."""


class LayersOfNetworks(NamedTuple):
    """The networks and operators that `Workspace` reads."""

    spec: PolicySpec
    policy: Layers
    critics: list[Layers]
    """The critics of the policy's loss."""
    ema: list[Layers]
    """The ema critics, if there are some."""
    operators: Operators

    @classmethod
    def with_ema(cls, algorithm: SAC | TD3, operators: Operators | None) -> LayersOfNetworks:
        """Return the networks of an algorithm with ema critics; without operators, with the fastest on this machine."""
        spec, policy, critics = algorithm.spec, algorithm.policy, algorithm.critics
        return cls(
            spec,
            layers_of(spec, policy.layout, policy.values.numpy()),
            critic_layers(critics.layout, critics.values.numpy()),
            critic_layers(critics.layout, algorithm.ema_critics.values.numpy()),
            operators or fastest_operators(),
        )


class Workspace:
    """The parts of the work on M rows, and their intermediate results. Buffers are allocated once, because each new
    large buffer causes page faults.
    """

    def __init__(self, networks: LayersOfNetworks, size: int) -> None:
        """Allocate buffers for `size` rows."""
        self.size = size
        self._networks = networks
        ensemble, inputs = len(networks.critics), networks.critics[0].sizes[0]
        self._joined, self._joined_next, self._joined_sampled = (np.zeros((size, inputs), np.float32) for _ in range(3))
        self.values, self._next_values, self.errors = (np.zeros((ensemble, size), np.float32) for _ in range(3))
        self.losses = [0.0] * ensemble
        self._critics = [self._mlp(networks.critics[0], size) for _ in networks.critics]
        self.ones = np.ones(size, np.float32)
        middle = (size + 1) // 2  # rows before it are the first half
        self._halves = slice(0, middle), slice(middle, size)

    def _mlp(self, layers: Layers, rows: int) -> MLP:
        kind = LayerNormMLP if layers.scales else MLP
        return kind(layers.sizes, self._networks.spec.activation, self._networks.operators, rows=rows)

    def _critics_of(self, thread: int) -> range:
        """Return the indices of this thread's critics."""
        return range(thread, len(self._networks.critics), THREADS)

    def evaluate_transitions(self, thread: int) -> None:
        """Compute the values of (s', a') with this thread's ema critics, then those of (s, a) with its critics."""
        with ignore_overflow():
            for e in self._critics_of(thread):
                critic = self._critics[e]
                self._next_values[e] = critic.forward(self._networks.ema[e], self._joined_next)[:, 0]
                self.values[e] = critic.forward(self._networks.critics[e], self._joined)[:, 0]

    def write_critic_gradients(
        self, thread: int, targets_of_rows: Callable[[], F32], weight: F32, gradients: list[Layers]
    ) -> None:
        """Write the gradients of this thread's critics, after `evaluate_transitions`.

        Args:
            thread: 0 or 1.
            targets_of_rows: returns y, [M].
            weight: [M].
            gradients: of each critic.
        """
        with ignore_overflow():
            # Both threads compute the targets: that takes less time than to wait for the other thread.
            targets = targets_of_rows()
            weight = weight * np.float32(1 / self.size)
            for e in self._critics_of(thread):
                errors = self.errors[e]
                np.subtract(self.values[e], targets, out=errors)
                d = weight * errors
                self.losses[e] = 0.5 * float(d.dot(errors))
                self._backward(e, d, gradients[e])

    def _backward(self, e: int, d: F32, gradients: Layers) -> None:
        """Write the gradients of a critic from the derivative by its values of (s, a), [M]."""
        self._critics[e].backward(self._networks.critics[e], d[:, None], gradients)


WorkspaceT = TypeVar("WorkspaceT", bound=Workspace)


class ReplayGradients(ReplayFastPath, Generic[WorkspaceT]):
    """The fast path for plain MLPs on a CPU, through views of the flat buffers. The critics may be normalised.

    All arrays of the minibatches are float32.
    """

    def __init__(self, algorithm: ReplayActorCritic[Any, Any], networks: LayersOfNetworks) -> None:
        """Start the threads, and write the gradients of an algorithm for which `applies` is true.

        Args:
            algorithm: the algorithm.
            networks: its networks.
        """
        self._networks = networks
        self._prioritized: bool = algorithm.config.prioritized
        self._executor = TwoThreadExecutor(2 if algorithm.most_threads > 1 else 1)
        self.threads: int = self._executor.threads
        policy, critics = algorithm.policy, algorithm.critics
        self._gradients_of_critics = critic_layers(critics.layout, critics.gradients.numpy())
        # Each thread writes its own array of policy gradients; they are added at the end.
        self._flat_gradients = (policy.gradients.numpy(), np.zeros(policy.layout.size, np.float32))
        self._gradients_of_policy = [layers_of(networks.spec, policy.layout, flat) for flat in self._flat_gradients]
        self._workspaces: dict[int, WorkspaceT] = {}
        """By number of rows: shards may differ by one row."""
        self._workspace = self._workspace_of(1)

    @staticmethod
    def applies(algorithm: ReplayActorCritic[Any, Any]) -> bool:
        """Whether the fast path supports the policy and the device of an algorithm."""
        spec = algorithm.spec
        return spec.plain and spec.action.kind == "box" and algorithm.device == "cpu"

    def make_workspace(self, size: int) -> WorkspaceT:
        """Return a new workspace for a number of rows."""
        raise NotImplementedError

    def close(self) -> None:
        self._executor.close()

    def errors(self) -> F32:
        """Return the mean over the critics of |Q_e - y| in the last critic stage, [M]."""
        errors = self._workspace.errors
        result: F32 = np.add.reduce(np.abs(errors), axis=0) / np.float32(len(errors))
        return result

    def _write_critic_gradients(self, arrays: MinibatchArrays, first: Step, targets: Callable[[], F32]) -> LossResult:
        """Run the critic stage. Its first step joins s and a, and s' and a'; then `targets` returns y, [M]."""
        workspace = self._workspace
        weight = arrays["weight"] if self._prioritized else workspace.ones
        self._executor.run(
            first,
            on_both_threads(workspace.evaluate_transitions),
            on_both_threads(workspace.write_critic_gradients, targets, weight, self._gradients_of_critics),
        )
        loss = sum(workspace.losses)
        outputs = {"errors": torch.from_numpy(self.errors())} if self._prioritized else {}
        return LossResult(loss, {"critic_loss": loss, "q_mean": mean(workspace.values)}, outputs)

    def _add_policy_gradients(self) -> None:
        """Add the policy's gradients of both threads."""
        first, second = self._flat_gradients
        np.add(first, second, out=first)

    def _as_arrays(self, minibatch: Minibatch) -> MinibatchArrays:
        """Return the minibatch as arrays, and use the buffers of its size."""
        arrays: MinibatchArrays = {name: tensor.numpy() for name, tensor in minibatch.items()}
        self._workspace = self._workspace_of(len(arrays["observation"]))
        return arrays

    def _workspace_of(self, size: int) -> WorkspaceT:
        """Return the workspace for a number of rows; allocate its buffers if the number is new."""
        if size not in self._workspaces:
            self._workspaces[size] = self.make_workspace(size)
        return self._workspaces[size]


def on_both_threads(part: Callable[..., None], *arguments: Any) -> Step:
    """Return the step in which both threads call `part`, with 0 or 1 as the first argument."""
    return partial(part, 0, *arguments), partial(part, 1, *arguments)


def layers_of(spec: PolicySpec, layout: BufferLayout, flat: F32) -> Layers:
    """Return the layers of a policy."""
    return Layers.of(layout.views(flat), spec.layer_names())


def critic_layers(layout: BufferLayout, flat: F32) -> list[Layers]:
    """Return each critic's layers.

    A flat buffer has ``weights.{i}`` [E, outputs, inputs] and ``biases.{i}`` [E, outputs] of layer i, and with
    normalisation ``scales.{i}`` and ``shifts.{i}``.
    """
    return [Layers(*arrays) for arrays in arrays_of_critics(layout, flat, ("weights", "biases", "scales", "shifts"))]


def arrays_of_critics(layout: BufferLayout, flat: F32, kinds: Sequence[str]) -> list[list[list[F32]]]:
    """Return for each critic and kind the arrays of all layers, views of ``<kind>.{i}`` [E, ...]."""
    views: dict[str, F32] = layout.views(flat)
    of_kinds = [[view for name, view in views.items() if name.startswith(f"{kind}.")] for kind in kinds]
    return [[[view[e] for view in of_kind] for of_kind in of_kinds] for e in range(len(of_kinds[0][0]))]


def join(observation: F32, action: F32, out: F32) -> None:
    """Write observations and actions side by side into `out`, the input of the critics."""
    inputs = observation.shape[1]
    out[:, :inputs] = observation
    out[:, inputs:] = action


def ignore_overflow() -> np.errstate:
    """Ignore overflow: the learner refuses values that are not finite. NumPy has this setting per thread."""
    return np.errstate(over="ignore", invalid="ignore")


def mean(x: F32) -> float:
    """Return the mean of all elements."""
    return float(np.add.reduce(x, axis=None)) / x.size
