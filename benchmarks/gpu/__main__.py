"""Everything that needs a GPU, in parts: `benchmarks/gpu.sh` calls this.

    benchmarks/gpu.sh                  all parts
    benchmarks/gpu.sh tests pong       some of them
    benchmarks/gpu.sh --list           the parts and their time limits
    benchmarks/gpu.sh --smoke --out FOLDER    all parts on the CPU, in seconds each

Each part writes `PART.json` and `PART.txt`, what its programs have printed, to the folder of the results, and renews
`gpu.md` there: a table of all parts whose JSON files are in the folder. So parts may run one at a time, and files from
several machines' calls can be put into one folder; `--table` makes the table again. The files of a part are replaced
when its first job begins.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, machine, write_json
from benchmarks.gpu.jobs import Figures, Job, run
from benchmarks.gpu.parts import PARTS, Scale
from benchmarks.gpu.table import as_markdown
from benchmarks.options import new_parser, read_options

SECONDS, SMOKE_SECONDS = 12.0, 3.0
"""Of training in each run."""
LEAST_S = 1.0
"""Seconds without which no other job begins."""


def main() -> int:
    """Run the parts; return 1 if a job failed."""
    options = _options()
    if options.list:
        for name, part in PARTS.items():
            print(f"{name:12} {part.title} (at most {part.limit_s:.0f} s)")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    if not options.table:
        about, scale = _about(), _scale(options)
        until = time.monotonic() + 60 * options.minutes
        for name in options.parts or PARTS:
            if until - time.monotonic() < LEAST_S:
                print(f"{name}: not run: the time of all parts was over", flush=True)
                failed = True
            else:
                failed |= _run_part(name, scale, about, options.out, until)
    print(_write_table(options.out))
    return int(failed)


def _options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help="default: all")
    parser.add_argument("--seconds", type=float, help=f"of training in each run; default: {SECONDS:g}")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no other job begins")
    parser.add_argument("--smoke", action="store_true", help="on the CPU, in seconds, to test the script")
    parser.add_argument("--table", action="store_true", help="run nothing: only make the table again")
    parser.add_argument("--list", action="store_true", help="run nothing: list the parts")
    return read_options(parser, "parts", "minutes", "table", "list", folder=RESULTS / "gpu")


def _scale(options: argparse.Namespace) -> Scale:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if options.smoke:
        return Scale(("cpu",), min(cores, 2), options.seconds or SMOKE_SECONDS, smoke=True)
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no CUDA GPU here: pass --smoke to test the script on the CPU")
    return Scale(("cpu", "cuda"), cores, options.seconds or SECONDS)


def _about() -> dict[str, Any]:
    """Return what the figures depend on: the machine, and its GPUs."""
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {**machine(), "gpus": gpus, "cuda": torch.version.cuda, "cudnn": cudnn}


def _run_part(name: str, scale: Scale, about: dict[str, Any], out: Path, until: float) -> bool:
    """Run the jobs of a part, and write their figures after each; return whether one failed."""
    part, results, text = PARTS[name], list[dict[str, Any]](), out / f"{name}.txt"
    jobs = list(part.jobs(scale, out))
    if not jobs:
        print(f"{name}: there is nothing to run", flush=True)
        return False
    until = min(until, time.monotonic() + part.limit_s)
    text.write_text("")
    record = {"part": name, "title": part.title, "smoke": scale.smoke, "machine": about, "jobs": results}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number, job in enumerate(jobs):
            figures = _run_job(job, Path(folder) / str(number), until, text)
            results.append({"job": job.name, **figures})
            print(f"{name}: {job.name}: {json.dumps(figures)}", flush=True)
            write_json(out / f"{name}.json", record)
    return any("error" in result for result in results)


def _run_job(job: Job, folder: Path, until: float, text: Path) -> Figures:
    remaining = until - time.monotonic()
    if remaining < LEAST_S:
        return {"error": "not run: the time of the part, or of all parts, was over"}
    limited = Job(job.name, job.command, min(job.limit_s, remaining), job.read, job.environment)
    try:
        return run(limited, folder)
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"could not be started: {error}"}
    finally:
        with text.open("a") as file:
            output = folder / "output.txt"
            said = output.read_text(errors="replace") if output.exists() else ""
            file.write(f"==== {job.name}\n{' '.join(job.command)}\n{said}\n")


def _write_table(out: Path) -> str:
    records = [json.loads(path.read_text()) for name in PARTS if (path := out / f"{name}.json").exists()]
    text = as_markdown(records)
    (out / "gpu.md").write_text(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
