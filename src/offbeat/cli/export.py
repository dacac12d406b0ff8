"""`offbeat export`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from offbeat.cli.flags import CheckpointName, ChosenPolicy, RunImports, TrustCode
from offbeat.cli.output import spinner
from offbeat.exporting.format_names import FormatName

if TYPE_CHECKING:
    from offbeat.exporting.formats import Port
    from offbeat.exporting.policy_file import Exported


@dataclass(frozen=True)
class Export:
    """Export a trained policy to one file that runs without offbeat: offbeat export runs/NAME."""

    run_directory: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory, hf://USER/NAME for a policy on the Hugging Face hub, or a folder with its files."""
    format: FormatName = "onnx"
    """onnx: for ONNX Runtime, in any language. torchscript: for torch, in Python and C++."""
    checkpoint: CheckpointName = "latest"
    """latest, best or step-<12 digits>."""
    policy: ChosenPolicy = None
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """File to write. Default: policy.onnx or policy.pt, with --policy policy-NAME.onnx or policy-NAME.pt, in the run
    directory or, for the hub, in the current folder."""
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.config.importing import import_modules

        import_modules(self.imports)
        with spinner("exporting the policy and comparing the file with it"):
            from offbeat.exporting.export import export

            exported = export(
                self.run_directory,
                self.out,
                format=self.format,
                checkpoint=self.checkpoint,
                policy=self.policy,
                trust_code=self.trust_code,
            )
        print("\n".join(_lines(exported)))
        return 0


def _lines(exported: Exported) -> Iterator[str]:
    trained, agreement = exported.trained, exported.agreement
    size = exported.file.stat().st_size
    agents = f" (agents {', '.join(trained.agents)})" if trained.agents else ""
    progress = f"after {trained.env_steps} env steps"
    yield f"{exported.file}: {trained.algorithm} on {trained.env}{agents} {progress}, {size:,} bytes"
    for direction, ports in (("in ", exported.inputs), ("out", exported.outputs)):
        yield from (f"  {direction}  {_port(port)}" for port in ports)
    yield f"compared with the policy on {agreement.decisions} observations: {_comparison(exported)}"
    yield "  run it:"
    yield from (f"    {line}" for line in _snippet(exported))


def _comparison(exported: Exported) -> str:
    """Return the result of the comparison as text."""
    from offbeat.exporting.agreement import TOLERANCE

    values = f"values differ by at most {exported.agreement.error:.1e} ({TOLERANCE:.0e} is allowed)"
    kinds = {port.dtype.startswith("float") for port in exported.outputs}
    found = ", ".join(words for words, is_float in (("equal choices", False), (values, True)) if is_float in kinds)
    return found + ("; both in fp32, not in bf16" if exported.was_bf16 else "")


def _port(port: Port) -> str:
    return f"{port.name}  {port.dtype} [{', '.join(['N', *map(str, port.shape)])}]"


def _snippet(exported: Exported) -> Iterator[str]:
    """Yield two lines of Python that run the file."""
    inputs, outputs = map(_variables, (exported.inputs, exported.outputs))
    results, file = ", ".join(outputs.values()) + "," * (len(outputs) == 1), json.dumps(str(exported.file))
    if exported.format == "onnx":
        given = ", ".join(f"{json.dumps(name)}: {variable}" for name, variable in inputs.items())
        yield f"policy = onnxruntime.InferenceSession({file})"
        yield f"{results} = policy.run(None, {{{given}}})"
    else:
        given = ", ".join(f"torch.from_numpy({variable})" for variable in inputs.values())
        yield f"policy = torch.jit.load({file})"
        yield f"{results} = policy({given})"


def _variables(ports: Sequence[Port]) -> dict[str, str]:
    """Return a Python variable for each port, by its name: its last part, or all of it if that is not clear."""
    last = {port.name: port.name.rpartition("/")[2] for port in ports}
    clear = {part for part, times in Counter(last.values()).items() if times == 1 and part.isidentifier()}
    return {
        name: part if part in clear and not iskeyword(part) else re.sub(r"\W", "_", name) for name, part in last.items()
    }
