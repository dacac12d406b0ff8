"""The file formats: each converts a torch module to bytes, and opens such bytes to run them."""

from __future__ import annotations

import json
import logging
import multiprocessing
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import NamedTuple

import torch
from torch import Tensor, nn

from offbeat.core.errors import ConfigError, RunFailed, unknown
from offbeat.core.importable import is_importable
from offbeat.core.types import Tree

Runner = Callable[[Tree], Tree]
"""Runs a file: returns the outputs for given inputs, both by name and in the order of the file."""


@dataclass(frozen=True)
class Port:
    """An input or an output of a file."""

    name: str
    shape: tuple[int, ...]
    """Without the batch axis, which comes first and has any length."""
    dtype: str


class Ports(NamedTuple):
    """The inputs and outputs of a file, in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Format(NamedTuple):
    """A file format."""

    packages: tuple[str, ...]
    """Required packages in addition to torch."""
    convert: Callable[[nn.Module, tuple[Tensor, ...], Ports, Mapping[str, str]], bytes]
    """Returns the content of a file, given a network, example inputs, the ports, and the metadata."""
    open: Callable[[bytes, Ports], Runner]


def format_of(name: str) -> Format:
    """Return a format whose packages are installed.

    Raises:
        ConfigError: the format is unknown, or a package that it needs is missing.
    """
    if name not in FORMATS:
        raise unknown("format", name, FORMATS, f"There are {' and '.join(FORMATS)}.")
    if missing := [package for package in FORMATS[name].packages if not is_importable(package)]:
        raise ConfigError(
            f'{name} needs {" and ".join(missing)}, which is not installed here: run pip install "offbeat[export]", or '
            "pass --format torchscript, which needs only torch"
        )
    return FORMATS[name]


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress torch's log messages and warnings, for example on deprecations and optional packages."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def cause_of(error: BaseException) -> str:
    """Return the first cause of an error in one line, with the code that torch names: it writes pages."""
    while error.__cause__ is not None and not isinstance(error, RunFailed):  # which names the encoder
        error = error.__cause__
    message, _, code = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).partition("The following call raised this error:")
    parts = (" ".join(part.split())[:300] for part in (message.strip().partition("\n\n")[0], code))
    return f"{type(error).__name__}: {', in '.join(filter(None, parts))}"


# --- ONNX ---------------------------------------------------------------------------------------------------


@contextmanager
def _without_traces_of_bars() -> Iterator[None]:
    """Undo what torch's hidden progress bars change: tqdm starts a thread, and fixes how processes are started."""
    method, tqdm = multiprocessing.get_start_method(allow_none=True), sys.modules.get("tqdm")
    interval = None if tqdm is None else tqdm.tqdm.monitor_interval
    if tqdm is not None:
        tqdm.tqdm.monitor_interval = 0  # no thread
    try:
        yield
    finally:
        multiprocessing.set_start_method(method, force=True)
        if tqdm is not None:
            tqdm.tqdm.monitor_interval = interval


def _onnx(network: nn.Module, example: tuple[Tensor, ...], ports: Ports, notes: Mapping[str, str]) -> bytes:
    rows = torch.export.Dim("N")
    with _without_traces_of_bars():
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
        node.metadata_props.clear()  # the source locations of the nodes: half of a small file
    program.model.metadata_props.update(notes)
    content: bytes = program.model_proto.SerializeToString()
    return content


def _open_onnx(content: bytes, ports: Ports) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in ports.outputs]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


# --- TorchScript --------------------------------------------------------------------------------------------

NOTES = "offbeat.json"
"""Name of the metadata in a TorchScript file. They include name, shape and dtype of the inputs and outputs."""


def _torchscript(network: nn.Module, example: tuple[Tensor, ...], ports: Ports, notes: Mapping[str, str]) -> bytes:
    record = {**notes, "inputs": list(map(asdict, ports.inputs)), "outputs": list(map(asdict, ports.outputs))}
    content = BytesIO()
    traced = torch.jit.trace(network, example, check_trace=False)  # type: ignore[no-untyped-call]
    torch.jit.save(traced, content, _extra_files={NOTES: json.dumps(record).encode()})
    return content.getvalue()


def _open_torchscript(content: bytes, ports: Ports) -> Runner:
    module = torch.jit.load(BytesIO(content))  # type: ignore[no-untyped-call]
    names = [port.name for port in ports.outputs]

    @torch.inference_mode()
    def run(inputs: Tree) -> Tree:
        outputs = module(*map(torch.from_numpy, inputs.values()))
        return {name: part.numpy() for name, part in zip(names, outputs, strict=True)}

    return run


FORMATS: Mapping[str, Format] = {
    "onnx": Format(("onnx", "onnxscript", "onnxruntime"), _onnx, _open_onnx),
    "torchscript": Format((), _torchscript, _open_torchscript),
}
