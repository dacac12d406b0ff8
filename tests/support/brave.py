"""Registers an algorithm with a setting of its own as `brave`. A test that imports it removes the name again."""

from __future__ import annotations

from tests.support.own_settings import OwnPPO

from offbeat.config.registry import register_algorithm

register_algorithm("brave", OwnPPO)
