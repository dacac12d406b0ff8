"""The slow twin of a learning step with a recurrent core: each column by itself, row by row, in torch's own cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from tests.reference.update import Network, Place, PPOTwin, Rows, _linear
from torch import Tensor, nn

from offbeat.core.types import Tree
from offbeat.models.spec import PolicySpec

CELLS = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}


class RecurrentNetwork(Network):
    """Hidden layers and a cell, which policy and critic share, and a head each."""

    def __init__(self, spec: PolicySpec, weights: Mapping[str, Rows]) -> None:
        super().__init__(replace(spec, hidden_sizes=()), weights, shared=False)
        self.core = spec.core
        self.body = nn.ModuleList([_linear(weights, f"policy_body.{i}") for i in range(len(spec.hidden_sizes))])
        inputs = weights["policy_body.core.input.weight"].shape[1]
        self.cell = CELLS[spec.core](inputs, spec.core_size, dtype=torch.float64)
        for ours, theirs in (("input", "ih"), ("hidden", "hh")):
            for kind in ("weight", "bias"):
                array = weights[f"policy_body.core.{ours}.{kind}"]
                getattr(self.cell, f"{kind}_{theirs}").data = torch.from_numpy(array.copy()).double()

    def walk(self, rows: list[Tensor], state: Tensor, valid: Rows) -> list[Tensor]:
        """Return the features of one column's rows; an episode is forgotten after its reset row."""
        features = []
        for row, goes_on in zip(rows, valid, strict=True):
            x = row
            for layer in self.body:
                x = torch.tanh(layer(x))
            if self.core == "gru":
                state = self.cell(x[None], state[None])[0]
                features.append(state)
            else:
                hidden, memory = self.cell(x[None], tuple(part[None] for part in state.chunk(2)))
                state = torch.cat((hidden[0], memory[0]))
                features.append(hidden[0])
            state = state if goes_on else torch.zeros_like(state)
        return features

    def parameter(self, name: str) -> Tensor:
        """Return a parameter by the name that a checkpoint gives it."""
        if name == "log_std":
            return self.log_std
        *path, kind = name.split(".")
        found: Tensor
        if "core" in path:
            found = getattr(self.cell, f"{kind}_{'ih' if path[-1] == 'input' else 'hh'}")
        elif path[0] == "policy_body":
            found = getattr(self.body[int(path[1])], kind)
        else:
            found = getattr(getattr(self, path[0].removesuffix("_head"))[0], kind)
        return found

    def array(self, name: str) -> Rows:
        array: Rows = self.parameter(name).detach().numpy()
        return array


@dataclass
class RecurrentTwin(PPOTwin):
    """Learns as PPO does, from whole columns."""

    def learn(self, batch: Tree, rate: float, random: np.random.Generator) -> list[float]:
        self._batch = batch
        return super().learn(batch, rate, random)

    def _look(self) -> None:
        """Put the features, which the heads see, in the place of the observations."""
        length, columns = self._batch["valid"].shape
        network = self.network
        assert isinstance(network, RecurrentNetwork)
        for column in range(columns):
            rows = [self._inputs[row, column] for row in range(length)]
            state = torch.from_numpy(self._batch["initial_state"][column]).double()
            features = network.walk(rows, state, self._batch["valid"][:, column])
            self.observations |= {(row, column): x for row, x in enumerate(features)}

    @torch.no_grad()
    def _prepare(self, batch: Tree, rows: object) -> None:
        self._inputs = dict(self.observations)
        self._look()
        super()._prepare(batch, rows)  # type: ignore[arg-type]

    def _update(self, part: list[Place], batch: Tree, rate: float) -> float:
        self._look()
        return super()._update(part, batch, rate)

    def _parts(self, valid: list[Place], random: np.random.Generator) -> Iterator[list[Place]]:
        columns = self._batch["valid"].shape[1]
        parts = min(columns, -(-len(valid) // self.config.minibatch_size))
        for _ in range(self.config.epochs):
            for some in np.array_split(random.permutation(columns), parts):
                yield [where for column in some for where in valid if where[1] == column]
