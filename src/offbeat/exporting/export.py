"""`offbeat.export`: exports a trained policy to one file that runs without offbeat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offbeat.api.hub.download import is_published
from offbeat.api.playing.load import load
from offbeat.config.arguments import checked
from offbeat.config.registry import EncoderFactory
from offbeat.core.errors import ConfigError
from offbeat.core.files import GivenPath, user_path
from offbeat.core.process.caller_state import caller_state
from offbeat.exporting.format_names import SUFFIXES, FormatName
from offbeat.run_directory.store import LATEST

if TYPE_CHECKING:
    from offbeat.exporting.policy_file import Exported


@checked
def export(
    run: GivenPath,
    out: GivenPath | None = None,
    *,
    format: FormatName = "onnx",  # noqa: A002 - as the flag is called
    checkpoint: str = LATEST,
    policy: str | None = None,
    encoder: EncoderFactory | None = None,
    trust_code: bool = False,
) -> Exported:
    """Export a policy of a run to one file, which selects the most likely actions, as `offbeat.load(run)` does.

    The file is tested on random observations, and is written only if it acts like the policy: equal choices, values
    within 1e-5. A network that computes in bf16 is exported and compared in fp32.

    Args:
        run: as for `offbeat.load`.
        out: the file to write; it must not exist yet. None: policy.onnx or policy.pt, with `policy`
            policy-NAME.onnx or policy-NAME.pt, in the run directory or, for a policy of the hub, in the current folder.
        format: onnx, which needs `pip install "offbeat[export]"`, or torchscript.
        checkpoint: latest, best or step-<12 digits>.
        policy: as for `offbeat.load`.
        encoder: as for `offbeat.load`.
        trust_code: as for `offbeat.load`.

    Raises:
        ConfigError: the run, checkpoint, policy or format does not exist, the file exists, cannot be written or has the
            suffix of the other format, or a package is missing; or the run has several policies, and none is chosen.
        RunFailed: the network cannot be exported, or the file does not act like the policy.
    """
    file = _default_file(run, policy, format) if out is None else user_path(out)
    _require_suffix(file, format)
    with caller_state() as caller:
        from offbeat.exporting.policy_file import export_policy  # not at the top: it loads torch

        caller.save_library_settings()
        loaded = load(run, checkpoint, policy=policy, encoder=encoder, trust_code=trust_code)
        return export_policy(loaded, file, format)


def _default_file(run: GivenPath, policy: str | None, file_format: FormatName) -> Path:
    folder = Path() if is_published(run) else user_path(run)
    name = "policy" if policy is None else f"policy-{policy}"
    return folder / f"{name}{SUFFIXES.get(file_format, '')}"


def _require_suffix(file: Path, file_format: str) -> None:
    """Refuse a file with the suffix of another format. Unknown formats are refused later."""
    other = next((name for name, suffix in SUFFIXES.items() if suffix == file.suffix.lower()), file_format)
    if other != file_format and file_format in SUFFIXES:
        raise ConfigError(
            f"{file} has the suffix of {other}, but the format is {file_format}: pass --format {other}, or another "
            "suffix with --out"
        )
