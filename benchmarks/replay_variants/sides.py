"""The sides of the comparison: plain SAC, its variants in offbeat, and those of SBX."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.works import HALF_CHEETAH_SAC, NOT_SETTINGS, Settings

ENV = HALF_CHEETAH_SAC["env"]
STEPS = 50_000
"""Env steps of a run at most."""
CPU_S = 600.0
"""CPU seconds after which a run ends at the next evaluation."""
EVAL_EVERY, EVAL_EPISODES = 10_000, 10
SCORES = (1_000, 3_000, 5_000)
"""Mean returns of an evaluation to which env steps and CPU seconds are counted. At the last one a run ends."""
COMMON: Settings = {
    key: None if value == "none" else value for key, value in HALF_CHEETAH_SAC.items() if key not in NOT_SETTINGS
}
"""The settings that all sides have, unless a side says otherwise."""
OFFBEAT, SBX = "offbeat", "sbx"


@dataclass(frozen=True)
class Side:
    """An algorithm with its settings."""

    name: str
    library: str
    changes: Settings = field(default_factory=dict)
    """What differs from `COMMON`."""
    algorithm: str = "sac"
    """The algorithm's name in offbeat, or its class in SBX."""
    without: tuple[str, ...] = ()
    """Keys of `COMMON` that the algorithm does not have."""


CROSSQ: Settings = {"learning_rate": 1e-3, "policy_delay": 3}
SIDES = (
    Side("SAC", OFFBEAT),
    Side("SBX CrossQ", SBX, {"learning_rate": 1e-3}, "CrossQ"),
    Side("SBX SAC", SBX, {}, "SAC"),
    Side("CrossQ", OFFBEAT, CROSSQ, "crossq", without=("ema_rate",)),
    Side("CrossQ, adam_beta1=0.9", OFFBEAT, {**CROSSQ, "adam_beta1": 0.9}, "crossq", without=("ema_rate",)),
    Side("CrossQ, policy_delay=1", OFFBEAT, {**CROSSQ, "policy_delay": 1}, "crossq", without=("ema_rate",)),
    Side("layer_norm", OFFBEAT, {"layer_norm": True}),
    Side("n_step=3", OFFBEAT, {"n_step": 3}),
    Side("layer_norm, n_step=3", OFFBEAT, {"layer_norm": True, "n_step": 3}),
    Side("layer_norm, utd_ratio=2", OFFBEAT, {"layer_norm": True, "utd_ratio": 2}),
    Side("layer_norm, learning_rate=1e-3", OFFBEAT, {"layer_norm": True, "learning_rate": 1e-3}),
    Side("learning_rate=1e-3", OFFBEAT, {"learning_rate": 1e-3}),
    Side("prioritized", OFFBEAT, {"prioritized": True}),
)
"""In the order in which they run. CrossQ has its own learning rate, but critics of the sizes of all other sides. Two
sides of offbeat have its learning rate."""
