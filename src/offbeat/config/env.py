"""What belongs to the world and not to the algorithm: the table [env], and what Atari's two protocols say.

Settings are given by name, or follow from the env's id; those that the env does not support are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from offbeat.config.curriculum import parameters
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, Natural, Positive, Share


@dataclass(frozen=True)
class EnvConfig:
    """How the env is played, and what is learned from of what it pays. Returns are always reported as the env pays."""

    frame_skip: Count | None = None
    """Frames of a decision, through which its action is held; none: as the env has it. Only for Atari."""
    repeat_action_probability: Share | None = None
    """Sticky actions: how likely a frame repeats the last action instead; none: as the env's id says. Only for
    Atari."""
    noop_max: Natural | None = None
    """Games begin after a random number of frames without an action, up to this; none: as the env's id says. Only for
    Atari."""
    fire_reset: bool | None = None
    """Press FIRE where an episode begins, in games that have it; none: as the env's id says. Only for Atari."""
    episodic_life: bool | None = None
    """A lost life ends the episode that is learned from, and the game goes on; returns are still those of whole games;
    none: as the env's id says. Only for Atari."""
    max_frames: Count | None = None
    """Frames after which a game is truncated; none: as the env's id says. Only for Atari."""
    max_episode_steps: Count | None = None
    """Env steps after which an episode is truncated, a game where a lost life ends an episode; a shorter limit of the
    env's own stays. None: as the env has it."""
    frame_stack: Annotated[int, Bound(1, 255)] | None = None
    """Successive images that a policy sees at once, the last ones of its episode; none: 4 for ale-py's
    Atari, else 1."""
    clip_rewards: bool | None = None
    """Learn from rewards cut off at -1 and 1; none: yes for ale-py's Atari, else no."""
    reward_scale: Positive = 1.0
    """Learn from rewards times this, after they were clipped."""
    info_metrics: tuple[str, ...] = ()
    """Numbers in the infos of steps that become metrics, `info/<name>_mean`; a/b is the key b of a dict a."""
    curriculum: tuple[str, ...] = ()
    """Parameters of the env that follow the progress of training, each as "NAME PROGRESS:VALUE PROGRESS:VALUE ..."."""

    def __post_init__(self) -> None:
        if len(set(self.info_metrics)) < len(self.info_metrics) or not all(map(_is_key, self.info_metrics)):
            raise ConfigError(
                f"info_metrics is {list(self.info_metrics)}, but keys of the env's infos are expected, each once: pass "
                "--set info_metrics=success,distance"
            )
        parameters(self.curriculum)  # refuses what cannot be read

    def completed(self, env_id: str) -> EnvConfig:
        """Return all settings of an env, those that its id implies included.

        Raises:
            ConfigError: a setting is given that is not supported by the env.
        """
        implied = protocol_of(env_id)
        self._require_meaning(env_id, implied)
        missing = {f.name: getattr(implied, f.name) for f in fields(self) if getattr(self, f.name) is None}
        return replace(self, **missing)

    def _require_meaning(self, env_id: str, implied: EnvConfig) -> None:
        if implied is not ANY or adapter_prefix(env_id):  # the adapter itself refuses what it does not support
            return
        for key in ATARI_ONLY:
            if (given := getattr(self, key)) is not None:
                raise ConfigError(unsupported(key, given, env_id))

    def learned(self, rewards: Any) -> Any:
        """Return what is learned from of an array of rewards."""
        clipped = rewards.clip(-1, 1) if self.clip_rewards else rewards
        return clipped if self.reward_scale == 1 else clipped * self.reward_scale

    def evaluation_limit(self, max_episode_steps: int) -> int:
        """Return the env steps after which an evaluation during training cuts an episode: of a game, five minutes.

        Args:
            max_episode_steps: the most that are asked for.
        """
        if self.max_frames is None:
            return max_episode_steps
        return min(max_episode_steps, max(1, EVALUATION_FRAMES // (self.frame_skip or USUAL_FRAME_SKIP)))


def _is_key(name: str) -> bool:
    """Whether it can be the key of a number in an info."""
    return all(name.split("/"))


ADAPTERS = {
    "": "offbeat.envs.adapters.gymnasium.adapter",
    "envpool:": "offbeat.envs.adapters.envpool",
}
"""Prefix of an env's id -> module with the adapter of that library (see `offbeat.envs.contract.Adapter`)."""
EVALUATION_STEPS = 27_000
"""Env steps after which an evaluation cuts an episode, if nothing else is asked for: the limit of Atari's games. A
policy whose episode never ends would be evaluated for ever."""
EVALUATION_FRAMES = 18_000
"""Frames of a game that an evaluation during training plays at most: five minutes, as in Mnih et al. 2015. A policy
that does not know how to go on would else stand still until `max_frames`."""
USUAL_FRAME_SKIP = 4
"""Of Atari's games, where nothing else is said."""
ATARI_ONLY = ("frame_skip", "repeat_action_probability", "noop_max", "fire_reset", "episodic_life", "max_frames")
"""Settings that mean something only to games of the Arcade Learning Environment."""

UNSET = EnvConfig()
"""Nothing is given: what the env's id implies holds."""
ANY = EnvConfig(frame_stack=1, clip_rewards=False)
"""What is implied where nothing more is known."""
CLASSIC = EnvConfig(
    frame_skip=4,
    repeat_action_probability=0.0,
    noop_max=30,
    fire_reset=True,
    episodic_life=True,
    max_frames=108_000,
    frame_stack=4,
    clip_rewards=True,
)
"""Of Mnih et al. 2015 and the wrappers of OpenAI Baselines: ids such as PongNoFrameskip-v4."""
STICKY = EnvConfig(
    frame_skip=4,
    repeat_action_probability=0.25,
    noop_max=0,
    fire_reset=False,
    episodic_life=False,
    max_frames=108_000,
    frame_stack=4,
    clip_rewards=True,
)
"""Of Machado et al. 2018, as Gymnasium registers it: ids such as ALE/Pong-v5."""
FAMILIES = {
    "atari": (r"(\w+:)?\w+NoFrameskip-v4", CLASSIC),
    "atari-sticky": (r"(\w+:)?ALE/\w+-v5", STICKY),
}
"""Families of envs: name -> the ids that belong to it, and what they imply."""


def adapter_prefix(env_id: str) -> str:
    """Return the prefix of an env's id that names its adapter; '' for an id of Gymnasium."""
    return next((prefix for prefix in ADAPTERS if prefix and env_id.startswith(prefix)), "")


def family_of(env_id: str) -> str | None:
    """Return the name of the family that an env belongs to; None for none."""
    return next((name for name, (ids, _) in FAMILIES.items() if re.fullmatch(ids, env_id)), None)


def protocol_of(env_id: str) -> EnvConfig:
    """Return the settings that an env's id implies."""
    family = family_of(env_id)
    return FAMILIES[family][1] if family else ANY


def unsupported(key: str, given: object, env_id: str) -> str:
    """Say that a setting was given which is not supported by the env."""
    value = str(given).lower() if isinstance(given, bool) else given
    return (
        f"{key} is {value}, which is not supported by {env_id}: only Atari games have it, such as "
        "PongNoFrameskip-v4 or ALE/Pong-v5. Leave it out"
    )
