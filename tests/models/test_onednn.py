from __future__ import annotations

import pytest
import torch

from offbeat.models import onednn


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_onednn_is_detected_where_torch_has_it():
    assert onednn.works()


def failing(*_arguments, **_keywords):
    raise NotImplementedError("no such operator on this machine")


def wrong_operator(x, weight, bias):
    return x @ weight.T if bias is None else x @ weight.T + bias + 0.01


@pytest.mark.parametrize("operator", [failing, wrong_operator])
def test_an_onednn_operator_with_wrong_results_is_not_used(monkeypatch, operator):
    monkeypatch.setattr(onednn, "linear", operator)
    assert not onednn.works.__wrapped__()


def test_a_missing_onednn_operator_is_not_used(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert not onednn.works.__wrapped__()
