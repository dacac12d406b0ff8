"""The parts: which jobs each has, and how long it may take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.jobs import FOLDER, OFFBEAT, Job, read_json, read_nothing, read_pytest, read_training
from benchmarks.works import HALF_CHEETAH, HALF_CHEETAH_SAC, NOT_SETTINGS, PONG, Settings, algorithm_of
from offbeat.core.typed_text import as_text

GRACE_S = 60.0
"""Seconds that a run may take beyond its training: imports, the start of its processes, CUDA, the last checkpoint."""


@dataclass(frozen=True)
class Scale:
    """How large the jobs are."""

    devices: tuple[str, ...]
    """The devices to compare, the slower one first."""
    cores: int
    seconds: float
    """Seconds of training of each run."""
    smoke: bool = False

    @property
    def device(self) -> str:
        """The device that everything is about."""
        return self.devices[-1]

    @property
    def actors(self) -> int:
        """One actor for each core but the learner's, 15 at most."""
        return max(1, min(self.cores - 1, 15))


@dataclass(frozen=True)
class Part:
    """Jobs that belong together."""

    title: str
    limit_s: float
    """Seconds after which no other job begins, and the one that runs is stopped."""
    jobs: Callable[[Scale, Path], Iterator[Job]]


class Layout(NamedTuple):
    """Who acts and learns, as flags of the command line."""

    flags: str
    envs: int
    """Envs of an actor, or of a lock-free worker."""
    actors: int = 1
    """Actors that a batch has an unroll of each from."""


def _processes(scale: Scale, envs: int, actors: int = 0) -> Layout:
    """Return a layout of processes; `actors`: 0 for one a core."""
    actors = actors or scale.actors
    return Layout(f"--runtime processes --max-lag 1 --actors {actors}", envs, actors)


def train(name: str, work: Settings, scale: Scale, layout: Layout, **changes: object) -> Job:
    """Return a training run of a work of `works.py` for some seconds; `changes`: settings that are not the work's."""
    settings: dict[str, Any] = {key: value for key, value in work.items() if key not in NOT_SETTINGS}
    settings |= {"log_every_s": max(0.2, scale.seconds / 20), "checkpoint_every": 0, "eval_every": 0, **changes}
    if scale.smoke:
        settings |= {key: value for key, value in SMALLER.items() if key in settings}
        layout = layout._replace(envs=min(layout.envs, 2))
    if algorithm_of(work) == "sac":
        settings["save_replay"] = False
    else:  # a minibatch has no more rows than a batch
        rows = layout.actors * layout.envs * settings["unroll_length"]
        settings["minibatch_size"] = min(settings["minibatch_size"], rows)
    run = (
        f"train {algorithm_of(work)} {work['env']} --steps 1000000000 --time {scale.seconds:g} --progress none "
        f"--run-dir {FOLDER}/run {layout.flags} --envs-per-actor {layout.envs}"
    )
    pairs = [f"{key}={as_text(value)}" for key, value in settings.items()]
    return Job(name, [*OFFBEAT, *run.split(), "--set", *pairs], scale.seconds + GRACE_S, read_training)


SMALLER: Settings = {"unroll_length": 8, "minibatch_size": 32, "batch_size": 64, "warmup": 200}
"""What makes runs small enough for `--smoke`."""


# --- the parts ----------------------------------------------------------------------------------------------


def _tests(scale: Scale, _out: Path) -> Iterator[Job]:
    chosen = ["-k", "(sac or dqn) and (vector or box) or lock_free"] if scale.smoke else []
    workers = ["-n", str(min(6, scale.cores)), "--dist", "load"] if scale.cores > 2 else []
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-q", *workers, *chosen]
    environment = {"OFFBEAT_TEST_DEVICE": scale.device, "OMP_NUM_THREADS": "1"}
    # All workers use one GPU, each with a CUDA context of its own.
    yield Job("pytest -m gpu", [*command, "tests/gpu", "tests/runtime/hogwild"], 540, read_pytest, environment)


def _pong(scale: Scale, _out: Path) -> Iterator[Job]:
    for device in scale.devices:
        yield train(f"PPO, {device}", PONG, scale, _processes(scale, 16), device=device)
    yield train(f"PPO, {scale.device}, bf16", PONG, scale, _processes(scale, 16), device=scale.device, precision="bf16")
    resnet = {"encoder": "impala_resnet", "device": scale.device}
    yield train(f"PPO, IMPALA ResNet, {scale.device}", PONG, scale, _processes(scale, 16), **resnet)
    yield train(
        f"PPO, IMPALA ResNet, {scale.device}, bf16", PONG, scale, _processes(scale, 16), **resnet, precision="bf16"
    )


def _half_cheetah(scale: Scale, _out: Path) -> Iterator[Job]:
    for device in scale.devices:
        yield train(f"PPO, {device}", HALF_CHEETAH, scale, _processes(scale, 8), device=device)
        wide: dict[str, Any] = {"hidden_sizes": (1024, 1024), "minibatch_size": 4096, "device": device}
        yield train(f"PPO, two layers of 1024, {device}", HALF_CHEETAH, scale, _processes(scale, 8), **wide)


BIG_SAC: Settings = {"batch_size": 4096, "warmup": 4096, "hidden_sizes": (1024, 1024)}


def _sac(scale: Scale, _out: Path) -> Iterator[Job]:
    for device in scale.devices:
        for name, changes in (
            ("batches of 256", {}),
            ("batches of 4096, two layers of 1024", BIG_SAC),
        ):
            layout = Layout("--runtime processes --actors 1", 1)
            yield train(f"SAC, {name}, {device}", HALF_CHEETAH_SAC, scale, layout, device=device, **changes)


def _hogwild(scale: Scale, _out: Path) -> Iterator[Job]:
    workers = min(4, scale.cores)
    for kind in ("shared", "synced"):
        for device in scale.devices:
            layout = Layout(f"--runtime hogwild --workers {workers}", 1)
            of_device = {"hogwild": kind, "device": device}
            yield train(f"SAC, {kind}, {workers} workers, {device}", HALF_CHEETAH_SAC, scale, layout, **of_device)
        layout = Layout(f"--runtime hogwild --workers {workers}", 16)
        on_gpu = {"hogwild": kind, "device": scale.device}
        yield train(f"PPO on Pong, {kind}, {workers} workers, {scale.device}", PONG, scale, layout, **on_gpu)


def _shards(scale: Scale, _out: Path) -> Iterator[Job]:
    """Yield runs with one learner and with two on the same GPU, which exchange gradients in the memory of the host."""
    device = "cpu" if scale.device == "cpu" else "cuda:0"
    layouts: tuple[tuple[str, Settings], ...] = (
        ("no shards", {}),
        ("2 shards, 1 learner", {"shards": 2}),
        ("2 shards, 2 learners", {"shards": 2, "devices": (device, device)}),
    )
    one_actor = Layout("--runtime processes --actors 1", 1)
    for title, work, layout, changes in (
        ("PPO on Pong, IMPALA ResNet", PONG, _processes(scale, 16), {"encoder": "impala_resnet"}),
        ("SAC, batches of 4096, two layers of 1024", HALF_CHEETAH_SAC, one_actor, BIG_SAC),
    ):
        for name, settings in layouts:
            yield train(f"{title}: {name}", work, scale, layout, device=scale.device, **changes, **settings)


INFERENCE: dict[str, Settings] = {
    "actors": {},
    "worker": {"inference": "worker"},
    "worker, two env groups": {"inference": "worker", "env_groups": 2},
    "worker, by arrival": {"inference": "worker", "inference_batching": "arrival"},
}
"""Who computes the networks for acting."""


def _inference(scale: Scale, _out: Path) -> Iterator[Job]:
    for encoder in ("nature_cnn", "impala_resnet"):
        for name, settings in INFERENCE.items():
            on_gpu = {"inference_device": scale.device} if settings else {}
            changes = {"encoder": encoder, "device": scale.device, **settings, **on_gpu}
            yield train(f"{encoder}, inference by {name}", PONG, scale, _processes(scale, 16), **changes)


def _torn_steps(scale: Scale, _out: Path) -> Iterator[Job]:
    if not scale.smoke:  # it always takes the time of a measurement
        command = [sys.executable, "-m", "benchmarks.torn_steps", "--device", scale.device]
        yield Job("Adam on moments that two processes share", command, 240, read_nothing)


def _bench(scale: Scale, _out: Path) -> Iterator[Job]:
    for work, envs in ((PONG, 16), (HALF_CHEETAH, 8)):
        for device in scale.devices:
            job = train(f"{work['env']}, {device}", work, scale, _processes(scale, envs), device=device)
            words = ["bench" if word == "train" else word for word in job.command]
            for flag in ("--time", "--progress", "--run-dir"):
                del words[words.index(flag) : words.index(flag) + 2]
            words += ["--seconds", f"{scale.seconds / 2:g}", "--json"]  # of each of its runs
            yield Job(f"offbeat bench, {job.name}", words, 4 * scale.seconds + GRACE_S, read_json)


def _scaling(scale: Scale, _out: Path) -> Iterator[Job]:
    for work, envs, device in ((PONG, 16, scale.device), (HALF_CHEETAH, 8, "cpu")):
        for actors in (1, 2, 4, 8, 16):
            if actors <= scale.cores:
                layout = _processes(scale, envs, actors)
                yield train(f"{work['env']}, actors: {actors}, learner on {device}", work, scale, layout, device=device)


def _peers(scale: Scale, out: Path) -> Iterator[Job]:
    """Yield a job for each peer whose environment is there: benchmarks/README.md says how to make them."""
    for work, peer in (("pong", "sample-factory"), ("halfcheetah", "sb3"), ("halfcheetah-sac", "sb3")):
        side = "processes" if work == "halfcheetah-sac" else "processes-2"
        if not Path(f".venv-{peer}/bin/python").exists():
            continue
        command = [sys.executable, "-m", "benchmarks.speed", "--only", work, side, peer, "--pairs", "1"]
        size = ["--device", scale.device, "--out", str(out / "peers")] + (["--steps", "4096"] if scale.smoke else [])
        yield Job(f"{work}: {side} beside {peer}", [*command, *size], 240, read_nothing)


PARTS = {
    "tests": Part("every test that needs a GPU", 560, _tests),
    "pong": Part("PPO on Pong, float32 and bf16", 400, _pong),
    "halfcheetah": Part("PPO on HalfCheetah", 300, _half_cheetah),
    "sac": Part("SAC on HalfCheetah: updates per second", 300, _sac),
    "hogwild": Part("lock-free workers that share the memory of the GPU", 400, _hogwild),
    "inference": Part("PPO on Pong, with inference workers on the GPU", 400, _inference),
    "shards": Part("two learners on one GPU", 300, _shards),
    "torn": Part("Adam on moments that processes share on the GPU", 240, _torn_steps),
    "bench": Part("offbeat bench: what limits the speed", 400, _bench),
    "scaling": Part("processes with 1 to 16 actors", 500, _scaling),
    "peers": Part("beside Stable-Baselines3 and Sample Factory, if their environments are there", 560, _peers),
}
"""By name, in the order in which they run: what shows most comes first."""
