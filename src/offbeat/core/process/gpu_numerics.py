"""How torch computes on a GPU: with all bits of float32, and in exact runs with deterministic kernels.

Unless it is told otherwise, torch lets convolutions on a GPU round their inputs to TF32, which has 10 bits of mantissa
instead of 23. Actors compute in float32 on the CPU, so the learner would see another policy than the one that acted.
Matrix products are in float32, unless the caller has chosen otherwise with `torch.set_float32_matmul_precision`.

These settings are those of the whole process: `core/process/caller_state.py` restores them after training.
"""

from __future__ import annotations

import os
import sys

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable: deterministic products need workspaces of fixed sizes in cuBLAS."""
_FIXED_WORKSPACE = ":4096:8"


def set_gpu_numerics(device: str, *, exact: bool) -> None:
    """Let torch compute in this process as a learner on this device needs. On a CPU nothing changes.

    Args:
        device: torch device of the learner's tensors.
        exact: only use kernels that give the same bits each time. torch raises RuntimeError where it has none.
    """
    if device == "cpu":
        return
    import torch

    if _tf32():
        torch.backends.cudnn.allow_tf32 = False
    if exact:
        os.environ.setdefault(WORKSPACE, _FIXED_WORKSPACE)
        torch.use_deterministic_algorithms(mode=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False  # it chooses kernels by their speed


def _tf32() -> bool | None:
    """Whether convolutions may use TF32; None if the caller has chosen a precision with torch's newer settings."""
    import torch

    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # the newer settings contradict this one
        return None


def _deterministic() -> tuple[bool, bool]:
    """Return whether only deterministic kernels are used, and whether others are used after a warning."""
    import torch

    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


class GpuNumerics:
    """The settings of torch at the time of construction."""

    def __init__(self) -> None:
        self._known = "torch" in sys.modules
        if not self._known:
            return
        import torch

        self._tf32 = _tf32()
        self._deterministic = _deterministic()
        self._fills: bool = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        self._benchmark = torch.backends.cudnn.benchmark

    def restore(self) -> None:
        """Restore these settings."""
        if not self._known:
            return
        import torch

        if self._tf32 is not None and self._tf32 != _tf32():
            torch.backends.cudnn.allow_tf32 = self._tf32
        if (
            self._deterministic != _deterministic()
        ):  # only then: torch loads its compiler to set it, which takes seconds
            mode, warns_only = self._deterministic
            torch.use_deterministic_algorithms(mode, warn_only=warns_only)
        torch.utils.deterministic.fill_uninitialized_memory = self._fills  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = self._benchmark
