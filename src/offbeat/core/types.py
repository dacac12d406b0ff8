"""The nouns of offbeat on one page. Read this and ``pace.py`` first.

    envs -> actor -> unrolls -> learner -> weights -> actor

An **actor** steps **envs** with a **policy** and writes what it saw into an **unroll**; the **learner** reads
batches of unrolls, lets the **algorithm** turn them into losses, and publishes new **weights**. The **pace**
(``pace.py``) says who may start when.

Shapes: T is the unroll's length in env steps, N the columns (envs) of one actor, S the unrolls in a batch,
and B = S * N the columns of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.fields import Among, Bound, Name, Size, Unlimited

Array = NDArray[Any]
Tree = dict[str, Array]
"""Named leaves. A Box observation is one leaf, 'observation'; a Dict observation has 'observation/<key>' each, a Tuple
'observation/0' and so on, and trees of these 'observation/<key>/<key>'."""

OBSERVED_MASK, INFO_MASK = "observation/action_mask", "action_mask"
"""The leaf that says which choices are allowed: of a Dict observation, or from the env's infos."""
SMALLEST_IMAGE = 16
"""In pixels a side: what is smaller is a table of numbers rather than a picture, and not worth an encoder."""


NO_DECISION = "no_decision"
"""What an env's info says of a moment in which the agent has nothing to decide."""


# --- what an env looks like ---------------------------------------------------------------------------------

_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
DTypeName = Annotated[str, Among(_DTYPES)]
ChoiceCount = Annotated[int, Bound(1, 2**31 - 1)]
"""How many there are to choose from."""
First = Annotated[int, Bound(-(2**63), 2**63 - 1)]
"""The env's own number of a first choice."""
Limit = Annotated[float, Unlimited]
"""Of a box; infinite where there is none."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation, without the column axis."""

    name: Name
    shape: tuple[Size, ...]
    dtype: DTypeName
    """A NumPy dtype name; floating-point observations are kept in float32."""
    choices: tuple[ChoiceCount, ...] = ()
    """How many each number has, where they are choices, as those of a Discrete; counted from 0. Seen one-hot."""
    start: tuple[First, ...] = ()
    """The env's own number of each first choice, where it is not 0."""
    stack: Annotated[int, Bound(1, 255)] = 1
    """Arrays of successive rows that a policy sees at once, [stack, *shape]; memory keeps one a row."""

    @property
    def size(self) -> int:
        """Numbers in one array."""
        return prod(self.shape)

    @property
    def is_mask(self) -> bool:
        """Whether it says which actions are allowed, all choices side by side; no network sees it."""
        return self.name in (OBSERVED_MASK, INFO_MASK)

    @property
    def is_image(self) -> bool:
        """Whether it is of bytes and has two sides that an encoder for images could look at."""
        return self.dtype == "uint8" and not self.choices and min(self.sides) >= SMALLEST_IMAGE

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of an image; 0 where there are none."""
        if len(self.shape) not in (2, 3):
            return 0, 0
        first = 1 if len(self.shape) == 3 and not self.channels_last else 0
        return self.shape[first], self.shape[first + 1]

    @property
    def channels_last(self) -> bool:
        """Whether an image is [H, W, C]: channels are fewer than pixels a side."""
        return len(self.shape) == 3 and self.shape[2] < self.shape[0]

    @property
    def inputs(self) -> int:
        """Numbers that a network on vectors sees of it."""
        if self.is_mask:
            return 0
        return self.stack * (sum(self.choices) if self.choices else self.size)

    @property
    def seen(self) -> tuple[int, ...]:
        """The shape that a policy sees."""
        return (self.stack, *self.shape) if self.stack > 1 else self.shape


def mask_of(leaves: Sequence[Leaf]) -> str | None:
    """Return the name of the leaf that says which choices are allowed; None where all always are."""
    return next((leaf.name for leaf in leaves if leaf.is_mask), None)


@dataclass(frozen=True)
class ActionSpec:
    """What an env accepts as an action, and how it is recorded, without the column axis.

    An action of several parts (a Dict or Tuple, nested or not) is 'mixed': it is recorded as one row of numbers, first
    the choices of all parts, then the numbers of all boxes, each in the order of the parts; and `nvec`, `low` and
    `high` are those of all parts in that order. A choice is a small whole number, which float32 holds exactly.
    """

    kind: Literal["discrete", "multidiscrete", "box", "mixed"]
    """multidiscrete: a MultiDiscrete, or a MultiBinary, whose components have 2 choices each."""
    shape: tuple[Size, ...]
    """As recorded: () for discrete, (choices + numbers of boxes,) for mixed, else the space's own shape."""
    nvec: tuple[ChoiceCount, ...] = ()
    """Number of choices of each component, flattened (discrete: one component)."""
    start: tuple[First, ...] = ()
    """The env's own number of each component's first choice, where it is not 0: recorded choices count from 0."""
    low: tuple[Limit, ...] = ()
    high: tuple[Limit, ...] = ()
    """Bounds of a box, flattened; infinite where there is none."""
    parts: tuple[ActionSpec, ...] = ()
    """Of a mixed action; a part may be mixed itself."""
    keys: tuple[Name, ...] = ()
    """Of the parts, in a Dict; none in a Tuple."""
    env_dtype: Annotated[str, Among(("", *_DTYPES))] = field(default="", compare=False)
    """What the env is handed, where it is not the dtype that is recorded."""

    @property
    def dtype(self) -> str:
        """What is recorded."""
        return "float32" if self.kind in ("box", "mixed") else "int64"

    @property
    def size(self) -> int:
        """Numbers in one action."""
        return prod(self.shape)


@dataclass(frozen=True)
class EnvSpec:
    """Spaces and counts of one actor's envs."""

    id: str
    observation: tuple[Leaf, ...]
    action: ActionSpec
    columns: int
    """Envs per actor, N."""
    frame_skip: int = 1
    """Simulated frames per env step, as far as the env says so."""
    info: tuple[str, ...] = ()
    """What its infos report that becomes a metric, K names."""
    no_decision: bool = False
    """Whether there are moments in which the agent has nothing to decide, as far as `preflight` has seen."""
    time_limit: int | None = None
    """Env steps after which an episode is truncated at the latest; None: no limit is known."""
    cut_at: int | None = None
    """Env steps after which an episode is truncated that would go on outside of an evaluation; None: never."""

    @property
    def mask(self) -> str | None:
        """The leaf that says which choices are allowed, [N, sum(nvec)] bool; None where all always are."""
        return mask_of(self.observation)


# --- what is recorded ---------------------------------------------------------------------------------------


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
    """Rows before an unroll's first that are kept with it: those that its first rows' stacks reach back to."""


HISTORY = "history/"
"""What the name of a field begins with under which an actor finds its rows before an unroll's first."""
FRAME_AGE = "frame_age"
"""The field, where observations are stacked, that says how many rows of its episode a row's stack reaches back."""


def env_fields(spec: EnvSpec) -> list[Field]:
    """Return the fields of a row that come from the env and the actor itself, whatever the algorithm."""
    stacked = any(leaf.stack > 1 for leaf in spec.observation)
    return [
        *(Field(leaf.name, leaf.shape, leaf.dtype, history=leaf.stack - 1) for leaf in spec.observation),
        *([Field(FRAME_AGE, (), "uint8")] if stacked else []),
        Field("action", spec.action.shape, spec.action.dtype),
        Field("reward", (), "float32"),
        Field("terminated", (), "bool"),
        Field("truncated", (), "bool"),
        Field("valid", (), "bool"),
        Field("episode_return", (), "float64"),
        Field("episode_length", (), "int32"),
        *([Field("info", (len(spec.info),), "float64")] if spec.info else []),
        Field("behavior_version", (), "int64", per="unroll"),
    ]


class Acted(NamedTuple):
    """What a policy answers to a batch of observations."""

    action: Array
    """[N, *shape], as it is recorded: before bounds are applied."""
    recorded: Tree
    """What the algorithm wants kept of the decision, such as 'behavior_log_prob' [N]."""


class Policy(Protocol):
    """Chooses actions. Evaluation, export and leagues need a Policy, not an Algorithm."""

    state_size: int
    """Numbers that it remembers of each column; 0 without a recurrent core."""

    def load(self, vector: NDArray[np.float32]) -> None:
        """Take the published weights, normaliser included."""

    def act(self, observation: Tree, random: np.random.Generator, state: NDArray[np.float32] | None = None) -> Acted:
        """Sample an action for each column; with a core, `state` [N, state_size] is moved on in place."""

    def greedy(self, observation: Tree, state: NDArray[np.float32] | None = None) -> Array:
        """Return the most likely action (Gaussian: the mean) for each column; `state` is moved on in place."""

    def to_env(self, action: Array) -> Array:
        """Turn recorded actions into what the env accepts (bounds, squashing, shape)."""
