"""What a batch or a minibatch may have besides its arrays: a forward pass that is used again, or arrays not yet cut.

All of them are mappings, and read as such they have the arrays that `rows.py` describes. M is the number of rows of a
minibatch with a decision, m of those without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.models.distributions import ActionDistribution


class Outputs(NamedTuple):
    """The outputs of the network for a minibatch, with gradients."""

    distribution: ActionDistribution
    """Action distribution of the M rows with a decision."""
    values: Tensor
    """[M + m], the critic's values in units of the normalised return."""


class Evaluated(dict[str, Any]):
    """A batch with the outputs of the network for its valid rows.

    If one update uses all rows, the network runs only once: its values are used for the targets, and its outputs, with
    gradients, for the loss.
    """

    def __init__(self, rows: Mapping[str, Any], outputs: Outputs) -> None:
        super().__init__(rows)
        self.outputs = outputs


class EvaluatedMinibatch(Mapping[str, Any]):
    """A minibatch of all valid rows of an `Evaluated` batch, with the outputs of the network.

    The inputs of the network are only gathered if they are read: the losses of the user's own may do this.
    """

    def __init__(
        self, arrays: Mapping[str, Any], outputs: Outputs, inputs: Mapping[str, Callable[[], Tensor]] | None = None
    ) -> None:
        """Add outputs to a minibatch.

        Args:
            arrays: its arrays, by name.
            outputs: the outputs of the network.
            inputs: functions that gather its further arrays, by name; None: there are no further ones.
        """
        self._arrays, self._inputs, self.outputs = dict(arrays), inputs or {}, outputs

    def __getitem__(self, name: str) -> Any:
        if name in self._inputs and name not in self._arrays:
            self._arrays[name] = self._inputs[name]()
        return self._arrays[name]

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __iter__(self) -> Iterator[str]:
        return iter({**self._arrays, **self._inputs})

    def __len__(self) -> int:
        return len(self._arrays.keys() | self._inputs.keys())


class ForwardedRows(dict[str, Any]):
    """A batch, or a minibatch of all its valid rows, whose forward pass the fast path can use again for the loss."""

    def __init__(self, rows: Mapping[str, Any], forwarded: object, valid: Tensor) -> None:
        """Refer to the forward pass.

        Args:
            rows: the batch or the minibatch.
            forwarded: see `batch_network.FastOutputs`.
            valid: [M], indices of the valid rows among the N rows of the forward pass.
        """
        super().__init__(rows)
        self.forwarded, self.valid = forwarded, valid


class RowRange(Mapping[str, Any]):
    """A minibatch that is a range of the rows of a larger one, which are arrays on the host.

    Read as a mapping it has tensors, `arrays` has the same memory as arrays. Both are cut only when they are read,
    because cutting them takes longer than to gather them.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], rows: slice) -> None:
        """Take a range of rows of all arrays, [N, ...] each."""
        self._arrays, self._rows = arrays, rows

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the minibatch, [M, ...] each, by name."""
        rows = self._rows
        return {name: array[rows] for name, array in self._arrays.items()}

    def __getitem__(self, name: str) -> Any:
        return None if name == "rows" else torch.from_numpy(self._arrays[name][self._rows])

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __iter__(self) -> Iterator[str]:
        yield from self._arrays
        yield "rows"

    def __len__(self) -> int:
        return len(self._arrays) + 1
