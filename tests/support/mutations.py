"""Checkpoints that a stranger could have written: random changes to one file each, most with hashes that fit again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

MANIFEST = "manifest.json"
FILES = ("policy.json", "weights.safetensors", "state.json", "state.safetensors", "replay.safetensors", MANIFEST)
WEIGHTS = (6, 3, 3, 2, 2, 3)
"""Relative frequency with which each file is changed."""
HASHED_SHARE = 0.9
"""Fraction of the changes after which the manifest gets the hash of the changed file."""


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: list[Callable[[Random], Any]] = [
    lambda _: None,
    lambda _: True,
    lambda _: -1,
    lambda _: 0,
    lambda _: 1,
    lambda _: 2**31 - 1,
    lambda _: 2**40,
    lambda _: 2**62,
    lambda _: 10**400,
    lambda _: -(10**30),
    lambda _: 0.5,
    lambda _: 1e308,
    lambda _: float("nan"),
    lambda _: float("inf"),
    lambda _: "",
    lambda _: "none",
    lambda _: "x" * 5000,
    lambda _: "subprocess:call",
    lambda _: "os:abort",
    lambda _: "../../../etc/passwd",
    lambda _: "\x1b[2J\n",
    lambda _: "f8,(1000000000,)f8",
    lambda _: [],
    lambda _: {},
    lambda _: [2**40],
    lambda _: [0, 2**50],
    lambda _: [1] * 40,
    lambda _: ["a", None, {}],
    lambda _: {"$array": "missing"},
    lambda _: {"$array": ["a"]},
    lambda _: deep(90),
    lambda random: random.randint(-(2**70), 2**70),
    lambda random: [random.randint(0, 100) for _ in range(random.randint(1, 5))],
]
"""What is put in the place of a value."""


def mutated(checkpoint: Path, target: Path, random: Random) -> str:
    """Copy a checkpoint, with one of its files changed; return what was done."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    data = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    names = [name for name in FILES if name in data]
    name = random.choices(names, [WEIGHTS[FILES.index(name)] for name in names])[0]
    is_json = name.endswith(".json")
    change = random.choice([in_json, in_json, in_json, in_bytes] if is_json else [in_header, in_header, in_bytes])
    data[name] = change(data[name], random)
    if name != MANIFEST and random.random() < HASHED_SHARE:
        data[MANIFEST] = rehashed(data)
    for each, content in data.items():
        (target / each).write_bytes(content)
    return f"{name}, {change.__name__}"


def rehashed(data: dict[str, bytes]) -> bytes:
    """Return the manifest with the hashes of the files as they are."""
    manifest = json.loads(data[MANIFEST])
    manifest["files"] = {name: sha256(data[name]).hexdigest() for name in manifest["files"]}
    if "replay.safetensors" in data:
        manifest["replay"] = sha256(data["replay.safetensors"]).hexdigest()
    return json.dumps(manifest).encode()


# --- changes to one file ----------------------------------------------------------------------------------------


def in_bytes(data: bytes, random: Random) -> bytes:
    """Flip some bytes, cut the file, or add to it."""
    kind, place = random.randrange(4), random.randrange(len(data))
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data + random.randbytes(random.randint(1, 100))
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def in_json(data: bytes, random: Random) -> bytes:
    """Change one value of a JSON file, at any depth; or write what is hardly JSON."""
    if random.random() < 0.03:
        return random.choice(
            [b"", b"[]", b"null", b"[" * 100_000, b'{"a":' * 5000, b'{"a": 1, "a": 2}', b"\xff\xfe", b"9" * 5000]
        )
    value = json.loads(data)
    change(value, random)
    return json.dumps(value).encode()


def in_header(data: bytes, random: Random) -> bytes:
    """Change the header of a safetensors file, or its length."""
    length = int.from_bytes(data[:8], "little")
    if random.random() < 0.1:
        said = random.choice([0, 1, length - 1, length + 1, len(data), 2**40, 2**63, 2**64 - 1])
        return said.to_bytes(8, "little") + data[8:]
    header = json.loads(data[8 : 8 + length])
    change(header, random)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def change(value: Any, random: Random) -> None:
    """Change one item of a tree of dicts and lists: replace it, take it away, add one, or exchange two."""
    holders = [each for each in walk(value) if each]
    holder = random.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key, kind = random.choice(keys), random.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[random.choice(["extra", "$array", "__class__", "../up", f"{key}x"])] = random.choice(VALUES)(random)
    elif kind == 2:
        other = random.choice(keys)
        holder[key], holder[other] = holder[other], holder[key]
    elif kind == 3 and type(holder[key]) is int:
        holder[key] += random.choice([-1, 1, -8, 8, 2**20, 2**33])
    else:
        holder[key] = random.choice(VALUES)(random)


def walk(value: Any) -> Iterator[Any]:
    """Yield all dicts and lists in a tree, itself included."""
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from walk(part)
