"""A trained policy as one file that acts without offbeat: ONNX or TorchScript. It is checked before it is written."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat import __version__
from offbeat.choices import draw_choices, firsts, write_one_hot
from offbeat.errors import ConfigError, RunFailed, unknown
from offbeat.loading import LoadedPolicy, Trained, load, named, policy_of
from offbeat.models import sampling
from offbeat.models.encoders import as_env_has_it
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.models.whole_policy import NEXT_STATE, STATE, WholePolicy, action_parts, input_dtype, output_dtype
from offbeat.seeding import stream
from offbeat.types import INFO_MASK, Array, Leaf, Tree

TOLERANCE = 1e-5
"""How far numbers of a file may be from those of the policy: absolutely, or of the largest one where that is above 1.
Of choices whose values are nearer to each other than this, either may be taken."""
BATCHES = (1, 3, 64)
"""Columns in each of the batches that a file is checked on."""
STEPS = 5
"""Rows that a policy with a core goes through in each; others see one."""

FormatName = Literal["onnx", "torchscript"]
Runner = Callable[[Tree], Tree]
"""A file that was opened: inputs to outputs, by name."""


@dataclass(frozen=True)
class Port:
    """An input or an output of a file."""

    name: str
    shape: tuple[int, ...]
    """Without the column axis, which comes first and is as long as one likes."""
    dtype: str


class Ports(NamedTuple):
    """What goes into a file and comes out of it, in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True)
class Agreement:
    """How far a file was checked."""

    decisions: int
    """Actions that were compared."""
    error: float
    """The largest difference of a number, as `TOLERANCE` has it; 0 where there are only choices."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    file: Path
    format: FormatName
    trained: Trained
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    agreement: Agreement
    was_bf16: bool
    """Whether the policy computes in bfloat16, and the file does not."""


def export(
    run: Path | str,
    file: Path | str,
    *,
    format: FormatName = "onnx",  # noqa: A002 - what it is called everywhere
    checkpoint: str = "latest",
) -> Exported:
    """Write the policy of a run as one file that acts as `offbeat.load(run)` does, taking the likeliest action.

    The file is run on observations drawn at random, and written only where it gives the policy's actions: equal
    choices, numbers within `TOLERANCE`. A network that computes in bf16 is exported, and compared, in fp32.

    Args:
        run: a run directory; or, as text, "hf://USER/NAME".
        file: which must not be there yet.
        format: onnx, which needs `pip install "offbeat[export]"`, or torchscript.
        checkpoint: latest, best or step-<12 digits>.

    Raises:
        ConfigError: there is no such run, checkpoint or format, the file exists or cannot be written, or a package is
            missing.
        RunFailed: the network cannot be exported, or the file does not act like the policy.
    """
    return export_policy(load(run, checkpoint), Path(file), format)


def export_policy(loaded: LoadedPolicy, file: Path, format_name: FormatName) -> Exported:
    """Do the same with a policy that is loaded already."""
    made = _format(format_name)
    if file.exists() or file.is_symlink():
        raise ConfigError(f"{file} exists: give another with --out, or delete it")
    policy = _in_fp32(loaded)
    ports = _ports(policy.policy.spec)
    content = _content(made, policy, ports)
    agreement = _compare(policy, made.open(content, ports.outputs))
    _write(file, content)
    was_bf16 = loaded.policy.spec.precision == "bf16"
    return Exported(file, format_name, loaded.trained, *ports, agreement, was_bf16)


def _in_fp32(loaded: LoadedPolicy) -> LoadedPolicy:
    spec = loaded.policy.spec
    weights = published_layout(spec).views(loaded.policy.vector)
    return LoadedPolicy(policy_of(replace(spec, precision="fp32"), weights), loaded.trained)


def _ports(spec: PolicySpec) -> Ports:
    inputs = [Port(leaf.name, leaf.shape, input_dtype(leaf)) for leaf in spec.observation]
    outputs = [Port(name, part.shape, output_dtype(part)) for name, part in action_parts(spec.action)]
    if spec.recurrent:
        inputs.append(Port(STATE, (spec.state_size,), "float32"))
        outputs.append(Port(NEXT_STATE, (spec.state_size,), "float32"))
    return Ports(tuple(inputs), tuple(outputs))


def _write(file: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = file.with_name(f".{file.name}.writing")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as written:
                written.write(content)
                os.fsync(written.fileno())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror}): give another with --out") from None


# --- formats ------------------------------------------------------------------------------------------------


class _Format(NamedTuple):
    packages: tuple[str, ...]
    """That it needs beside torch."""
    content: Callable[[WholePolicy, tuple[Tensor, ...], Ports, Mapping[str, str]], bytes]
    """From a network, an example of its inputs, what they are called, and what to note in the file."""
    open: Callable[[bytes, tuple[Port, ...]], Runner]


def _onnx(network: WholePolicy, example: tuple[Tensor, ...], ports: Ports, notes: Mapping[str, str]) -> bytes:
    rows = torch.export.Dim("N")
    program = torch.onnx.export(
        network,
        example,
        dynamo=True,
        input_names=[port.name for port in ports.inputs],
        output_names=[port.name for port in ports.outputs],
        dynamic_shapes=(tuple({0: rows} for _ in example),),
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # where in whose source code each comes from: half of a small file
    program.model.metadata_props.update(notes)
    content: bytes = program.model_proto.SerializeToString()
    return content


def _open_onnx(content: bytes, outputs: tuple[Port, ...]) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in outputs]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


NOTES = "offbeat.json"
"""What a TorchScript file's notes are called in it."""


def _torchscript(network: WholePolicy, example: tuple[Tensor, ...], ports: Ports, notes: Mapping[str, str]) -> bytes:
    names = {"inputs": [port.name for port in ports.inputs], "outputs": [port.name for port in ports.outputs]}
    content = BytesIO()
    traced = torch.jit.trace(network, example, check_trace=False)  # type: ignore[no-untyped-call]
    torch.jit.save(traced, content, _extra_files={NOTES: json.dumps({**notes, **names}).encode()})
    return content.getvalue()


def _open_torchscript(content: bytes, outputs: tuple[Port, ...]) -> Runner:
    module = torch.jit.load(BytesIO(content))  # type: ignore[no-untyped-call]
    names = [port.name for port in outputs]

    @torch.inference_mode()
    def run(inputs: Tree) -> Tree:
        found = module(*map(torch.from_numpy, inputs.values()))
        return {name: part.numpy() for name, part in zip(names, found, strict=True)}

    return run


FORMATS: Mapping[str, _Format] = {
    "onnx": _Format(("onnx", "onnxscript", "onnxruntime"), _onnx, _open_onnx),
    "torchscript": _Format((), _torchscript, _open_torchscript),
}


def _format(name: str) -> _Format:
    """Return a format that can be written here."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS, f"There are {' and '.join(FORMATS)}.")
    if missing := [package for package in FORMATS[name].packages if find_spec(package) is None]:
        raise ConfigError(
            f'{name} needs {" and ".join(missing)}, not installed here: type pip install "offbeat[export]", or '
            "--format torchscript, which needs nothing more"
        )
    return FORMATS[name]


def _content(made: _Format, policy: LoadedPolicy, ports: Ports) -> bytes:
    """Return the bytes of a file that does what a policy does."""
    spec, trained = policy.policy.spec, policy.trained
    network, given = WholePolicy(policy.policy).eval(), _drawn(policy, 2, stream(0, "export"))
    example = tuple(map(torch.from_numpy, (given | _begin(spec, 2)).values()))
    notes = {f"offbeat.{key}": str(value) for key, value in {"version": __version__, **asdict(trained)}.items()}
    try:
        with _quiet():
            return made.content(network, example, ports, notes)
    except Exception as error:
        raise RunFailed(
            f"the network cannot be exported ({type(error).__name__}: {_words(error)}): torch must be able to "
            "follow an encoder of your own without looking at values; the other --format may take it"
        ) from error


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch tells of its own affairs: packages that it would use, ways that it will give up."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


# --- checked ------------------------------------------------------------------------------------------------


def _compare(policy: LoadedPolicy, run: Runner) -> Agreement:
    """Run a file and the policy on the same observations.

    Raises:
        RunFailed: they do not act alike.
    """
    random, spec = stream(0, "export-check"), policy.policy.spec
    decisions, wrong, error = 0, 0, 0.0
    for rows in BATCHES:
        state, memory = np.zeros((rows, spec.state_size), np.float32), _begin(spec, rows)
        for _ in range(STEPS if spec.recurrent else 1):
            given = _drawn(policy, rows, random)
            values, expected = _expected(policy, given, state)
            found = _run(run, given | memory)
            if spec.recurrent:
                expected, memory = expected | {NEXT_STATE: state}, {STATE: found[NEXT_STATE]}
            _require_alike(found, expected)
            decisions += rows
            wrong += _wrong_choices(spec, values, found, expected)
            error = max(error, *(_difference(found[name], expected[name]) for name in expected))
    if wrong or not error <= TOLERANCE:
        raise RunFailed(
            f"the file does not act like the policy, and is not kept: of {decisions} actions {wrong} have other "
            f"choices, and numbers differ by up to {error:.1e}, where {TOLERANCE:.0e} is allowed"
        )
    return Agreement(decisions, error)


def _run(run: Runner, inputs: Tree) -> Tree:
    rows = len(next(iter(inputs.values())))
    try:
        with _quiet():
            return run(inputs)
    except Exception as error:
        raise RunFailed(
            f"the file does not run on {rows} observations, and is not kept ({type(error).__name__}: {_words(error)}): "
            "an encoder of your own must not ask how many rows there are, or only by x.shape[0]"
        ) from error


def _begin(spec: PolicySpec, rows: int) -> Tree:
    """Return the state that episodes begin with, as an input; none without a core."""
    return {STATE: np.zeros((rows, spec.state_size), np.float32)} if spec.recurrent else {}


def _expected(policy: LoadedPolicy, given: Tree, state: NDArray[np.float32]) -> tuple[Array, Tree]:
    """Return what the policy decides by, [N, outputs], and the parts of its actions; `state` is moved on."""
    observation = as_env_has_it({name: part for name, part in given.items() if name != INFO_MASK})
    leaves, _ = policy.leaves(observation, given.get(INFO_MASK))
    values = policy.policy.parameters(leaves, state).copy()
    return values, dict(named("action", policy.encode(sampling.greedy(policy.policy.spec, values))))


def _require_alike(found: Tree, expected: Tree) -> None:
    """Refuse outputs of other shapes and dtypes."""
    there, wanted = ({name: (part.shape, part.dtype) for name, part in tree.items()} for tree in (found, expected))
    if there != wanted:
        raise RunFailed(f"the file does not act like the policy, and is not kept: it gives {there}, not {wanted}")


def _wrong_choices(spec: PolicySpec, values: Array, found: Tree, expected: Tree) -> int:
    """Return how many actions have choices that are not the policy's, nor as good as these."""
    if not spec.logits:
        return 0
    theirs, ours = (_choices(spec, actions) for actions in (found, expected))
    known = (theirs >= 0) & (theirs < spec.action.nvec)
    of_theirs, of_ours = (_at(spec, values, choices) for choices in (np.where(known, theirs, ours), ours))
    as_good = of_ours - of_theirs <= TOLERANCE * np.maximum(1, np.abs(of_ours))
    return int((~(known & as_good)).any(axis=1).sum())


def _choices(spec: PolicySpec, actions: Tree) -> NDArray[np.int64]:
    """Return the choices of all components, counted from 0, [N, components]."""
    parts = [
        (actions[name].astype(np.int64) - np.array(part.start or 0).reshape(part.shape if part.start else ()))
        for name, part in action_parts(spec.action)
        if part.nvec
    ]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _at(spec: PolicySpec, values: Array, choices: NDArray[np.int64]) -> Array:
    """Return the values of choices, [N, components]."""
    return np.take_along_axis(values, choices + firsts(spec.action.nvec), axis=1)


def _difference(found: Array, expected: Array) -> float:
    """Return the largest difference, of the largest number where that is above 1; choices have none."""
    if not np.issubdtype(expected.dtype, np.floating) or not expected.size:
        return 0.0
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


# --- observations to check on -------------------------------------------------------------------------------


def _drawn(policy: LoadedPolicy, rows: int, random: np.random.Generator) -> Tree:
    """Return N observations by leaf, as an env might give them; normalised numbers go as far as they are clipped."""
    spec, scales = policy.policy.spec, _scales(policy)
    return {leaf.name: _drawn_leaf(spec, leaf, rows, random, scales.get(leaf.name)) for leaf in spec.observation}


def _drawn_leaf(
    spec: PolicySpec, leaf: Leaf, rows: int, random: np.random.Generator, scale: tuple[Any, Any] | None
) -> Array:
    shape, dtype = (rows, *leaf.shape), np.dtype(input_dtype(leaf))
    if leaf.is_mask:
        return _drawn_mask(spec.action.nvec, rows, random)
    if leaf.choices:
        return (draw_choices(leaf.choices, rows, random) + np.array(leaf.start or 0)).reshape(shape)
    if not np.issubdtype(dtype, np.floating):
        most = 1 if dtype == np.bool_ else min(255, np.iinfo(dtype).max)
        return random.integers(0, most, shape, endpoint=True).astype(dtype)
    mean, deviation = scale or (np.float32(0), np.float32(1))
    numbers: Array = mean + deviation * random.normal(scale=4, size=(rows, leaf.size))
    return numbers.reshape(shape).astype(dtype)


def _drawn_mask(nvec: tuple[int, ...], rows: int, random: np.random.Generator) -> Array:
    """Return masks that forbid half of the choices, and leave one at least of each component."""
    kept = np.empty((rows, sum(nvec)), np.float32)
    write_one_hot(draw_choices(nvec, rows, random), nvec, kept)
    allowed: Array = (kept > 0) | (random.random(kept.shape) < 0.5)
    return allowed


def _scales(policy: LoadedPolicy) -> dict[str, tuple[Array, Array]]:
    """Return mean and standard deviation of each leaf that is normalised."""
    spec, scales, start = policy.policy.spec, {}, 0
    if not spec.normalize:
        return {}
    arrays = published_layout(spec).views(policy.policy.vector)
    for leaf in spec.vectors:
        part = slice(start, start := start + leaf.inputs)
        scales[leaf.name] = arrays["observation_mean"][part], 1 / arrays["observation_scale"][part]
    return scales
