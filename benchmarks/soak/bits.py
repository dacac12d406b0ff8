"""Bits: an exact run, whatever happened to it, ends with the weights and counts of an undisturbed one in serial."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from benchmarks.soak.files import RunFiles
from benchmarks.soak.forks import offbeat
from benchmarks.soak.plan import EARLIER, Plan
from benchmarks.soak.programs import run_aside
from benchmarks.soak.report import Report
from offbeat.metrics.sinks import read_metrics

REFERENCE = "reference"
"""Folder of the undisturbed run, in that of the run."""
CUT = "unfinished episodes were not saved: they are cut"
"""What a resume says after the failure of an env, whose state nobody knows."""
INEXACT = "no longer exact"
"""What a run says when it restarts an actor."""
COUNTS = ("env_steps", "agent_steps", "learning_step", "updates", "episodes", "return_mean")


def check_bits(plan: Plan, files: RunFiles, report: Report) -> None:
    """Compare a finished run with an undisturbed one, unless its config, a restart or a cut makes it inexact.

    A restart of an inference worker does not.
    """
    log = (files.run / "log.txt").read_text()
    cut, restarted = CUT in log, report.restarts and not plan.mishap.endswith("an inference worker")
    report.require(not cut or bool(files.taken("main")), "episodes were cut, although no env has failed")
    if not plan.exact or restarted or cut or INEXACT in log:
        return
    there = files.folder / REFERENCE
    there.mkdir()
    for name in (files.folder / name for name in ("taken", "tokens")):
        (there / name.name).mkdir()
    if plan.has_earlier:
        (there / EARLIER).symlink_to(files.folder / EARLIER)
    run_aside(offbeat(plan.reference.train(str(there / "run"), str(files.tables))), there, files.environment(plan))
    here, reference = arrays(files.run), arrays(there / "run")
    if files.disk:  # a snapshot that could not be written may have left the window since then
        reference = {name: digest for name, digest in reference.items() if name in here or "snapshot-" not in name}
    report.compared = True
    report.require(here == reference, f"other bits than in serial: {_differences(here, reference)}")
    ours, theirs = _counts(files.run), _counts(there / "run")
    report.require(ours == theirs, f"other counts than in serial: {ours}, not {theirs}")


def arrays(run: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of weights: of the last checkpoint, and of the snapshots of a league."""
    latest = run / "checkpoints" / "latest"
    files = [*((latest, file) for file in latest.rglob("weights.safetensors"))]
    files += [(run, file) for file in (run / "league").glob("*/snapshot-*/weights.safetensors")]
    return {str(file.relative_to(top)): hashlib.sha256(file.read_bytes()).hexdigest() for top, file in sorted(files)}


def _differences(here: dict[str, str], there: dict[str, str]) -> str:
    return ", ".join(name for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name))


def _counts(run: Path) -> dict[str, Any]:
    last = read_metrics(run)[-1]
    return {name: last.get(name) for name in COUNTS}
