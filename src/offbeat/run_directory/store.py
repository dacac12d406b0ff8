"""The checkpoints of one run: saving, links (`latest` and `best`), and the deletion of old ones.

A checkpoint is written to a temporary directory, synced and renamed. Each save has its own directory: a second one at
the same env step is step-000000100352-2. So a link always points to a complete checkpoint.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.files import sync
from offbeat.run_directory.checkpoint import (
    MANIFEST,
    MANIFEST_WITHOUT_REPLAY,
    REPLAY,
    STATE,
    Checkpoint,
    DamagedCheckpoint,
    load,
    write,
)

LATEST, BEST = "latest", "best"
"""Names of links to checkpoints. A run is resumed from the latest by default."""
TEMPORARY = ".writing-"
"""Prefix of the names of directories and links that are not complete."""
_STEP = "step-"
_NAME = re.compile(r"step-(\d+)(?:-(\d+))?")
"""Env steps, and the number of the save at this env step, unless it is the first."""


class CheckpointStore:
    """The checkpoints in one directory.

    Args:
        directory: Path of the directory; it is created by the first save.
        max_full: Number of full checkpoints to keep.
    """

    def __init__(self, directory: Path, max_full: int) -> None:
        self._directory = directory
        self._max_full = max_full
        self._last: tuple[tuple[int, list[dict[str, Any]]], Path] | None = None
        """Env steps and policies of the last save, and its path."""

    def path(self, name: str) -> Path:
        """Return the path of `latest`, `best` or `step-<12 digits>`: its newest full save, or else its newest.

        Raises:
            ConfigError: there is no such checkpoint.
        """
        found = self._of_step(name) if name.startswith(_STEP) else []
        full = [path for path in found if (path / STATE).exists()]
        path = (full or found or [self._directory / name])[-1]
        if not path.is_dir():
            raise self._missing(name)
        return path

    def _missing(self, name: str) -> ConfigError:
        known = sorted(p.name for p in self._directory.glob("*") if p.is_dir() and not p.name.startswith("."))
        if not known:
            return ConfigError(f"{self._directory.parent} has no checkpoints: pass another run, or train a new one")
        return ConfigError(
            f"{self._directory.parent} has no checkpoint {name!r}; it has {', '.join(known)}: pass one of these with "
            "--checkpoint"
        )

    def load(self, name: str, *, with_state: bool = True, with_replay: bool = False) -> Checkpoint:
        """Read and verify a checkpoint.

        Args:
            name: as for `path`.
            with_state: as for `checkpoint.load`.
            with_replay: as for `checkpoint.load`.

        Raises:
            ConfigError: there is no such checkpoint, or it is damaged; the message has the command to resume from
                another one.
        """
        path = self.path(name)
        try:
            return load(path, with_state=with_state, with_replay=with_replay)
        except DamagedCheckpoint as error:
            where = f"Other checkpoints of the run are in {self._directory}"
            raise ConfigError(f"{error}. {where}{self.how_to_resume(but=path.resolve().name)}") from error

    def how_to_resume(self, *, but: str) -> str:
        """Return how to resume the run from its newest full checkpoint but the one of this name; '' if there is none.

        The text continues a sentence.
        """
        others = [name for name in self.full() if name != but and self.path(name).name == name]
        if not others:
            return ""
        run = quote(str(self._directory.parent))
        return f": to resume from {others[-1]}, run `offbeat resume {run} --checkpoint {others[-1]}`"

    def save(self, env_steps: int, checkpoint: Checkpoint, names: Sequence[str]) -> Path:
        """Write a checkpoint atomically, and link `names` (latest, best) to it, in this order.

        A checkpoint with only weights is not written if the last one has the same env steps and policies: `names` are
        then linked to the last one. When `latest` has a replay, the replays of all other checkpoints are deleted.

        Raises:
            OSError: it could not be written; the existing checkpoints are unchanged.
        """
        saved = (env_steps, [policy.about for policy in checkpoint.policies.values()])
        if self._last and checkpoint.state is None and self._last[0] == saved and self._last[1].is_dir():
            final = self._last[1]
        else:
            final = self._write(env_steps, checkpoint)
            self._last = (saved, final)
        for name in names:
            self._link(name, final)
        sync(self._directory)
        with suppress(OSError):
            self._prune()
        return final

    def _write(self, env_steps: int, checkpoint: Checkpoint) -> Path:
        if not self._directory.is_dir():
            self._directory.mkdir()
            sync(self._directory.parent)
        name = f"{_STEP}{env_steps:012d}"
        before = self._of_step(name)
        final = self._directory / (f"{name}-{_order(before[-1])[1] + 1}" if before else name)
        write_whole(final, checkpoint)
        return final

    def _link(self, name: str, target: Path) -> None:
        """Link `name` to `target`, atomically. A directory `name` is moved aside, and deleted by the next save."""
        temporary = self._directory / f"{TEMPORARY}{name}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target.name)
        link = self._directory / name
        shutil.rmtree(self._moved_aside(name), ignore_errors=True)  # of an earlier call, which is not to be undone now
        try:
            if link.is_dir() and not link.is_symlink():  # a program has copied the run with what its links point to
                link.rename(self._moved_aside(name))
            temporary.replace(link)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _moved_aside(self, name: str) -> Path:
        return self._directory / f"{TEMPORARY}{name}-directory"

    def full(self) -> list[str]:
        """Return the names of the full checkpoints, from which a run can be resumed, oldest first."""
        return [path.name for path in self._steps() if (path / STATE).exists()]

    def linked_latest(self) -> str | None:
        """Return the name of the checkpoint that `latest` links to; None if it is no link."""
        link = self._directory / LATEST
        return link.resolve().name if link.is_symlink() else None

    def make_latest(self, name: str) -> None:
        """Link `latest` to the checkpoint whose directory has exactly this name, such as step-<12 digits>-2.

        Raises:
            OSError: the link could not be changed.
        """
        self._link(LATEST, self._directory / name)
        sync(self._directory)

    def restore_latest(self, linked: str | None) -> None:
        """Undo `make_latest`, also one that has failed. `linked`: what `linked_latest` returned before.

        Raises:
            OSError: the link could not be changed.
        """
        if linked is not None:
            self.make_latest(linked)
            return
        link, directory = self._directory / LATEST, self._moved_aside(LATEST)
        if link.is_symlink():
            link.unlink()
        if directory.is_dir():
            directory.rename(link)
        sync(self._directory)

    def drop_beyond(self, env_steps: int) -> None:
        """Delete checkpoints with more env steps than `env_steps`, except the best: the resumed run saves new ones.

        Errors are ignored: a file that cannot be deleted only takes space.
        """
        best = (self._directory / BEST).resolve().name
        for path in [p for p in self._steps() if _order(p)[0] > env_steps and p.name != best]:
            with suppress(OSError):
                delete_whole(path)
        with suppress(OSError):
            for link in self._directory.iterdir():
                if link.is_symlink() and not link.exists():
                    link.unlink()

    def _steps(self) -> list[Path]:
        """Return all checkpoints, oldest first."""
        found = (path for path in self._directory.glob(f"{_STEP}*") if _NAME.fullmatch(path.name))
        return sorted(found, key=_order)

    def _of_step(self, name: str) -> list[Path]:
        """Return the checkpoints of one env step, oldest first."""
        return [path for path in self._steps() if path.name == name or path.name.startswith(f"{name}-")]

    def _prune(self) -> None:
        """Delete temporary files of a killed run, and all checkpoints except the linked and the newest full ones.

        Errors are ignored: a file that cannot be deleted only takes space, and the next save tries again.
        """
        for path in self._directory.glob(f"{TEMPORARY}*"):
            with suppress(OSError):
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
        latest = (self._directory / LATEST).resolve().name
        if (self._directory / latest / REPLAY).exists():
            for replay in self._directory.glob(f"{_STEP}*/{REPLAY}"):
                with suppress(OSError):
                    if replay.parent.name != latest:
                        _drop_replay(replay)
        linked = {path.resolve().name for path in self._directory.iterdir() if path.is_symlink()}
        needed = {*self._newest(latest), *linked}
        for path in [p for p in self._steps() if p.name not in needed]:
            with suppress(OSError):
                delete_whole(path)

    def _newest(self, latest: str) -> list[str]:
        """Return the full checkpoints to keep: one per env step, none newer than `latest`."""
        last = _order(Path(latest)) if _NAME.fullmatch(latest) else None
        full = [(_order(Path(name)), name) for name in self.full()]
        of_step = {order[0]: name for order, name in full if last is None or order <= last}
        return list(of_step.values())[-self._max_full :]


def write_whole(final: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint to a temporary directory, sync it and rename it to `final`, whose folder exists.

    Raises:
        OSError: it could not be written. Nothing of it is left.
    """
    temporary = final.with_name(f"{TEMPORARY}{final.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        write(temporary, checkpoint)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync(final.parent)


def delete_whole(path: Path) -> None:
    """Delete a checkpoint. It is renamed first, so that a partly deleted one is never found.

    Raises:
        OSError: it could not be deleted.
    """
    renamed = path.with_name(f"{TEMPORARY}{path.name}")
    path.rename(renamed)
    shutil.rmtree(renamed)


def _order(path: Path) -> tuple[int, int]:
    """Return the env steps of a checkpoint, and the number of its save at that env step, counted from 1."""
    found = _NAME.fullmatch(path.name)
    assert found, path
    return int(found[1]), int(found[2] or 1)


def _drop_replay(replay: Path) -> None:
    """Delete a checkpoint's replay. If this is interrupted, the manifest still lists only files that exist.

    The manifest without the replay was written with the checkpoint, because a full disk has no space for a new file.
    """
    without = replay.with_name(MANIFEST_WITHOUT_REPLAY)
    if without.exists():  # otherwise an earlier call was interrupted after the next line
        without.replace(replay.with_name(MANIFEST))
    sync(replay.parent)
    replay.unlink()
