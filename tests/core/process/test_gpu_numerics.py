"""How torch is set up for a learner on a GPU, and set back. The settings are there without a GPU too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tests.support.runs import small_run

from offbeat.core.process.caller_state import caller_state
from offbeat.core.process.gpu_numerics import WORKSPACE, set_gpu_numerics
from offbeat.runtime import devices


def settings() -> dict[str, Any]:
    return {
        "tf32": torch.backends.cudnn.allow_tf32,
        "products": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warns only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fills": torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        "benchmark": torch.backends.cudnn.benchmark,
        "workspace": os.environ.get(WORKSPACE),
    }


@pytest.fixture
def _saved(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(WORKSPACE, raising=False)
    with caller_state() as state:
        state.save_library_settings()
        yield


@pytest.mark.usefixtures("_saved")
def test_on_a_cpu_nothing_changes():
    before = settings()
    set_gpu_numerics("cpu", exact=True)
    assert settings() == before


@pytest.mark.usefixtures("_saved")
def test_on_a_gpu_convolutions_compute_with_all_bits_of_float32():
    before = settings()
    assert before["tf32"], "torch's default: otherwise this test shows nothing"
    set_gpu_numerics("cuda", exact=False)
    assert settings() == {**before, "tf32": False}


@pytest.mark.usefixtures("_saved")
def test_in_an_exact_run_on_a_gpu_kernels_are_deterministic():
    torch.backends.cudnn.benchmark = True
    set_gpu_numerics("cuda:1", exact=True)
    now = settings()
    assert (now["tf32"], now["deterministic"], now["warns only"]) == (False, True, False)
    assert (now["fills"], now["benchmark"], now["workspace"]) == (False, False, ":4096:8")


@pytest.mark.usefixtures("_saved")
def test_the_workspace_that_the_user_has_chosen_is_kept(monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":16:8")
    set_gpu_numerics("cuda", exact=True)
    assert os.environ[WORKSPACE] == ":16:8"


@pytest.mark.usefixtures("_saved")
def test_a_precision_that_the_caller_has_chosen_with_newer_settings_is_kept():
    conv, rnn = (getattr(torch.backends.cudnn, name, None) for name in ("conv", "rnn"))
    if conv is None or rnn is None:
        pytest.skip("this version of torch has no such settings")
    conv.fp32_precision = "ieee"
    try:
        with caller_state() as state:
            state.save_library_settings()
            set_gpu_numerics("cuda", exact=True)
            assert (conv.fp32_precision, rnn.fp32_precision) == ("ieee", "tf32")
        assert (conv.fp32_precision, rnn.fp32_precision) == ("ieee", "tf32")
    finally:
        conv.fp32_precision = "tf32"


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_settings_of_the_caller_are_restored(monkeypatch, deterministic):
    monkeypatch.delenv(WORKSPACE, raising=False)
    torch.use_deterministic_algorithms(deterministic, warn_only=deterministic)
    try:
        before = settings()
        with caller_state() as state:
            state.save_library_settings()
            set_gpu_numerics("cuda", exact=True)
            assert settings() != before
        assert settings() == before
    finally:
        torch.use_deterministic_algorithms(mode=False)


def test_on_a_cpu_torch_does_not_load_its_compiler(tmp_path):
    """`torch.use_deterministic_algorithms` does, which takes seconds."""
    with patch.object(torch, "use_deterministic_algorithms", side_effect=AssertionError("it loads the compiler")):
        small_run(tmp_path / "run", steps=64, lag="exact")


@pytest.mark.parametrize("lag", ["exact", "bounded"])
def test_a_run_sets_torch_up_for_its_device_and_its_lag(tmp_path, lag):
    calls: list[str] = []

    def record(device: str, *, exact: bool) -> None:
        calls.append(f"{device}, exact {exact}")

    with patch.object(devices, "set_gpu_numerics", record):
        small_run(tmp_path / "run", steps=64, lag=lag)
    assert calls == [f"cpu, exact {lag == 'exact'}"]
