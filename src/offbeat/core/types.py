"""The basic types of offbeat. Read this and ``pace.py`` first.

    envs -> actor -> unrolls -> learner -> weights -> actor

An **actor** steps **envs** with a **policy** and writes the rows into an **unroll**; the **learner** reads
batches of unrolls, computes the losses of the **algorithm**, and publishes new **weights**. The **pace**
(``pace.py``) decides when acting and learning may start.

Shapes: T is the unroll's length in env steps, N the columns (envs) of one actor, S the unrolls in a batch,
and B = S * N the columns of a batch.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.checks import OneOf, Unlimited
from offbeat.core.fields import SMALLEST_IMAGE, Bound, Name, Size
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key

Array = NDArray[Any]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
Tree = dict[str, Array]
"""Named arrays. A Box observation is one array, 'observation'. A Dict has one array per key, 'observation/<key>', a
Tuple 'observation/0' and so on; nested spaces have 'observation/<key>/<key>'. So it is a flat dict, whatever the
nesting of the space."""

OBSERVED_MASK, INFO_MASK = "observation/action_mask", "action_mask"
"""Names of the leaf with the action mask: a key of a Dict observation, or a key of the env's infos."""
PREVIOUS_ACTION, PREVIOUS_REWARD = "previous_action", "previous_reward"
"""Names of the leaves that no env gives: see `previous_inputs.py`. Parts of a mixed action have names as
'previous_action/<key>'."""


def is_leaf(name: str) -> bool:
    """Whether an array of a row is a leaf of its observation."""
    return name.partition("/")[0] in ("observation", INFO_MASK, PREVIOUS_ACTION, PREVIOUS_REWARD)


def arrays_of_policy(policy: str, arrays: Tree) -> Tree:
    """Return the arrays of one policy, without the prefix that `policy_key` adds."""
    prefix = policy_key(policy)
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


NO_DECISION = "no_decision"
"""Key in an env's info for rows without a decision, and the field that marks these rows."""
LAST_NO_DECISION = "last_no_decision"
"""Field of an unroll: whether the row after its last one, whose observation the unroll has, is without a decision."""
INITIAL_STATE = "initial_state"
"""Field of a ticket: the state of the policy's core before the first row; in a minibatch, before its first rows."""


# --- envs ---------------------------------------------------------------------------------------------------

_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
DTypeName = Annotated[str, OneOf(_DTYPES)]
ChoiceCount = Annotated[int, Bound(1, 2**31 - 1)]
"""Number of choices of one component."""
First = Annotated[int, Bound(-(2**63), 2**63 - 1)]
"""The env's number of the first choice: `start` of a Discrete space."""
Limit = Annotated[float, Unlimited]
"""Bound of a Box; infinite if there is no bound."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation, without the column axis."""

    name: Name
    shape: tuple[Size, ...]
    dtype: DTypeName
    """Name of a NumPy dtype. Floating-point observations are stored in float32."""
    choices: tuple[ChoiceCount, ...] = ()
    """For a discrete leaf: the number of choices of each element. They count from 0, and networks get them one-hot."""
    start: tuple[First, ...] = ()
    """The env's number of the first choice of each element; empty if all are 0."""
    stack: Annotated[int, Bound(1, 255)] = 1
    """Number of successive frames that a policy gets, [stack, *shape]. Memory stores each frame once."""
    env_shape: tuple[Size, ...] = ()
    """Shape of the env's images, if policies get them smaller or grey (see `images.py`); empty: that of the leaf."""
    env_dtype: Annotated[str, OneOf(("", *_DTYPES))] = field(default="", compare=False)
    """For a discrete leaf: dtype of the env's own numbers, which a user's encoder gets. '': it gets them as stored."""

    @property
    def as_given(self) -> Leaf:
        """The leaf as the env returns it."""
        return replace(self, shape=self.env_shape, env_shape=()) if self.env_shape else self

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def is_mask(self) -> bool:
        """Whether it is the action mask, with the choices of all components concatenated. Networks do not get it."""
        return self.name in (OBSERVED_MASK, INFO_MASK)

    @property
    def is_previous(self) -> bool:
        """Whether it is the previous reward, or a part of the previous action. Encoders do not get it."""
        return self.name.partition("/")[0] in (PREVIOUS_ACTION, PREVIOUS_REWARD)

    @property
    def is_image(self) -> bool:
        """Whether it is an image of bytes that is large enough for an encoder."""
        return self.dtype == "uint8" and not self.choices and min(self.sides) >= SMALLEST_IMAGE

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of an image; 0 if it is not an image."""
        if len(self.shape) not in (2, 3):
            return 0, 0
        first = 1 if len(self.shape) == 3 and not self.channels_last else 0
        return self.shape[first], self.shape[first + 1]

    @property
    def channels_last(self) -> bool:
        """Whether an image is [H, W, C]: the last axis is smaller than the first."""
        return len(self.shape) == 3 and self.shape[2] < self.shape[0]

    @property
    def inputs(self) -> int:
        """Number of inputs that it adds to an MLP."""
        if self.is_mask:
            return 0
        return self.stack * (sum(self.choices) if self.choices else self.size)

    @property
    def stacked_shape(self) -> tuple[int, ...]:
        """The shape that a policy gets."""
        return (self.stack, *self.shape) if self.stack > 1 else self.shape


def mask_of(leaves: Sequence[Leaf]) -> str | None:
    """Return the name of the action mask's leaf; None if there is no mask."""
    return next((leaf.name for leaf in leaves if leaf.is_mask), None)


@dataclass(frozen=True)
class ActionSpec:
    """The actions of an env, and how they are recorded, without the column axis.

    An action of several parts (a Dict or Tuple, nested or not) is 'mixed'. It is recorded as one row of float32
    numbers: first the choices of all parts, then the values of all boxes, each in the order of the parts. `nvec`, `low`
    and `high` are concatenated in the same order. Choices are small integers, which float32 represents exactly.
    """

    kind: Literal["discrete", "multidiscrete", "box", "mixed"]
    """multidiscrete: a MultiDiscrete space, or a MultiBinary space as components with 2 choices each."""
    shape: tuple[Size, ...]
    """Shape of a recorded action: () for discrete, (components + box values,) for mixed, else that of the space."""
    nvec: tuple[ChoiceCount, ...] = ()
    """Number of choices of each component, flattened (discrete: one component)."""
    start: tuple[First, ...] = ()
    """The env's number of each component's first choice; empty if all are 0. Recorded choices count from 0."""
    low: tuple[Limit, ...] = ()
    high: tuple[Limit, ...] = ()
    """Bounds of a Box, flattened; infinite if there is no bound."""
    parts: tuple[ActionSpec, ...] = ()
    """The parts of a mixed action; a part may be mixed itself."""
    keys: tuple[Name, ...] = ()
    """The keys of the parts of a Dict; empty for a Tuple."""
    env_dtype: Annotated[str, OneOf(("", *_DTYPES))] = field(default="", compare=False)
    """Dtype of the env's actions, if it is not the recorded one."""

    @property
    def space(self) -> str:
        """The env's action space, as messages name it."""
        names = {"discrete": "Discrete", "multidiscrete": "MultiDiscrete or MultiBinary", "box": "Box"}
        return names.get(self.kind, "Dict or Tuple")

    @property
    def is_bounded(self) -> bool:
        """Whether all numbers, if there are any, have finite bounds."""
        return all(map(isfinite, (*self.low, *self.high)))

    @property
    def dtype(self) -> str:
        """Dtype of recorded actions."""
        return "float32" if self.kind in ("box", "mixed") else "int64"

    @property
    def has_float64(self) -> bool:
        """Whether the env gets numbers of a Box as float64."""
        return self.env_dtype == "float64" or any(part.has_float64 for part in self.parts)

    @property
    def size(self) -> int:
        """Number of elements of one action."""
        return prod(self.shape)


def numbers_of_parts(parts: Sequence[ActionSpec], name: str) -> tuple[Any, ...]:
    """Return the numbers of all parts of a mixed action, in their order; `name`: nvec, low or high."""
    return tuple(number for part in parts for number in getattr(part, name))


def in_brief(value: object) -> str:
    """Return a short text for messages: of an observation, of an action or of another value of a policy's spec."""
    if isinstance(value, ActionSpec):
        return f"{value.kind} {list(value.nvec or value.shape)}"
    if isinstance(value, tuple) and value and isinstance(value[0], Leaf):
        return ", ".join(f"{leaf.name} {list(leaf.choices or leaf.shape)} {leaf.dtype}" for leaf in value)
    return str(value)


@dataclass(frozen=True)
class EnvSpec:
    """Spaces and counts of one actor's envs."""

    id: str
    observation: tuple[Leaf, ...]
    action: ActionSpec
    columns: int
    """Envs per actor, N."""
    frame_skip: int = 1
    """Simulated frames per env step, if the env declares it, else 1."""
    info: tuple[str, ...] = ()
    """The K names of `info_metrics`: see `core/info_names.py`."""
    no_decision: bool = False
    """Whether there may be rows without a decision. If not, all invalid rows are reset rows."""
    time_limit: int | None = None
    """Maximum length of an episode in env steps; None if it is not known."""
    agents: tuple[str, ...] = ()
    """In a world with several agents: the names of the agents of each world that are columns of this policy."""
    policy: str = ""
    """In a world with several agents: the name of this policy."""
    cut_at: int | None = None
    """Env steps after which an evaluation truncates an episode, which would continue in training; None: never."""
    normalizers: tuple[str, ...] = ()
    """What wrappers of the env normalise with running statistics of their own: observations, rewards."""
    flags: str = ""
    """Flags of the command line with which offbeat makes the same env, for messages: its arguments, wrappers and
    settings."""

    @property
    def check_command(self) -> str:
        """The command that checks the same env, for messages."""
        return self._command("offbeat check")

    def train_command(self, algorithm: str) -> str:
        """Return the command that trains another algorithm on the same env, for messages.

        FILE.toml stands for a file with the tables of several policies.
        """
        several = self.policy not in ("", DEFAULT_POLICY)
        return self._command(f"offbeat train {algorithm}", "--policies FILE.toml" if several else "")

    def _command(self, start: str, *flags: str) -> str:
        return " ".join(filter(None, (start, shlex.quote(self.id), self.flags, *flags)))

    @property
    def mask(self) -> str | None:
        """Leaf with the action mask, [N, sum(nvec)] bool; None if there is no mask."""
        return mask_of(self.observation)


# --- unrolls ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """One array of an unroll."""

    name: str
    shape: tuple[int, ...]
    """Without the time and column axes."""
    dtype: str
    per: Literal["step", "unroll"] = "step"
    """'step': [T + 1, N, *shape]; 'unroll': [N, *shape] (the initial state of a recurrent core)."""
    history: int = 0
    """Number of history rows: rows before an unroll, which the frame stacks of its first rows reach into."""


HISTORY = "history/"
"""Prefix of the names of the history rows in an actor's slot."""
ENV_STEP = "env_step"
"""Field of runs with several agents: True in one column of each world and row in which the world was stepped."""
NOT_ENDED = -1
"""`episode_length` in rows in which no episode ends. Lengths count decisions, so an episode may have the length 0."""
FRAME_AGE = "frame_age"
"""Field of frame-stacking runs: the number of earlier rows of the same episode that a row's frame stack may use."""


def env_fields(spec: EnvSpec) -> list[Field]:
    """Return the fields of a row that do not depend on the algorithm: those of the env and of the actor."""
    stacked = any(leaf.stack > 1 for leaf in spec.observation)
    return [
        *(Field(leaf.name, leaf.shape, leaf.dtype, history=leaf.stack - 1) for leaf in spec.observation),
        *([Field(FRAME_AGE, (), "uint8")] if stacked else []),
        Field("action", spec.action.shape, spec.action.dtype),
        Field("reward", (), "float32"),
        Field("terminated", (), "bool"),
        Field("truncated", (), "bool"),
        Field("valid", (), "bool"),
        *([Field(NO_DECISION, (), "bool")] if spec.no_decision else []),
        Field("episode_return", (), "float64"),
        Field("episode_length", (), "int32"),
        *([Field(ENV_STEP, (), "bool")] if spec.agents else []),
        *([Field("info", (len(spec.info),), "float64")] if spec.info else []),
        Field("behavior_version", (), "int64", per="unroll"),
    ]


class Acted(NamedTuple):
    """The actions of a policy for a batch of observations."""

    action: Array
    """[N, *shape], as recorded: `Policy.to_env` has not been applied."""
    recorded: Tree
    """Other fields that the algorithm records, such as 'behavior_log_prob' [N]."""


class Policy(Protocol):
    """Chooses actions. Evaluation and export need only a Policy, not an Algorithm."""

    state_size: int
    """Size of the recurrent state of each column; 0 without a recurrent core."""

    def load(self, vector: F32) -> None:
        """Load the published weights, normalizer included."""

    def act(self, observation: Tree, random: np.random.Generator, state: F32 | None = None) -> Acted:
        """Sample an action for each column; with a core, `state` [N, state_size] is updated in place."""

    def greedy(self, observation: Tree, state: F32 | None = None) -> Array:
        """Return the most likely action (Gaussian: the mean) for each column; `state` is updated in place."""

    def to_env(self, action: Array) -> Array:
        """Convert recorded actions to actions of the env (bounds, squashing, shape)."""
