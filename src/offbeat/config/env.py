"""The table [env]: settings of the environment, and their defaults in the two evaluation protocols of Atari.

A setting that is not given has the default that the env's id implies. Settings that the env does not support are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from offbeat.config.curriculum import parameters
from offbeat.core.argument_notation import value_for_reader
from offbeat.core.checks import Example
from offbeat.core.errors import ConfigError
from offbeat.core.field_texts import syntax_of
from offbeat.core.fields import SMALLEST_IMAGE, Bound, Count, Natural, Positive, Share, in_short
from offbeat.core.frozen_table import EMPTY, PlainTable
from offbeat.core.info_names import REDUCTIONS, key_of, score_of

KWARGS = "env.kwargs."
"""Prefix of a key that sets one of `kwargs`."""
EVAL_KWARGS = "env.eval_kwargs."
"""Prefix of a key that sets one of `eval_kwargs`."""
ARGUMENT_TABLES = {"kwargs": KWARGS, "eval_kwargs": EVAL_KWARGS}
"""Table of arguments of the env's constructor -> prefix of a key that sets one of them."""
ARGUMENT_PREFIXES = tuple(ARGUMENT_TABLES.values())
KWARGS_SYNTAX = "--env-kwargs NAME=VALUE"
"""How one of `kwargs` is typed."""

Side = Annotated[int, Bound(SMALLEST_IMAGE, 4096)]
"""Height or width of images in pixels."""


@dataclass(frozen=True, repr=False)
class EnvConfig:
    """Settings of the env, and of the rewards that are learned from. Reported returns are always those of the env."""

    frame_skip: Annotated[Count | None, Example("4")] = None
    """Steps of the env, or frames of an Atari game, per env step. The action is repeated in each and the rewards are
    summed; the other values are those of the last one. An episode that ends in between ends the env step. None: as the
    env's id implies. Only for envs with one agent and without action masks."""
    repeat_action_probability: Annotated[Share | None, Example("0.25")] = None
    """Sticky actions: probability that a frame repeats the previous action. None: as the env's id implies. Only for
    Atari."""
    noop_max: Annotated[Natural | None, Example("30")] = None
    """Each game starts with a random number of no-op frames, at most this many. None: as the env's id implies. Only for
    Atari."""
    fire_reset: bool | None = None
    """Press FIRE at the start of an episode, in games that have this action. None: as the env's id implies. Only for
    Atari."""
    episodic_life: bool | None = None
    """The loss of a life ends the episode for learning, but the game continues. Returns are still those of whole games.
    None: as the env's id implies. Only for Atari."""
    max_frames: Annotated[Count | None, Example("108000")] = None
    """Frames after which a game is truncated. None: as the env's id implies. Only for Atari."""
    max_episode_steps: Annotated[Count | None, Example("1000")] = None
    """Env steps after which an episode is truncated; with `episodic_life`, a game. A shorter limit of the env still
    applies; it counts the steps that `frame_skip` takes. None: the limit of the env."""
    frame_stack: Annotated[Annotated[int, Bound(1, 255)] | None, Example("4")] = None
    """Number of successive images in an observation, the last ones of the episode. None: 4 for ale-py's Atari games,
    else 1."""
    image_size: Annotated[tuple[Side, ...], Example("84,84")] = ()
    """Height and width in pixels of the images that policies get, such as 84,84; one number is both. A pixel is the
    mean of the area that it covers in the env's image. Empty: the size of the env's images, and 84,84 for ale-py's
    Atari games."""
    grayscale: bool = False
    """Give policies grey images in place of images of three colours."""
    ignore_observations: Annotated[tuple[str, ...], Example("text,goal")] = ()
    """Keys of the env's observations that policies do not get, such as text; a/b is the key b of the Dict a."""
    previous_action: bool = False
    """Give policies the previous action as an input, as the env got it. There is none in the first row of an episode,
    and after the random steps of `decorrelate`."""
    previous_reward: bool = False
    """Give policies the previous reward as an input, as the env gave it. It is 0 in the first row of an episode, and
    after the random steps of `decorrelate`."""
    clip_rewards: bool | None = None
    """Clip the rewards that are learned from to [-1, 1]. None: yes for ale-py's Atari games, else no."""
    reward_scale: Positive = 1.0
    """Factor of the rewards that are learned from, after clipping."""
    info_metrics: Annotated[tuple[str, ...], Example("success,distance")] = ()
    """Numbers in the infos of steps that are logged as metrics `info/<name>_mean`, the mean over all steps that have
    one: of true and false, the share of steps. `<name>:last` is the last number of each episode, logged as
    `info/<name>_last`: of true and false, the share of episodes; likewise `:max` and `:sum`. a/b is the key b of a
    dict a."""
    curriculum: Annotated[tuple[str, ...], Example('"size 0:2 0.5:8"')] = ()
    """Parameters of the env that change with the training progress: "NAME PROGRESS:VALUE PROGRESS:VALUE ..."."""

    wrappers: Annotated[tuple[str, ...], Example("gymnasium.wrappers:FlattenObservation,my_module:MyWrapper")] = ()
    """Wrappers of the env, the innermost first: my_module:MyWrapper, or those of a package, such as
    gymnasium.wrappers:FlattenObservation. Each is called with the env alone. Only for single envs of Gymnasium."""

    kwargs: PlainTable = EMPTY
    """Arguments of the env's constructor: the table [env.kwargs]. On the command line, --env-kwargs NAME=VALUE or
    --set env.kwargs.NAME=VALUE, where the value is read as in TOML, or else is text."""
    eval_kwargs: PlainTable = EMPTY
    """Arguments of the env's constructor that replace those of `kwargs` in evaluations, also in `offbeat eval` and
    `offbeat watch`: the table [env.eval_kwargs]. The spaces must be the same. On the command line, --set
    env.eval_kwargs.NAME=VALUE."""

    def __post_init__(self) -> None:
        self._check_arguments()
        _check_info_metrics(self.info_metrics)
        for wrapper in self.wrappers:
            if not all(wrapper.partition(":")):
                raise ConfigError(
                    f"wrappers has {in_short(wrapper)}, but the path of a wrapper is expected: pass "
                    "--wrapper my_module:MyWrapper"
                )
        if len(self.image_size) > 2:
            raise ConfigError(
                f"image_size is {list(self.image_size)}, but height and width are expected: pass --set image_size=84,84"
            )
        if not all(map(_is_key, self.ignore_observations)):
            raise ConfigError(
                f"ignore_observations is {list(self.ignore_observations)}, but keys of the env's observations are "
                "expected: pass --set ignore_observations=mission,time"
            )

    def _check_arguments(self) -> None:
        """Refuse names that no argument can have, arguments without effect, and a curriculum that cannot be read."""
        for table in ARGUMENT_TABLES:
            for name in getattr(self, table):
                if not name.isidentifier():
                    raise ConfigError(
                        f"{table} has {in_short(name)}, which cannot be the name of an argument of the env's "
                        f"constructor: pass {syntax_of(table, PlainTable)}"
                    )
        for parameter in parameters(self.curriculum):
            if parameter.name in self.eval_kwargs:
                raise ConfigError(
                    f"eval_kwargs has {parameter.name}, which has no effect: in evaluations the curriculum sets it to "
                    "its last value. Leave it out of one of them"
                )

    def __repr__(self) -> str:
        """Return the settings that differ from their defaults."""
        given = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        return f"EnvConfig({', '.join(f'{name}={value!r}' for name, value in given)})"

    def completed(self, env_id: str) -> EnvConfig:
        """Return a copy in which the settings that are not given have the defaults that the env's id implies.

        Raises:
            ConfigError: a given setting is not supported by the env.
        """
        implied = protocol_of(env_id)
        self._refuse_unsupported(env_id, implied)
        missing = {f.name: getattr(implied, f.name) for f in fields(self) if getattr(self, f.name) is None}
        return replace(self, **missing)

    def _refuse_unsupported(self, env_id: str, implied: EnvConfig) -> None:
        if self.wrappers and (implied is not ANY or adapter_prefix(env_id)):
            raise cannot_be_wrapped(self.wrappers, env_id)
        if implied is not ANY or adapter_prefix(env_id):  # the adapter itself refuses unsupported settings
            return
        refuse_atari_settings(self, env_id)

    @property
    def in_evaluations(self) -> EnvConfig:
        """The settings of the envs of evaluations."""
        return replace(self, kwargs=PlainTable({**self.kwargs, **self.eval_kwargs}), eval_kwargs=EMPTY)

    @property
    def action_repeats(self) -> int:
        """Steps of the env, or frames of a game, per env step: `frame_skip`, or 1 if it is not given."""
        return self.frame_skip or 1

    @property
    def image_sides(self) -> tuple[int, int] | None:
        """Height and width of the images that policies get; None: those of the env."""
        return (self.image_size[0], self.image_size[-1]) if self.image_size else None

    def learning_rewards(self, rewards: Any) -> Any:
        """Return the rewards that are learned from: the env's rewards, clipped and scaled; of the same shape."""
        clipped = rewards.clip(-1, 1) if self.clip_rewards else rewards
        return clipped if self.reward_scale == 1 else clipped * self.reward_scale

    @property
    def evaluation_limit(self) -> int:
        """Default for the env steps after which an evaluation in training cuts an episode; for Atari, five minutes."""
        if self.max_frames is None:
            return MAX_EPISODE_STEPS
        return max(1, EVALUATION_FRAMES // (self.frame_skip or USUAL_FRAME_SKIP))


def _check_info_metrics(names: Sequence[str]) -> None:
    """Refuse names that are no keys or have the same score, and reductions that do not exist."""
    for name in names:
        key, colon, reduction = name.partition(":")
        if colon and reduction not in REDUCTIONS:
            raise ConfigError(
                f"info_metrics has {in_short(name)}, but only {', '.join(REDUCTIONS)} can be after the colon: pass "
                f"{key}:last for the last number of each episode, or {key} for the mean over steps"
            )
    if len(set(map(score_of, names))) < len(names) or not all(_is_key(key_of(name)) for name in names):
        raise ConfigError(
            f"info_metrics is {list(names)}, but keys of the env's infos are expected, each once: pass "
            "--set info_metrics=success,distance"
        )


def _is_key(name: str) -> bool:
    """Whether a name can be the key of a number in an info, or of a part of an observation."""
    return all(name.split("/"))


ADAPTERS = {
    "": "offbeat.envs.adapters.gymnasium.adapter",
    "envpool:": "offbeat.envs.adapters.envpool.adapter",
    "pettingzoo:": "offbeat.envs.adapters.pettingzoo.adapter",
    "openspiel:": "offbeat.envs.adapters.openspiel",
}
"""Prefix of an env's id -> module with the adapter of that library (see `offbeat.envs.contract.Adapter`, and
`offbeat.envs.worlds.contract.WorldAdapter` for envs with several agents)."""
MAX_EPISODE_STEPS = 27_000
"""Default for the env steps after which an evaluation cuts an episode: the limit of Atari games. Without a limit, an
episode that never ends would be evaluated forever."""
MAX_STEPS = 10_000_000
"""Default for the env steps, over all envs, after which an evaluation ends."""
MATCH_GAMES = 100
"""Default for the games of each pair of players in a match."""
EVALUATION_FRAMES = 18_000
"""Limit of the frames of a game in an evaluation during training: five minutes, as in Mnih et al. 2015. Without it, a
policy that does nothing would play until `max_frames`."""
USUAL_FRAME_SKIP = 4
"""Frame skip of Atari games if none is given."""
ATARI_ONLY = ("repeat_action_probability", "noop_max", "fire_reset", "episodic_life", "max_frames")
"""Settings that only games of the Arcade Learning Environment support."""

UNSET = EnvConfig()
"""The table in which no setting is given."""
ANY = EnvConfig(frame_stack=1, clip_rewards=False)
"""The defaults of envs that belong to no family."""
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
"""The protocol of Mnih et al. 2015 and the wrappers of OpenAI Baselines: ids such as PongNoFrameskip-v4."""
STICKY = replace(CLASSIC, repeat_action_probability=0.25, noop_max=0, fire_reset=False, episodic_life=False)
"""The protocol of Machado et al. 2018, as Gymnasium registers it: ids such as ALE/Pong-v5."""
FAMILIES = {
    "atari": (r"(\w+:)?\w+NoFrameskip-v4", CLASSIC),
    "atari-sticky": (r"(\w+:)?ALE/\w+-v5", STICKY),
}
"""Families of envs: name -> (regular expression of the ids, their defaults)."""


def adapter_prefix(env_id: str) -> str:
    """Return the prefix of an env's id that selects the adapter; '' for a Gymnasium id."""
    return next((prefix for prefix in ADAPTERS if prefix and env_id.startswith(prefix)), "")


def family_of(env_id: str) -> str | None:
    """Return the name of the family that an env belongs to, or None."""
    return next((name for name, (ids, _) in FAMILIES.items() if re.fullmatch(ids, env_id)), None)


def protocol_of(env_id: str) -> EnvConfig:
    """Return the settings that an env's id implies."""
    family = family_of(env_id)
    return FAMILIES[family][1] if family else ANY


def cannot_be_wrapped(wrappers: Sequence[str], env_id: str) -> ConfigError:
    """Return the error for wrappers of an env that is no single env of Gymnasium."""
    return ConfigError(
        f"wrappers is {', '.join(wrappers)}, which is not supported by {env_id}: only single envs of Gymnasium have "
        "wrappers. Leave it out, or pass my_module:my_function, a function that makes the wrapped env"
    )


def refuse_for_world(settings: EnvConfig, env_id: str) -> None:
    """Raise ConfigError for settings that an env with several agents does not support."""
    if settings.wrappers:
        raise cannot_be_wrapped(settings.wrappers, env_id)
    if settings.frame_skip is not None:
        raise ConfigError(
            f"frame_skip is {settings.frame_skip}, which is not supported by {env_id}: only envs with one agent repeat "
            "actions. Leave it out"
        )
    refuse_atari_settings(settings, env_id)


def refuse_atari_settings(settings: EnvConfig, env_id: str) -> None:
    """Raise ConfigError for settings that only Atari games support, for another env."""
    for key in ATARI_ONLY:
        if (given := getattr(settings, key)) is not None:
            raise ConfigError(
                f"{key} is {value_for_reader(given)}, which is not supported by {env_id}: only Atari games have it, "
                "such as PongNoFrameskip-v4 or ALE/Pong-v5. Leave it out"
            )
