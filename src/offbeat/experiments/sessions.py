"""A session: one seed of a trial. Where it is kept, how it stands, and what is typed to begin it or to go on."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from offbeat.config.config import Config
from offbeat.config.trust import code_of, flag_for
from offbeat.core.errors import ConfigError
from offbeat.core.strict_json import LARGEST_RECORD, read_json
from offbeat.core.threads import usable_cores
from offbeat.experiments.trials import Trial, as_toml, spelled
from offbeat.run_directory.directory import RunDirectory

Standing = Literal["new", "lost", "unfinished", "finished"]
"""new: nothing is there; lost: it was begun, but nothing that it learned was saved; unfinished: a resume goes on."""

_TAIL = 1 << 16
"""Bytes at the end of metrics.jsonl among which its last line is looked for."""


@dataclass(frozen=True)
class Session:
    """One seed of a trial."""

    trial: Trial
    seed: int
    folder: Path
    """The trial's directory."""

    @property
    def name(self) -> str:
        return f"{self.trial.name}/seed-{self.seed}"

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.folder / f"seed-{self.seed}")

    @property
    def log(self) -> Path:
        """What the session's processes have printed."""
        return self.folder / f"seed-{self.seed}.log"

    @property
    def steps(self) -> int:
        """Env steps after which the session is over."""
        run = self.trial.config.run
        return min(run.steps, run.stop_at or run.steps)

    # --- how it stands --------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        """Look at what is on disk."""
        if not self.run.path.exists():
            return "new"
        saved = self._saved_steps()
        if saved is None:
            return "lost"
        finished = self.status().get("state") == "finished" or saved >= self.steps or self.is_over(self.last_line())
        return "finished" if finished else "unfinished"

    def is_over(self, line: dict[str, Any]) -> bool:
        """Whether a metrics line lies at or beyond the stop that the settings ask for; a resume does not know it."""
        run = self.trial.config.run
        return (run.stop_at is not None and line.get("env_steps", 0) >= run.stop_at) or (
            run.time is not None and line.get("wall_time_s", 0.0) >= run.time
        )

    def _saved_steps(self) -> int | None:
        """Return the env steps of the checkpoint that a resume goes on from, None if there is none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(read_json(self.run.checkpoints / "latest" / "policy.json", LARGEST_RECORD)["env_steps"])
        return None

    def status(self) -> dict[str, Any]:
        """Return status.json; empty if there is none."""
        return self.run.read_status()

    def last_line(self) -> dict[str, Any]:
        """Return the last whole metrics line; empty if there is none yet."""
        with suppress(OSError), self.run.metrics.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            for text in reversed(file.read().splitlines()):
                with suppress(ValueError):  # cut by a kill, or still being written
                    line: dict[str, Any] = json.loads(text)
                    return line
        return {}

    def is_locked(self) -> bool:
        """Whether a process trains in it."""
        return self.run.is_locked()

    # --- what is done with it -------------------------------------------------------------------------------

    def arguments(self) -> list[str]:
        """Return what is typed after `offbeat` to begin it, or to go on with it."""
        view = ["--progress", "lines"]
        if self.standing() == "unfinished":
            flag = flag_for(code_of(self.trial.config.tables())).split()  # of the spec, which the caller has accepted
            return ["resume", str(self.run.path), *flag, *view]
        run = self.trial.config.run
        preset = ["--preset", run.preset] if run.preset else []
        imports = [word for module in run.imports for word in ("--import", module)]
        pairs = [f"{key}={spelled(value)}" for key, value in self.trial.settings.items()]
        return [
            *("train", run.algorithm, run.env, *preset, *imports, "--run-dir", str(self.run.path), *view),
            *("--set", f"seed={self.seed}", *pairs),
        ]

    def set_aside(self) -> Path:
        """Rename a directory in which nothing was saved, so that the session can begin anew; return its new name."""
        number = 1
        while (aside := self.folder / f"seed-{self.seed}.lost-{number}").exists():
            number += 1
        return self.run.path.rename(aside)

    def require_same(self) -> None:
        """Refuse a run directory that is of another trial or seed.

        Raises:
            ConfigError: with what differs.
        """
        if not self.run.config.is_file():
            return
        there = self.run.read_config()
        here = self.trial.config.with_run(seed=self.seed)
        differences = _differences(as_toml(there.tables()), as_toml(here.tables()), _open_keys(here))
        if differences:
            raise ConfigError(
                f"{self.run.path} is a run with other settings than the spec gives it: {'; '.join(differences)}. Move "
                "it away, or give another --dir"
            )


def _open_keys(config: Config) -> set[str]:
    """Return the keys in which a run may differ from the config that it was begun with."""
    measured = {"split", "actors", "envs_per_actor", "unrolls_per_batch", "learner_threads"}
    return {"stop_at", "time"} | (measured if config.runtime.split == "measured" else set())


def _differences(there: dict[str, Any], here: dict[str, Any], leave_out: set[str]) -> list[str]:
    if there.keys() != here.keys():
        return [f"its algorithm is {there['run']['algorithm']} there and {here['run']['algorithm']} here"]
    return [
        f"{key} is {spelled(there[name].get(key))} there and {spelled(value)} here"
        for name, table in here.items()
        for key, value in table.items()
        if key not in leave_out and there[name].get(key) != value
    ]


def cores_of(config: Config) -> int:
    """Return how many cores a session keeps busy: at most those that there are."""
    runtime = config.runtime
    if runtime.split == "measured":  # then it is the session that chooses
        return usable_cores()
    return min(usable_cores(), runtime.entry.busy_cores(runtime.actors, config.workers * config.threads))
