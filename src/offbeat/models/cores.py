"""Recurrent cores: the memory of a policy within an episode.

The state is one vector per column, [B, state_size]. It is updated at each row and is zero at the first row of an
episode. Acting processes one row per call. Learning processes all rows of an unroll in one call, so the products with
the inputs, which are most of the work, are computed for all rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from offbeat.models.dense import Dense, Initializer


class GRU(nn.Module):
    """Gated recurrent unit (arXiv:1406.1078). As in cuDNN, the reset gate is applied after the product."""

    def __init__(self, inputs: int, size: int, init: Initializer) -> None:
        super().__init__()
        self.size = self.state_size = size
        self.input, self.hidden = Dense(inputs, 3 * size, init, 1.0), Dense(size, 3 * size, init, 1.0)

    def forward(self, x: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """Go through T rows in order.

        Args:
            x: [T, B, inputs].
            state: [B, state_size], before the first row.
            resets: [T, B], bool: the row is the last of its episode, after which the state is zero.

        Returns:
            The outputs [T, B, size], and the state after the last row, [B, state_size].
        """
        from_input, continues = self.input(x), (~resets).to(x.dtype).unsqueeze(-1)
        outputs = []
        for row in range(len(x)):
            reset, update, new = from_input[row].chunk(3, dim=1)
            reset_h, update_h, new_h = self.hidden(state).chunk(3, dim=1)
            reset = torch.sigmoid(reset + reset_h)
            new = torch.tanh(new + reset * new_h)
            update = torch.sigmoid(update + update_h)
            state = torch.lerp(new.to(state.dtype), state, update.to(state.dtype))  # with bf16 the state is float32
            outputs.append(state)
            state = state * continues[row]
        return torch.stack(outputs), state


class LSTM(nn.Module):
    """Long short-term memory with a forget gate (doi:10.1162/089976600300015015); its state is (output, cell)."""

    def __init__(self, inputs: int, size: int, init: Initializer) -> None:
        super().__init__()
        self.size, self.state_size = size, 2 * size
        self.input, self.hidden = Dense(inputs, 4 * size, init, 1.0), Dense(size, 4 * size, init, 1.0)

    def forward(self, x: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """Go through T rows in order; shapes as in `GRU.forward`."""
        from_input, continues = self.input(x), (~resets).to(x.dtype).unsqueeze(-1)
        output, cell = state.chunk(2, dim=1)
        outputs = []
        for row in range(len(x)):
            input_gate, forget_gate, new, output_gate = (from_input[row] + self.hidden(output)).chunk(4, dim=1)
            cell = torch.sigmoid(forget_gate) * cell + torch.sigmoid(input_gate) * torch.tanh(new)
            output = torch.sigmoid(output_gate) * torch.tanh(cell)
            outputs.append(output)
            output, cell = output * continues[row], cell * continues[row]
        return torch.stack(outputs), torch.cat((output, cell), dim=1)


CORES: Mapping[str, type[GRU | LSTM]] = {"gru": GRU, "lstm": LSTM}
