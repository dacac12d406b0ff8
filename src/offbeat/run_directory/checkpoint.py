"""Checkpoints: written to a temporary directory, synced, renamed; verified by content when they are loaded.

    checkpoints/step-000000100352/   manifest.json        what belongs here, with a SHA-256 of each file
                                     weights.safetensors  every trained array and statistic, no metadata
                                     policy.json          what the policy is, and for which env
                                     state.json, state.safetensors   the rest, in a checkpoint to resume from
                                     replay.safetensors   the replay, in the newest of those alone
    checkpoints/latest, best         links to the newest one to resume from, and to the best by evaluation

Each save has a directory of its own: a second one at the same env step is step-000000100352-2. So a link leads to a
whole checkpoint at every moment. No file is ever changed in place, nothing is pickled, and what fails the check is
never loaded. A replay may be larger than what is left of the memory: it is written in chunks, and read through a map of
its file.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save

from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.files import sync
from offbeat.core.strict_arrays import KINDS, LENGTH_BYTES, map_arrays, read_arrays
from offbeat.core.strict_json import Unreadable, read_json, require_regular
from offbeat.core.types import Array, Tree

FORMAT = 2
"""Changes when older checkpoints can no longer be read."""
MANIFEST, WEIGHTS, POLICY = "manifest.json", "weights.safetensors", "policy.json"
STATE, STATE_ARRAYS = "state.json", "state.safetensors"
REPLAY, MANIFEST_WITHOUT_REPLAY = "replay.safetensors", "manifest-without-replay.json"
DROPPED = "dropped"
"""In a manifest, in place of the hash of a replay that was deleted when a newer one was complete."""
MANIFEST_BYTES, POLICY_BYTES, STATE_BYTES = 2**20, 2**22, 2**28
"""How large these may be: text takes many times its size in memory when it is parsed."""
_TEMPORARY = ".writing-"
_STEP = "step-"
_NAME = re.compile(r"step-(\d+)(?:-(\d+))?")
"""Env steps, and which save of them it is, unless it is the first."""
_ARRAY = "$array"
_SEPARATOR = "::"
"""Between the keys of nested dicts, in the names of arrays; leaves of observations have slashes in theirs."""

T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    weights: Tree
    policy: dict[str, Any]
    """The policy's spec and its env, as JSON."""
    state: dict[str, Any] | None
    """Nested dicts and lists of arrays and plain values; None where only the weights were kept."""
    replay: Tree | None = None
    """The arrays of a replay, beside a state: to save, views on the live ones; loaded, read-only views on the file."""
    replay_dropped: bool = False
    """Whether one that was loaded had a replay, which was not kept when a newer one was complete."""


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, directory: Path, kept: int) -> None:
        self._directory = directory
        self._kept = kept
        self._last: tuple[tuple[int, dict[str, Any]], Path] | None = None
        """Env steps and policy of what was saved last here, and where it is."""

    def path(self, name: str) -> Path:
        """Return the directory of `latest`, `best` or `step-<12 digits>`, the newest where there are several.

        Raises:
            ConfigError: there is no such checkpoint.
        """
        found = self._of_step(name) if name.startswith(_STEP) else []
        path = found[-1] if found else self._directory / name
        if not path.is_dir():
            known = sorted(p.name for p in self._directory.glob("*") if not p.name.startswith("."))
            raise ConfigError(
                f"{self._directory.parent} has no checkpoint {name!r}; it has {', '.join(known) or 'none'}: "
                "name one of these with --checkpoint, or train first"
            )
        return path

    def save(self, env_steps: int, checkpoint: Checkpoint, names: Sequence[str]) -> Path:
        """Write a checkpoint, whole or not at all, and let `names` (latest, best) mean it, in this order.

        Weights alone are not written again where they follow another checkpoint of the same env steps and policy:
        `names` mean that one then. Once `latest` means a checkpoint with a replay, the others lose theirs.

        Raises:
            OSError: it could not be written; what was there before is untouched.
        """
        if self._last and checkpoint.state is None and self._last[0] == (env_steps, checkpoint.policy):
            final = self._last[1]
        else:
            final = self._write(env_steps, checkpoint)
            self._last = ((env_steps, checkpoint.policy), final)
        for name in names:
            self._link(name, final)
        sync(self._directory)
        self._prune()
        return final

    def _write(self, env_steps: int, checkpoint: Checkpoint) -> Path:
        if not self._directory.is_dir():
            self._directory.mkdir()
            sync(self._directory.parent)
        name = f"{_STEP}{env_steps:012d}"
        before = self._of_step(name)
        final = self._directory / (f"{name}-{_order(before[-1])[1] + 1}" if before else name)
        temporary = self._directory / f"{_TEMPORARY}{final.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            write(temporary, checkpoint)
            temporary.rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync(self._directory)
        return final

    def _link(self, name: str, target: Path) -> None:
        """Let `name` mean `target`, in one step."""
        temporary = self._directory / f"{_TEMPORARY}{name}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target.name)
        temporary.replace(self._directory / name)

    def full(self) -> list[str]:
        """Return the names of those that can be resumed from, oldest first."""
        return [path.name for path in self._steps() if (path / STATE).exists()]

    def drop_beyond(self, env_steps: int) -> None:
        """Delete those of more env steps, but for the best: a run that goes on from here will make its own.

        What cannot be deleted costs room, not the run.
        """
        best = (self._directory / "best").resolve().name
        for path in [p for p in self._steps() if _order(p)[0] > env_steps and p.name != best]:
            with suppress(OSError):
                self._delete(path)
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
        """Keep the newest full ones up to the latest, and what a link means; delete what a killed run left, too.

        What cannot be deleted costs room, not the run; the next save tries again.
        """
        for path in self._directory.glob(f"{_TEMPORARY}*"):
            with suppress(OSError):
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
        latest = (self._directory / "latest").resolve().name
        if (self._directory / latest / REPLAY).exists():
            for replay in self._directory.glob(f"{_STEP}*/{REPLAY}"):
                with suppress(OSError):
                    if replay.parent.name != latest:
                        _drop_replay(replay)
        linked = {path.resolve().name for path in self._directory.iterdir() if path.is_symlink()}
        kept = {*self._newest(latest), *linked}
        for path in [p for p in self._steps() if p.name not in kept]:
            with suppress(OSError):
                self._delete(path)

    def _newest(self, latest: str) -> list[str]:
        """Return the newest full ones that are kept: one an env step, and none beyond the latest."""
        last = _order(Path(latest)) if _NAME.fullmatch(latest) else None
        full = [(_order(Path(name)), name) for name in self.full()]
        of_step = {order[0]: name for order, name in full if last is None or order <= last}
        return list(of_step.values())[-self._kept :]

    def _delete(self, path: Path) -> None:
        """Delete a checkpoint; it is gone in one step, so that there is never one that lacks some of its files."""
        doomed = self._directory / f"{_TEMPORARY}{path.name}"
        path.rename(doomed)
        shutil.rmtree(doomed)


def _order(path: Path) -> tuple[int, int]:
    """Return the env steps of a checkpoint, and which of their saves it is, counted from 1."""
    found = _NAME.fullmatch(path.name)
    assert found, path
    return int(found[1]), int(found[2] or 1)


def _drop_replay(replay: Path) -> None:
    """Delete a checkpoint's replay; whatever breaks this off, the manifest lists nothing that is not there.

    The other manifest lies ready: on a full disk, where room is needed most, none could be written.
    """
    without = replay.with_name(MANIFEST_WITHOUT_REPLAY)
    if without.exists():  # else this was broken off after the next line
        without.replace(replay.with_name(MANIFEST))
    sync(replay.parent)
    replay.unlink()


def load(path: Path, *, with_replay: bool = False) -> Checkpoint:
    """Read a checkpoint and verify it.

    Args:
        path: its directory, or a link to it.
        with_replay: read and verify the replay too, which only a resume needs. Its arrays are read-only views on the
            file, not copies, and stay valid if the checkpoint is deleted.

    Raises:
        ConfigError: a file is missing, cut short or changed, is none of what belongs there, or the format is another.
    """
    resolved = path.resolve()  # once: a run that goes on may change what `latest` means between two files
    try:
        return _load(resolved, with_replay)
    except (OSError, ConfigError):
        if resolved.is_dir() or path.resolve() == resolved:
            raise
    return _load(path.resolve(), with_replay)  # it deleted what `latest` meant then


def _load(path: Path, with_replay: bool) -> Checkpoint:
    manifest = _read_manifest(path)
    for name, expected in manifest["files"].items():
        _verify(path / name, expected)
    state = _read(path / STATE_ARRAYS, _with_arrays) if manifest["full"] else None
    weights, policy = _read(path / WEIGHTS, read_arrays), _read(path / POLICY, partial(read_json, most=POLICY_BYTES))
    listed = manifest.get("replay")  # no such entry before there were replays
    if listed is None or listed == DROPPED or not with_replay:
        return Checkpoint(weights, policy, state, None, listed == DROPPED)
    _verify(path / REPLAY, listed)
    return Checkpoint(weights, policy, state, _read(path / REPLAY, map_arrays))


def _read(path: Path, reader: Callable[[Path], T]) -> T:
    """Read one file; whatever is wrong with it is damage."""
    try:
        return reader(path)
    except OSError as error:
        raise _damaged(path.parent, f"{path.name} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise _damaged(path.parent, f"{path.name} {error}") from None


def _with_arrays(path: Path) -> dict[str, Any]:
    """Return the state beside its arrays, which are put back where they belong."""
    state: dict[str, Any] = _join(read_json(path.with_name(STATE), STATE_BYTES), read_arrays(path))
    return state


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = _read(path / MANIFEST, partial(read_json, most=MANIFEST_BYTES))
    if type(manifest.get("format")) is not int or manifest["format"] != FORMAT:
        raise ConfigError(
            f"{path} has checkpoint format {in_short(manifest.get('format'))}, but this offbeat reads format {FORMAT}: "
            "use the version of offbeat that wrote it"
        )
    unknown = set(manifest) - {"format", "full", "files", "replay"}
    if unknown:
        raise _damaged(path, f"{MANIFEST} has entries that do not belong there: {in_short(sorted(unknown))}")
    files, full, replay = manifest.get("files"), manifest.get("full"), manifest.get("replay")
    if not (isinstance(files, dict) and isinstance(full, bool) and isinstance(replay, str | None)):
        raise _damaged(path, f"{MANIFEST} does not say what belongs to the checkpoint")
    expected = {WEIGHTS, POLICY} | ({STATE, STATE_ARRAYS} if full else set())
    if set(files) != expected:
        raise _damaged(path, f"{MANIFEST} lists {in_short(sorted(files))} where {sorted(expected)} belong there")
    return manifest


def _verify(path: Path, expected: object) -> None:
    if _read(path, _regular_sha256) != expected:
        raise _damaged(path.parent, f"{path.name} is not what was written (SHA-256 differs)")


def _regular_sha256(path: Path) -> str:
    require_regular(path)
    return _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"the checkpoint {path} is damaged: {what}. Nothing was loaded and nothing changed. "
        f"Other checkpoints of the run are in {path.resolve().parent}"
    )


# --- writing ------------------------------------------------------------------------------------------------


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a directory, which is made; all of it is on the disk when this returns.

    Raises:
        OSError: it could not be written.
    """
    directory.mkdir()
    _dump_arrays(directory / WEIGHTS, checkpoint.weights)
    _dump(directory / POLICY, checkpoint.policy)
    if checkpoint.state is not None:
        arrays: Tree = {}
        _dump(directory / STATE, _split(checkpoint.state, "", arrays))
        _dump_arrays(directory / STATE_ARRAYS, arrays)
    hashes = {path.name: _sha256(path) for path in sorted(directory.iterdir())}
    manifest = {"format": FORMAT, "full": checkpoint.state is not None, "files": hashes, "replay": None}
    if checkpoint.replay is not None:
        manifest["replay"] = _stream_arrays(directory / REPLAY, checkpoint.replay)
        _dump(directory / MANIFEST_WITHOUT_REPLAY, manifest | {"replay": DROPPED})
    _dump(directory / MANIFEST, manifest)
    for path in [*directory.iterdir(), directory]:
        sync(path)


def _dump(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1))


def _dump_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    # Not save_file, which does not raise OSError when the disk is full.
    path.write_bytes(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


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
            return _named(value, arrays)
        return {key: _join(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_join(item, arrays) for item in value]
    return value


def _named(value: Mapping[str, Any], arrays: Mapping[str, Array]) -> Array:
    name = value[_ARRAY]
    if len(value) > 1 or not isinstance(name, str) or name not in arrays:
        raise Unreadable(f"does not have the array {in_short(name)} that {STATE} speaks of")
    return arrays[name]


# --- the replay's file --------------------------------------------------------------------------------------

CHUNK_BYTES = 1 << 20
"""At most so much of a replay is copied at a time."""
_ALIGNMENT = 64
"""Bytes. Where the first array begins; the others, ordered by the size of their items, at a multiple of that size."""
_NAMES = {np.dtype(kind): name for name, kind in KINDS.items()}


def _stream_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write arrays as a safetensors file, a chunk at a time, and return its SHA-256.

    The format: eight bytes with the length of the header, little-endian; the header, JSON, padded with spaces; the
    arrays in C order, without gaps. safetensors' own `save` needs a second copy of them all in memory.

    Raises:
        OSError: it could not be written, for want of room perhaps.
        KeyError: the dtype of an array has no name in the format.
    """
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    chunks: Iterator[bytes | memoryview] = chain.from_iterable(_chunks(array) for _, array in ordered)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        # A copy of each chunk: what is hashed is what is written, whoever may be writing to the array meanwhile.
        for chunk in chain([_header(ordered)], map(bytes, chunks)):
            file.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()


def _header(arrays: Sequence[tuple[str, Array]]) -> bytes:
    entries, end = {}, 0
    for name, array in arrays:
        begin, end = end, end + array.nbytes
        entries[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(entries).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _chunks(array: Array) -> Iterator[memoryview]:
    """Yield an array's bytes in C order, at most `CHUNK_BYTES` at a time; copies only where it has gaps."""
    if array.nbytes <= CHUNK_BYTES:
        yield np.ascontiguousarray(array).data
        return
    rows = CHUNK_BYTES // array[0].nbytes
    for first in range(0, len(array), max(1, rows)):
        yield from _chunks(array[first : first + rows] if rows else array[first])
