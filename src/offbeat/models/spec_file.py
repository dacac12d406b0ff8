"""Reads the description of a policy from a file, and checks that its values fit together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from offbeat.config.registry import OUR_ENCODERS
from offbeat.core.errors import ConfigError
from offbeat.core.fields import build
from offbeat.core.images import becomes_grey, reduced_leaf
from offbeat.core.previous_inputs import previous_leaves
from offbeat.core.types import ActionSpec, Leaf, numbers_of_parts
from offbeat.models.spec import PolicySpec

_CHANGED = "its policy.json was changed, or is of another version of offbeat"
MAX_NUMBERS = 2**26
"""Largest size of a leaf, with its stack: more than twice that of a 4K colour image."""


def read_spec(data: object) -> PolicySpec:
    """Return the spec for the result of `PolicySpec.to_json`.

    Raises:
        ConfigError: a value is invalid, or values contradict each other.
    """
    spec = build(PolicySpec, data, "the checkpoint's policy", _CHANGED)
    checks = (_wrong_leaves(spec), _wrong_action(spec.action), _wrong_previous(spec), contradictions(spec))
    for wrong in chain.from_iterable(checks):
        raise ConfigError(f"the checkpoint's policy is invalid: {wrong}. {_CHANGED[0].upper()}{_CHANGED[1:]}")
    return spec


def _wrong_leaves(spec: PolicySpec) -> Iterator[str]:
    """Yield a message for each error in the leaves."""
    names = [leaf.name for leaf in spec.observation]
    if not names or len(set(names)) < len(names):
        yield "its observation has no leaves, or two leaves of the same name"
    if sum(leaf.is_mask for leaf in spec.observation) > 1:
        yield "its observation has more than one mask"
    for leaf in spec.observation:
        if max(leaf.size, leaf.inputs) * leaf.stack > MAX_NUMBERS:
            yield f"{leaf.name} has more than {MAX_NUMBERS} numbers"
        elif len(leaf.choices) not in (0, leaf.size) or len(leaf.start) not in (0, len(leaf.choices)):
            counts = f"{len(leaf.choices)} choices and {len(leaf.start)} starts"
            yield f"{leaf.name} has {leaf.size} components, but {counts}"
        elif leaf.choices and any(name.startswith(("float", "bool")) for name in (leaf.dtype, leaf.env_dtype)):
            yield f"{leaf.name} has choices, but its dtype is {leaf.env_dtype or leaf.dtype}, not an integer type"
        elif leaf.is_mask and (leaf.dtype, leaf.shape) != ("bool", (spec.logits,)):
            yield f"{leaf.name} is a mask of {leaf.dtype} {list(leaf.shape)}, but bool [{spec.logits}] is expected"
        elif leaf.stack > 1 and not leaf.is_image:
            yield f"{leaf.name} has a frame stack, but is not an image"
        elif leaf.env_shape and not _is_reduced(leaf):
            yield f"{leaf.name} has the shape {list(leaf.shape)}, which is not made from {list(leaf.env_shape)}"


def _is_reduced(leaf: Leaf) -> bool:
    """Whether a leaf is made from images of its `env_shape`."""
    given = leaf.as_given
    if not (given.is_image and leaf.is_image and given.size <= MAX_NUMBERS):
        return False
    return reduced_leaf(given, leaf.sides, grayscale=becomes_grey(leaf)) == leaf


def _wrong_action(action: ActionSpec) -> Iterator[str]:
    """Yield a message for each error in an action and its parts."""
    numbers, mixed = len(action.nvec) + len(action.low), action.kind == "mixed"
    if action.size != numbers or not numbers or len(action.low) != len(action.high):
        counts = f"{len(action.nvec)} choices, {len(action.low)} lower and {len(action.high)} upper bounds"
        yield f"a {action.kind} action of shape {list(action.shape)} has {counts}"
    if len(action.shape) != {"discrete": 0, "mixed": 1}.get(action.kind, len(action.shape)):
        yield f"a {action.kind} action cannot have the shape {list(action.shape)}"
    if not mixed and (action.nvec if action.kind == "box" else action.low):
        yield f"a {action.kind} action cannot have {'choices' if action.kind == 'box' else 'bounds'}"
    if len(action.start) not in (0, len(action.nvec)) or mixed != bool(action.parts):
        counts = f"{len(action.nvec)} choices, {len(action.start)} starts and {len(action.parts)} parts"
        yield f"a {action.kind} action has {counts}"
    if len(action.keys) not in (0, len(action.parts)) or len(set(action.keys)) < len(action.keys):
        yield f"an action has {len(action.parts)} parts, but the keys {list(action.keys)}"
    if mixed and any(numbers_of_parts(action.parts, name) != getattr(action, name) for name in ("nvec", "low", "high")):
        yield "the choices or the bounds of an action are not those of its parts"
    for part in action.parts:
        yield from _wrong_action(part)


def _wrong_previous(spec: PolicySpec) -> Iterator[str]:
    """Yield a message for each wrong leaf of a previous action or reward. The policy's actions are valid."""
    known = previous_leaves(spec.action, action=True, reward=True)
    for leaf in spec.observation:
        if leaf.is_previous and leaf not in known:
            yield f"{leaf.name} is not the previous action or reward of a policy with its actions"
        if leaf.is_previous and spec.context_encoder:
            yield f"{leaf.name} is an input, but a context encoder does not support it"


def contradictions(spec: PolicySpec) -> Iterator[str]:
    """Yield a message for each contradiction between fields: of distribution and action, of core and its size, ..."""
    discrete = spec.distribution in ("categorical", "epsilon_greedy")
    if discrete == bool(spec.box_size) or (spec.records_after_tanh and spec.logits):
        yield f"the {spec.distribution} distribution does not support {spec.action.kind} actions"
    if spec.uniform_start and spec.action.kind == "mixed":
        yield "uniform_start does not support mixed actions"
    if spec.recurrent != bool(spec.core_size):
        yield f"core is {spec.core}, but core_size is {spec.core_size}"
    if spec.encoder_kwargs and spec.encoder in OUR_ENCODERS:
        yield f"encoder is {spec.encoder}, which has no encoder_kwargs"
    if not (spec.inputs or spec.encoded):
        yield "its observation has no input for the network"
    if spec.context_encoder and (spec.action.kind not in ("discrete", "box") or not spec.plain or spec.normalize):
        yield "a context encoder supports plain networks with discrete or box actions only"
