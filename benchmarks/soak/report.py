"""What one run of the soak came to: what happened in it, and what failed."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.soak.plan import Plan


@dataclass
class Report:
    """What one run came to."""

    plan: Plan
    exit_codes: list[int] = field(default_factory=list)
    """Of the run, and of each resume."""
    happened: bool = False
    """Whether the mishap came before the run had ended."""
    failed_envs: int = 0
    """How often envs failed as they were meant to."""
    restarts: int = 0
    compared: bool = False
    """Whether its weights were compared with those of an undisturbed run in serial."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU time of all its processes."""
    revision: str = ""
    """The commit of the library that was tested."""
    failures: list[str] = field(default_factory=list)
    output: str = ""
    """The end of what was printed, where something failed."""

    def require(self, holds: bool, otherwise: str) -> None:
        """Note a failure unless it holds."""
        if not holds:
            self.failures.append(otherwise)
