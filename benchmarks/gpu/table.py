"""The table of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.common import describe, markdown_table

COLUMNS = {
    "sps": ("SPS", ",.0f"),
    "ups": ("UPS", ",.1f"),
    "learner_grad_time_ms": ("update ms a step", ",.1f"),
    "actor_wait_fraction": ("actors wait", ".2f"),
    "learner_wait_fraction": ("learner waits", ".2f"),
    "memory_main_mb": ("main MB", ",.0f"),
    "memory_children_mb": ("children MB", ",.0f"),
    "gpu_mib": ("GPU MiB", ",.0f"),
    "gpu_busy_percent": ("GPU busy %", ".0f"),
    "seconds": ("seconds in all", ",.0f"),
}
"""Figure -> its title and form."""
METHOD = """\
`benchmarks/gpu.sh`: each row is a program of its own. Speeds are those after the first 40 % of a run's time. Seconds
are those of the whole process. GPU MiB is the memory in use on the whole GPU, the most that was seen."""


def as_markdown(records: Sequence[dict[str, Any]]) -> str:
    """Return a table for each part, and the machines that the parts ran on."""
    if not records:
        return "# On a GPU\n\nNo part has run.\n"
    smoke = "\n\n**These are results of `--smoke`: they show that the script works, and nothing else.**"
    head = "# On a GPU\n\n" + METHOD + (smoke if any(record["smoke"] for record in records) else "")
    machines = dict.fromkeys(_machine(record["machine"]) for record in records)
    return "\n\n".join([head, *machines, *map(_part, records)]) + "\n"


def _machine(about: dict[str, Any]) -> str:
    gpus = ", ".join(about["gpus"]) or "no GPU"
    return f"{gpus}; CUDA {about['cuda']}, cuDNN {about['cudnn']}; {describe(about)}."


def _part(record: dict[str, Any]) -> str:
    jobs, title = record["jobs"], f"## {record['part']}: {record['title']}"
    columns = [name for name in COLUMNS if any(isinstance(job.get(name), int | float) for job in jobs)]
    rows = [[job["job"], *(_cell(job, name) for name in columns), _rest(job)] for job in jobs]
    header = ["", *(COLUMNS[name][0] for name in columns), ""]
    return f"{title}\n\n{markdown_table(header, rows)}".rstrip()


def _cell(job: dict[str, Any], name: str) -> str:
    value = job.get(name)
    return f"{value:{COLUMNS[name][1]}}" if isinstance(value, int | float) else ""


def _rest(job: dict[str, Any]) -> str:
    """Return the error of a job, or the figures that have no column of their own."""
    if "error" in job:
        return f"**{job['error']}**".replace("|", "/").replace("\n", " ")
    shown = ("passed", "failed", "skipped", "limit_sps", "achieved_sps", "bound_by", "said")
    parts = [f"{name} {_short(job[name])}" for name in shown if name in job]
    return ", ".join(parts).replace("|", "/")


def _short(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else str(value)
