"""The files of a checkpoint: how they are written, verified by content, and loaded.

    checkpoints/step-000000100352/   manifest.json        the list of files, each with its SHA-256
                                     weights.safetensors  every trained array and statistic, no metadata
                                     policy.json          the spec of the policy and its env
                                     policies/NAME/       these two, for each policy of a run that has several
                                     state.json, state.safetensors   all other state, in a full checkpoint
                                     replay.safetensors   the replay, only in the newest full checkpoint
    checkpoints/latest, best         links to the newest full checkpoint, and to the best one by evaluation

No file is changed in place, nothing is pickled, and a checkpoint that fails the verification is never loaded. A replay
may be larger than the free memory: it is written in chunks, and read through a memory map. `store.py` decides which
checkpoints a run keeps.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.files import sync
from offbeat.core.policy_names import DEFAULT_POLICY, policy_key
from offbeat.core.saved_state import DTYPE_NAMES, join, split
from offbeat.core.strict_json import Unreadable, read_json, require_regular
from offbeat.core.types import Array, Tree

FORMAT = 4
"""Version of the format. A checkpoint of another one is refused."""
MANIFEST, WEIGHTS, POLICY = "manifest.json", "weights.safetensors", "policy.json"
STATE, STATE_ARRAYS = "state.json", "state.safetensors"
REPLAY, MANIFEST_WITHOUT_REPLAY = "replay.safetensors", "manifest-without-replay.json"
DROPPED = "dropped"
"""Value in a manifest, instead of the hash, for a replay that was deleted after a newer one was complete."""
MANIFEST_BYTES, POLICY_BYTES, STATE_BYTES = 2**20, 2**22, 2**28
"""Maximum sizes in bytes, because parsing JSON takes many times its size in memory."""
LENGTH_BYTES, LONGEST_HEADER = 8, 100_000_000
"""Size of the length of a safetensors header, and the longest header that safetensors reads, in bytes."""
POLICY_NAME = r"[\w-][\w.-]*"
"""Name of a policy, of any version of offbeat. It cannot contain a path that leads out of the folder."""
_WEIGHTS_FILE = re.compile(rf"(?:policies/(?P<name>{POLICY_NAME})/)?{re.escape(WEIGHTS)}")
"""Path of the weights of a policy."""

T = TypeVar("T")


class TooLarge(OSError):
    """A file of a checkpoint would be larger than what is read again. It is not written."""


class DamagedCheckpoint(ConfigError):
    """A file of a checkpoint is missing, truncated, changed or unexpected. Nothing was loaded or changed."""


@dataclass(frozen=True)
class SavedPolicy:
    """One policy in a checkpoint."""

    weights: Tree
    about: dict[str, Any]
    """Its spec and its env, as JSON."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    policies: Mapping[str, SavedPolicy]
    """By name: `DEFAULT_POLICY` alone in a run with one policy."""
    state: dict[str, Any] | None
    """Nested dicts and lists of arrays and plain values; None if only the weights were saved."""
    replay: Tree | None = None
    """The arrays of a replay: when saving, views of the live arrays; when loaded, read-only views of the file."""
    replay_dropped: bool = False
    """Whether a loaded checkpoint had a replay that was deleted after a newer one was complete."""

    @classmethod
    def of_one(cls, weights: Tree, policy: dict[str, Any], state: dict[str, Any] | None) -> Checkpoint:
        """Return the checkpoint of a run with one policy, without a replay."""
        return cls({DEFAULT_POLICY: SavedPolicy(weights, policy)}, state)

    @property
    def weights_by_policy(self) -> dict[str, Tree]:
        """The weights of each policy."""
        return {name: policy.weights for name, policy in self.policies.items()}

    @property
    def weights(self) -> Tree:
        """The weights of the only policy."""
        return self._only.weights

    @property
    def policy(self) -> dict[str, Any]:
        """The spec of the only policy and its env, as JSON."""
        return self._only.about

    @property
    def _only(self) -> SavedPolicy:
        (only,) = self.policies.values()
        return only


def load(path: Path, *, with_state: bool = True, with_replay: bool = False) -> Checkpoint:
    """Read a checkpoint and verify it.

    Args:
        path: Path of its directory, or of a link to it.
        with_state: Whether to read the other state too, which takes many times the memory of its file and is not
            needed to play. Without it, `state` is None.
        with_replay: Whether to read and verify the replay too, which only a resume needs. Its arrays are read-only
            views of the file, and stay valid if the checkpoint is deleted.

    Raises:
        DamagedCheckpoint: a file is missing, truncated, changed or unexpected.
        ConfigError: it does not exist, or the format has another version.
    """
    resolved = path.resolve()  # once: a running process may change the link `latest` between two files
    try:
        return _load(resolved, with_state, with_replay)
    except (OSError, ConfigError):
        if resolved.is_dir():
            raise
        if path.resolve() == resolved:
            raise ConfigError(
                f"the checkpoint {path} does not exist: if the run still trains, it was deleted a moment ago, because "
                "newer ones replace it. Try again, or name another one"
            ) from None
    return _load(path.resolve(), with_state, with_replay)  # the linked checkpoint was deleted: read the new one


def agents_in(path: Path) -> dict[str, list[str]]:
    """Return the agents of each policy of a checkpoint, without reading its weights. The files are not verified."""
    found = path.resolve()
    policies = _policies_of(_read_manifest(found)["files"])
    return {policy: _read_about(found, policy).get("agents", []) for policy in policies}


def _load(path: Path, with_state: bool, with_replay: bool) -> Checkpoint:
    manifest = _read_manifest(path)
    for name, expected in manifest["files"].items():
        _verify(path, name, expected)
    state = _read(path, STATE_ARRAYS, _with_arrays) if manifest["full"] and with_state else None
    policies = {policy: _read_policy(path, policy) for policy in _policies_of(manifest["files"])}
    listed = manifest["replay"]
    if listed is None or listed == DROPPED or not with_replay:
        return Checkpoint(policies, state, None, listed == DROPPED)
    _verify(path, REPLAY, listed)
    return Checkpoint(policies, state, _read(path, REPLAY, _map_arrays))


def _policies_of(files: Iterable[str]) -> list[str]:
    """Return the names of the policies whose weights are among the files of a manifest."""
    found = filter(None, map(_WEIGHTS_FILE.fullmatch, files))
    return sorted(match["name"] or DEFAULT_POLICY for match in found)


def _read_policy(path: Path, policy: str) -> SavedPolicy:
    weights = _read(path, policy_key(policy, WEIGHTS), _read_arrays)
    return SavedPolicy(weights, _read_about(path, policy))


def _read_about(path: Path, policy: str) -> dict[str, Any]:
    return _read(path, policy_key(policy, POLICY), partial(read_json, max_bytes=POLICY_BYTES))


def _read(checkpoint: Path, name: str, reader: Callable[[Path], T]) -> T:
    """Read one file of a checkpoint. If this fails, the checkpoint is damaged."""
    try:
        return reader(checkpoint / name)
    except OSError as error:
        raise _damaged(checkpoint, f"{name} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise _damaged(checkpoint, f"{name} {error}") from None


def _with_arrays(path: Path) -> dict[str, Any]:
    """Return the state with its arrays inserted."""
    return join(read_json(path.with_name(STATE), STATE_BYTES), _read_arrays(path))


def _map_arrays(path: Path) -> Tree:
    """Return read-only views of the arrays in a safetensors file."""
    arrays = _read_arrays(path, "pt")  # torch maps the file into memory
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def _read_arrays(path: Path, framework: str = "numpy") -> Tree:
    """Return the arrays in a safetensors file. Such a file cannot contain code.

    Raises:
        Unreadable: the header is invalid, or does not match the data, or names a dtype that no checkpoint has.
    """
    try:
        with safe_open(path, framework) as file:
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - it is no dict
    except (SafetensorError, AttributeError, TypeError, ValueError) as error:  # the last three: unknown dtypes, shapes
        raise Unreadable(f"cannot be read ({str(error)[:300]})") from None
    for name, array in arrays.items():
        if array.dtype not in DTYPE_NAMES:
            raise Unreadable(f"has {in_short(name)} in an unknown dtype")
    return arrays


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = _read(path, MANIFEST, partial(read_json, max_bytes=MANIFEST_BYTES))
    if type(manifest.get("format")) is not int or manifest["format"] != FORMAT:
        raise ConfigError(
            f"{path} has checkpoint format {in_short(manifest.get('format'))}, but this offbeat reads format {FORMAT}: "
            "use the version of offbeat that saved it"
        )
    unknown = set(manifest) - {"format", "full", "files", "replay"}
    if unknown:
        raise _damaged(path, f"{MANIFEST} has unknown entries: {in_short(sorted(unknown))}")
    files, full, replay = manifest.get("files"), manifest.get("full"), manifest.get("replay")
    listed = "replay" in manifest and isinstance(replay, str | None)
    if not (isinstance(files, dict) and isinstance(full, bool) and listed):
        raise _damaged(path, f"{MANIFEST} does not list the files of the checkpoint")
    policies = _policies_of(files) or [DEFAULT_POLICY]
    expected = {policy_key(policy, name) for policy in policies for name in (WEIGHTS, POLICY)}
    expected |= {STATE, STATE_ARRAYS} if full else set()
    if set(files) != expected:
        raise _damaged(path, f"{MANIFEST} lists {in_short(sorted(files))} where {sorted(expected)} are expected")
    return manifest


def _verify(checkpoint: Path, name: str, expected: object) -> None:
    if _read(checkpoint, name, _regular_sha256) != expected:
        raise _damaged(checkpoint, f"{name} was changed after it was saved (SHA-256 differs)")


def _regular_sha256(path: Path) -> str:
    require_regular(path)
    return _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path, what: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(f"the checkpoint {path} is damaged: {what}. Nothing was loaded or changed")


# --- writing ------------------------------------------------------------------------------------------------


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Create a directory and write a checkpoint into it. All files are synced when this returns.

    Raises:
        OSError: a file could not be written.
        TooLarge: a file is larger than `load` reads.
    """
    directory.mkdir()
    for name, policy in checkpoint.policies.items():
        folder = directory / policy_key(name)
        folder.mkdir(parents=True, exist_ok=True)
        _dump_arrays(folder / WEIGHTS, policy.weights)
        _dump(folder / POLICY, policy.about, POLICY_BYTES)
    if checkpoint.state is not None:
        state, arrays = split(checkpoint.state)
        _dump(directory / STATE, state, STATE_BYTES, indent=None)
        _dump_arrays(directory / STATE_ARRAYS, arrays)
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    hashes = {path.relative_to(directory).as_posix(): _sha256(path) for path in files}
    manifest = {"format": FORMAT, "full": checkpoint.state is not None, "files": hashes, "replay": None}
    if checkpoint.replay is not None:
        manifest["replay"] = _stream_arrays(directory / REPLAY, checkpoint.replay)
        _dump(directory / MANIFEST_WITHOUT_REPLAY, manifest | {"replay": DROPPED}, MANIFEST_BYTES)
    _dump(directory / MANIFEST, manifest, MANIFEST_BYTES)
    for path in [*directory.rglob("*"), directory]:
        sync(path)


def _dump(path: Path, data: Mapping[str, Any], max_bytes: int, indent: int | None = 1) -> None:
    """Write JSON. Without an indent, which takes several times as long, for large data."""
    text = json.dumps(data, indent=indent).encode()
    _require_readable(path.name, len(text), max_bytes)
    path.write_bytes(text)


def _dump_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    # `save_file` does not raise OSError when the disk is full.
    data = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    _require_readable(f"the header of {path.name}", int.from_bytes(data[:LENGTH_BYTES], "little"), LONGEST_HEADER)
    path.write_bytes(data)


def _require_readable(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise TooLarge(f"{name} would have {size} bytes, but a resume reads at most {max_bytes}")


# --- the replay's file --------------------------------------------------------------------------------------

CHUNK_BYTES = 1 << 20
"""Maximum number of bytes of a replay that are copied at a time."""
_ALIGNMENT = 64
"""Alignment of the first array, in bytes. The arrays are sorted by item size, so all are aligned to their items."""


def _stream_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write arrays to a safetensors file, chunk by chunk, and return its SHA-256.

    The format: eight bytes with the length of the header, little-endian; the header as JSON; the arrays in C order,
    without gaps. The function `save` of safetensors needs a second copy in memory.

    Raises:
        OSError: the file could not be written, for example because the disk is full.
        KeyError: the format does not have the dtype of an array.
    """
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    chunks: Iterator[bytes | memoryview] = chain.from_iterable(_chunks(array) for _, array in ordered)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        # Copy each chunk: an actor may write to the array meanwhile, and the hash must be that of the written bytes.
        for chunk in chain([_header(ordered)], map(bytes, chunks)):
            file.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()


def _header(arrays: Sequence[tuple[str, Array]]) -> bytes:
    entries, end = {}, 0
    for name, array in arrays:
        begin, end = end, end + array.nbytes
        entries[name] = {"dtype": DTYPE_NAMES[array.dtype], "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(entries).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _chunks(array: Array) -> Iterator[memoryview]:
    """Yield an array's bytes in C order, at most `CHUNK_BYTES` at a time. Only non-contiguous parts are copied."""
    if array.nbytes <= CHUNK_BYTES:
        yield np.ascontiguousarray(array).data
        return
    rows = CHUNK_BYTES // array[0].nbytes
    for first in range(0, len(array), max(1, rows)):
        yield from _chunks(array[first : first + rows] if rows else array[first])
