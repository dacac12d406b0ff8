"""The tests of this folder need a CUDA GPU: `pytest -m gpu` runs them, elsewhere they are skipped.

`OFFBEAT_TEST_DEVICE=cpu pytest -m gpu tests/gpu` runs all but a few on a CPU, to test the tests.
"""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = os.environ.get("OFFBEAT_TEST_DEVICE", "cuda")


@pytest.fixture
def device() -> str:
    """The device to learn on."""
    if DEVICE != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA GPU here")
    return DEVICE


@pytest.fixture
def gpu(device: str) -> str:
    """A GPU, for tests of what a CPU does not have."""
    if device == "cpu":
        pytest.skip("needs a CUDA GPU: on a CPU there is nothing to test")
    return device
