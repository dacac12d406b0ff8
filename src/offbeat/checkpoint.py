"""Checkpoints: written to a temporary directory, synced, renamed; verified by content when they are loaded.

    checkpoints/step-000000100352/   manifest.json        what belongs here, with a SHA-256 of each file
                                     weights.safetensors  every trained array and statistic, no metadata
                                     policy.json          what the policy is, and for which env
                                     state.json, state.safetensors   the rest, in a checkpoint to resume from
    checkpoints/latest, best         links to the newest one to resume from, and to the best by evaluation

No file is ever changed in place, nothing is pickled, and what fails the check is never loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from offbeat.errors import ConfigError
from offbeat.types import Array, Tree

FORMAT = 1
"""Changes when older checkpoints can no longer be read."""
MANIFEST, WEIGHTS, POLICY = "manifest.json", "weights.safetensors", "policy.json"
STATE, STATE_ARRAYS = "state.json", "state.safetensors"
_TEMPORARY = ".writing-"
_ARRAY = "$array"
_SEPARATOR = "::"
"""Between the keys of nested dicts, in the names of arrays; leaves of observations have slashes in theirs."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    weights: Tree
    policy: dict[str, Any]
    """The policy's spec and its env, as JSON."""
    state: dict[str, Any] | None
    """Nested dicts and lists of arrays and plain values; None where only the weights were kept."""


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, directory: Path, kept: int) -> None:
        self._directory = directory
        self._kept = kept

    def path(self, name: str) -> Path:
        """Return the directory of `latest`, `best` or `step-<12 digits>`.

        Raises:
            ConfigError: there is no such checkpoint.
        """
        path = self._directory / name
        if not path.is_dir():
            known = sorted(p.name for p in self._directory.glob("*") if not p.name.startswith("."))
            raise ConfigError(
                f"{self._directory.parent} has no checkpoint {name!r}; it has {', '.join(known) or 'none'}: "
                "name one of these with --checkpoint, or train first"
            )
        return path

    def save(self, env_steps: int, checkpoint: Checkpoint, names: Sequence[str]) -> Path:
        """Write a checkpoint, whole or not at all, and let `names` (latest, best) mean it, in this order.

        Weights alone never replace a full checkpoint of the same env steps: `names` mean that one then.

        Raises:
            OSError: it could not be written; what was there before is untouched.
        """
        final = self._directory / f"step-{env_steps:012d}"
        if checkpoint.state is not None or not final.is_dir():
            self._write(final, checkpoint)
        for name in names:
            self._link(name, final)
        self._prune()
        return final

    def _write(self, final: Path, checkpoint: Checkpoint) -> None:
        self._directory.mkdir(exist_ok=True)
        temporary = self._directory / f"{_TEMPORARY}{final.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            _write(temporary, checkpoint)
            self._put(temporary, final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _put(self, temporary: Path, final: Path) -> None:
        """Move a written checkpoint to its place; one of the same env step that is there gives way."""
        if final.exists():
            replaced = self._directory / f"{_TEMPORARY}replaced"
            shutil.rmtree(replaced, ignore_errors=True)
            final.rename(replaced)
            temporary.rename(final)
            shutil.rmtree(replaced)
        else:
            temporary.rename(final)
        _sync(self._directory)

    def _link(self, name: str, target: Path) -> None:
        """Let `name` mean `target`, in one step."""
        temporary = self._directory / f"{_TEMPORARY}{name}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target.name)
        temporary.replace(self._directory / name)
        _sync(self._directory)

    def full(self) -> list[str]:
        """Return the names of those that can be resumed from, oldest first."""
        return sorted(path.parent.name for path in self._directory.glob(f"step-*/{STATE}"))

    def drop_beyond(self, env_steps: int) -> None:
        """Delete those of more env steps: a run that goes on from here will make its own."""
        beyond = [p for p in self._directory.glob("step-*") if int(p.name.removeprefix("step-")) > env_steps]
        for path in beyond:
            shutil.rmtree(path)
        for link in self._directory.iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink()

    def _prune(self) -> None:
        """Keep the newest full ones and those that a link means; delete what a killed run left half written, too."""
        linked = {p.resolve().name for p in self._directory.iterdir() if p.is_symlink()}
        kept = {*self.full()[-self._kept :], *linked}
        superseded = [p for p in self._directory.glob("step-*") if p.name not in kept]
        for path in [*superseded, *self._directory.glob(f"{_TEMPORARY}*")]:
            shutil.rmtree(path, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and verify it.

    Raises:
        ConfigError: a file is missing, cut short or changed, or the format is another one.
    """
    resolved = path.resolve()  # once: a run that goes on may change what `latest` means between two files
    try:
        return _load(resolved)
    except (OSError, ConfigError):
        if resolved.is_dir() or path.resolve() == resolved:
            raise
    return _load(path.resolve())  # it deleted what `latest` meant then


def _load(path: Path) -> Checkpoint:
    manifest = _read_manifest(path)
    for name, expected in manifest["files"].items():
        _verify(path / name, expected)
    state = _join(json.loads((path / STATE).read_text()), load_file(path / STATE_ARRAYS)) if manifest["full"] else None
    return Checkpoint(load_file(path / WEIGHTS), json.loads((path / POLICY).read_text()), state)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        listed = set(manifest["files"])
        expected = {WEIGHTS, POLICY} | ({STATE, STATE_ARRAYS} if manifest["full"] else set())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"{MANIFEST} cannot be read ({error})") from None
    if manifest.get("format") != FORMAT:
        raise ConfigError(
            f"{path} has checkpoint format {manifest.get('format')}, but this offbeat reads format {FORMAT}: "
            "use the version of offbeat that wrote it"
        )
    if listed != expected:
        raise _damaged(path, f"{MANIFEST} lists {sorted(listed)} where {sorted(expected)} belong there")
    return manifest


def _verify(path: Path, expected: str) -> None:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise _damaged(path.parent, f"{path.name} cannot be read ({error.strerror})") from None
    if found != expected:
        raise _damaged(path.parent, f"{path.name} is not what was written (SHA-256 differs)")


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"the checkpoint {path} is damaged: {what}. Nothing was loaded and nothing changed. "
        f"Other checkpoints of the run are in {path.resolve().parent}"
    )


# --- writing ------------------------------------------------------------------------------------------------


def _write(directory: Path, checkpoint: Checkpoint) -> None:
    directory.mkdir()
    _dump_arrays(directory / WEIGHTS, checkpoint.weights)
    _dump(directory / POLICY, checkpoint.policy)
    if checkpoint.state is not None:
        arrays: Tree = {}
        _dump(directory / STATE, _split(checkpoint.state, "", arrays))
        _dump_arrays(directory / STATE_ARRAYS, arrays)
    hashes = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(directory.iterdir())}
    _dump(directory / MANIFEST, {"format": FORMAT, "full": checkpoint.state is not None, "files": hashes})
    for path in [*directory.iterdir(), directory]:
        _sync(path)


def _dump(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1))


def _dump_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    # Not save_file, which does not raise OSError when the disk is full.
    path.write_bytes(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _split(value: Any, path: str, arrays: Tree) -> Any:
    """Return `value` as JSON, its arrays moved to `arrays` and named by their path."""
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {_ARRAY: path}
    if isinstance(value, Mapping):
        return {key: _split(item, f"{path}{_SEPARATOR}{key}", arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_split(item, f"{path}{_SEPARATOR}{i}", arrays) for i, item in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _join(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Undo `_split`."""
    if isinstance(value, dict):
        if _ARRAY in value:
            return arrays[value[_ARRAY]]
        return {key: _join(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_join(item, arrays) for item in value]
    return value
