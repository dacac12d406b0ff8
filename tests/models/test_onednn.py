from __future__ import annotations

import pytest
import torch

from offbeat.models import onednn


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_where_torch_has_onednn_it_is_found_to_work():
    assert onednn.works()


def failing(*_arguments, **_keywords):
    raise NotImplementedError("no such operator on this machine")


def of_another_meaning(x, weight, bias, *, relu=False):
    result = x @ weight.T if bias is None else x @ weight.T + bias
    return result + 0.01 if relu else result


@pytest.mark.parametrize("operator", [failing, of_another_meaning])
def test_an_operator_that_does_not_do_what_it_should_is_not_used(monkeypatch, operator):
    monkeypatch.setattr(onednn, "linear", operator)
    assert not onednn.works.__wrapped__()


def test_an_operator_that_is_not_there_is_not_used(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert not onednn.works.__wrapped__()
