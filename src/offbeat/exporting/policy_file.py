"""Converts a loaded policy to a file, compares the file with the policy, and writes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from offbeat import __version__
from offbeat.api.playing.load import policy_of
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.files import remedy_for, replaced, require_writable
from offbeat.core.frozen_table import in_toml
from offbeat.core.previous_inputs import action_parts
from offbeat.core.seeding import stream
from offbeat.exporting.agreement import Agreement, compare, largest_number
from offbeat.exporting.exported_policy import NEXT_STATE, STATE, ExportedPolicy, input_dtype, output_dtype
from offbeat.exporting.format_names import FormatName
from offbeat.exporting.formats import Format, Port, Ports, Runner, cause_of, format_of, quiet
from offbeat.exporting.observations import initial_state, sample_observations
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec


@dataclass(frozen=True)
class Exported:
    """The exported file."""

    file: Path
    format: FormatName
    trained: Trained
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    agreement: Agreement
    was_bf16: bool
    """Whether the policy computes in bfloat16; the file always computes in float32."""

    def __repr__(self) -> str:
        """Return one line: the file, its format, and the policy in it."""
        trained = self.trained
        policy = f"{trained.algorithm} on {trained.env}, env_steps={trained.env_steps}"
        return f"Exported({str(self.file)!r}, {self.format!r}, {policy})"


def export_policy(loaded: LoadedPolicy, file: Path, format_name: FormatName) -> Exported:
    """Export a loaded policy. Raises as `offbeat.export`."""
    file_format = format_of(format_name)
    if loaded.acting_policy.spec.context_encoder is not None:
        raise ConfigError(
            f"this policy of {loaded.trained.algorithm} infers its task between episodes, which a network in a file "
            "cannot do: use offbeat.load in Python"
        )
    if file.is_dir():
        raise ConfigError(f"{file} is a folder: pass --out {file}/policy")
    if file.exists() or file.is_symlink():
        raise _error_exists(file)
    require_writable(file, "--out")
    policy = _in_fp32(loaded)
    ports = _ports(policy.acting_policy.spec)
    largest = largest_number(policy)
    content, runner = _convert(file_format, policy, ports, largest)
    agreement = compare(policy, runner, largest)
    _write(file, content)
    was_bf16 = loaded.acting_policy.spec.precision == "bf16"
    return Exported(file, format_name, loaded.trained, *ports, agreement, was_bf16)


def _in_fp32(loaded: LoadedPolicy) -> LoadedPolicy:
    spec = loaded.acting_policy.spec
    weights = published_layout(spec).views(loaded.acting_policy.vector)
    return LoadedPolicy(policy_of(replace(spec, precision="fp32"), weights), loaded.trained)


def _ports(spec: PolicySpec) -> Ports:
    inputs = [Port(leaf.name, leaf.as_given.stacked_shape, input_dtype(leaf)) for leaf in spec.observation]
    outputs = [Port(name, part.shape, output_dtype(part)) for name, part in action_parts(spec.action)]
    if spec.recurrent:
        inputs.append(Port(STATE, (spec.state_size,), "float32"))
        outputs.append(Port(NEXT_STATE, (spec.state_size,), "float32"))
    return Ports(tuple(inputs), tuple(outputs))


def _convert(file_format: Format, policy: LoadedPolicy, ports: Ports, largest: int) -> tuple[bytes, Runner]:
    """Return the content of the file, and a function that runs it."""
    example = sample_observations(policy.acting_policy, 2, stream(0, "example"), largest)
    example |= initial_state(policy.acting_policy.spec, 2)
    tensors = tuple(torch.from_numpy(part) for part in example.values())
    trained = {"version": __version__, **asdict(policy.trained)}
    notes = {f"offbeat.{key}": _as_text(value) for key, value in trained.items()}
    try:
        with quiet():
            content = file_format.convert(ExportedPolicy(policy.acting_policy).eval(), tensors, ports, notes)
            return content, file_format.open(content, ports)
    except Exception as error:
        own = "your own encoder must not have control flow that depends on the values of tensors; "
        remedy = (own if policy.acting_policy.spec.has_own_encoder else "") + "the other --format may support it"
        raise RunFailed(f"the network cannot be exported: {remedy} ({cause_of(error)})") from error


def _as_text(value: object) -> str:
    """Return text as it is, and everything else as JSON, which readers in other languages understand."""
    return value if isinstance(value, str) else json.dumps(value, default=in_toml)


def _write(file: Path, content: bytes) -> None:
    """Write a file atomically; missing folders are made. One that was made since the export began is not replaced."""
    try:
        with replaced(file, "--out") as temporary:
            temporary.write_bytes(content)
            file.touch(exist_ok=False)  # takes the name, or fails
    except FileExistsError:
        raise _error_exists(file) from None
    except OSError as error:
        remedy = remedy_for(error, "pass another file with --out")
        raise ConfigError(f"{file} cannot be written ({error.strerror}): {remedy}") from None


def _error_exists(file: Path) -> ConfigError:
    return ConfigError(f"{file} exists: pass another file with --out, or delete it")
