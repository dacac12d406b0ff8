from __future__ import annotations

import gc
from contextlib import suppress

import pytest

from offbeat.core.process.garbage import pause_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_paused_and_is_afterwards_as_it_was(enabled):
    switch = {True: gc.enable, False: gc.disable}
    switch[enabled]()
    try:
        with suppress(ImportError), pause_collection():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("freeze", [True, False])
def test_what_a_block_creates_is_frozen_only_if_that_is_asked_for(freeze):
    before = gc.get_freeze_count()
    with pause_collection(freeze=freeze):
        created: list[list[int]] = [[] for _ in range(1000)]
    assert (gc.get_freeze_count() >= before + len(created)) == freeze
