"""`offbeat doctor`, and the packages that offbeat requires."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Doctor:
    """Print the versions of the installed packages, the usable cores and the GPUs."""

    def run(self) -> int:
        from offbeat.core.process.threads import usable_cores
        from offbeat.run_directory.versions import package_version

        print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
        print(f"cores {usable_cores()} usable of {os.cpu_count()}")
        for name in ("offbeat", *_needs("offbeat")):
            print(f"{name} {package_version(name) or 'missing'}")
        for extra in _extras():
            missing = [name for name in dict.fromkeys(_needs("offbeat", extra)) if package_version(name) is None]
            remedy = f'{", ".join(missing)} missing, pip install "offbeat[{extra}]"'
            print(f"extra {extra}: {remedy if missing else 'installed'}")
        print(f"gpu {_gpus()}")
        return 0


def _gpus() -> str:
    """Return the names of the GPUs that torch can use, or the reason why they are unknown."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a system library is missing
        return f"unknown, as torch cannot be imported ({error}): pip install torch"
    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none"


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the required package that an import did not find; None if offbeat does not require it."""
    package = (error.name or "").partition(".")[0].replace("_", "-")
    # `_needs` itself needs packaging.
    return package if package == "packaging" or package in _needs("offbeat") else None


def _extras() -> list[str]:
    """Return the extras of offbeat; none of a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, metadata  # slow to import

    try:
        return metadata("offbeat").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []


def _needs(package: str, extra: str = "") -> Iterator[str]:
    """Yield the packages that a package requires, also for one of its extras, each with what its own extras need.

    Nothing is known of a package that is not installed.
    """
    from importlib.metadata import PackageNotFoundError, requires  # slow to import

    from packaging.requirements import Requirement

    try:
        needed = [Requirement(text) for text in requires(package) or ()]
    except PackageNotFoundError:
        return
    for each in needed:
        if each.marker is None or each.marker.evaluate({"extra": extra}):
            yield each.name
            for inner in each.extras:
                yield from _needs(each.name, inner)
