from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import types
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.compiled import WITH_NUMBA
from tests.support.models import policy_spec
from tests.support.runs import small_run
from tests.support.update_rows import ALGORITHMS, perturb, random_minibatch

from offbeat.algorithms.a2c import A2C, A2CConfig
from offbeat.algorithms.base import LossResult
from offbeat.algorithms.impala import IMPALAConfig
from offbeat.algorithms.on_policy import ACTOR_CRITIC, OnPolicy
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPOConfig
from offbeat.api.resume import resume
from offbeat.config.config_file import load
from offbeat.core.errors import ConfigError

NUMBA: dict[str, Any] = {"kernels": "numba"}


def algorithm_of(config: OnPolicyConfig, action: str = "discrete", **spec: Any) -> OnPolicy[Any]:
    policy = policy_spec(action, **{"hidden_sizes": (64, 64), "activation": config.activation, **spec})
    algorithm = ALGORITHMS[type(config)](config, policy, seed=0, corrected=False)
    perturb(algorithm, 0.3)
    return algorithm


def gradients_of(algorithm: OnPolicy[Any], minibatch: Any) -> tuple[LossResult, torch.Tensor]:
    [stage] = algorithm.stages
    assert stage.gradients is not None
    result = stage.gradients(minibatch)
    return result, algorithm.groups[ACTOR_CRITIC].parameters.gradients.clone()


# --- the results --------------------------------------------------------------------------------------------


@WITH_NUMBA
@pytest.mark.parametrize("hidden_sizes", [(128, 128), (128, 129)])
def test_gradients_of_the_largest_layer_that_is_transposed_and_of_a_larger_one_are_those_of_numpy(hidden_sizes):
    found = []
    for kernels in ("numpy", "numba"):
        algorithm = algorithm_of(PPOConfig(kernels=kernels), hidden_sizes=hidden_sizes)
        found.append(gradients_of(algorithm, random_minibatch(algorithm, algorithm.spec, 300, seed=1))[1])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)


@WITH_NUMBA
@pytest.mark.parametrize("config", [PPOConfig(**NUMBA, value_clip=0.2), A2CConfig(**NUMBA)])
@pytest.mark.parametrize("action", ["discrete", "box"])
def test_gradients_have_the_same_bits_in_another_thread(config, action):
    algorithm = algorithm_of(config, action)
    minibatch = random_minibatch(algorithm, algorithm.spec, 300, seed=1)
    here = gradients_of(algorithm, minibatch)
    there: list[tuple[LossResult, torch.Tensor]] = []
    thread = threading.Thread(target=lambda: there.append(gradients_of(algorithm, minibatch)))
    thread.start()
    thread.join()
    [(result, gradients)] = there
    assert torch.equal(gradients, here[1])
    assert result == here[0]


@WITH_NUMBA
@pytest.mark.parametrize("poisoned", ["advantage", "observation", "reference_log_prob", "value_target"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("action", ["discrete", "box"])
def test_a_number_that_is_not_finite_makes_the_gradients_or_the_loss_not_finite(poisoned, activation, action):
    algorithm = algorithm_of(PPOConfig(**NUMBA, activation=activation, value_clip=0.2), action)
    minibatch = random_minibatch(algorithm, algorithm.spec, 200, seed=1)
    assert np.isfinite(gradients_of(algorithm, minibatch)[0].loss)
    minibatch[poisoned].view(-1)[3] = np.nan
    result, gradients = gradients_of(algorithm, minibatch)
    assert not (np.isfinite(float(result.loss)) and gradients.isfinite().all())


@pytest.mark.parametrize("kernels", ["numpy", pytest.param("numba", marks=WITH_NUMBA)])
@pytest.mark.parametrize("action", ["discrete", "box"])
def test_an_infinite_ratio_makes_the_gradients_not_finite_also_where_it_is_clipped(kernels, action):
    algorithm = algorithm_of(PPOConfig(kernels=kernels, normalize_advantages=False), action)
    minibatch = random_minibatch(algorithm, algorithm.spec, 200, seed=1)
    minibatch["advantage"][3] = 1.0
    assert gradients_of(algorithm, minibatch)[1].isfinite().all()
    minibatch["reference_log_prob"][3] -= 200  # exp(200) is infinite in float32
    assert not gradients_of(algorithm, minibatch)[1].isfinite().all()


@WITH_NUMBA
def test_tanh_has_a_relative_error_of_less_than_3e_7():
    compiled: Any = import_module("offbeat.fastpath.compiled")

    x = np.concatenate([np.linspace(-12, 12, 100_001), np.geomspace(1e-30, 1, 1000), [np.inf, -np.inf, 0]])
    given = x.astype(np.float32)[:, None]
    ours = given.copy()
    compiled._activate(ours, np.zeros(1, np.float32), False)
    np.testing.assert_allclose(ours, np.tanh(given.astype(np.float64)), rtol=3e-7, atol=0)
    assert np.isnan(compiled._tanh(np.float32(np.nan)))


@WITH_NUMBA
@pytest.mark.parametrize(("action", "hidden_sizes"), [("discrete", ()), ("box", (9, 5, 12))])
def test_training_from_numpys_gradients_and_from_compiled_ones_stays_close(tmp_path, action, hidden_sizes):
    env = "CartPole-v1" if action == "discrete" else "Pendulum-v1"
    runs = [
        small_run(tmp_path / kernels, env, kernels=kernels, hidden_sizes=hidden_sizes, steps=256, lag="exact")
        for kernels in ("numpy", "numba")
    ]
    recorded = [load(run.path / "config.toml").settings_as(PPOConfig).kernels for run in runs]
    assert recorded == ["numpy", "numba"]
    for name in ("policy_loss", "value_loss", "entropy", "grad_norm"):
        assert runs[1].metrics[name] == pytest.approx(runs[0].metrics[name], rel=1e-2, abs=1e-3), name


# --- compilation --------------------------------------------------------------------------------------------


@WITH_NUMBA
def test_an_array_of_another_type_is_an_error_and_compiles_nothing():
    compiled: Any = import_module("offbeat.fastpath.compiled")

    algorithm = algorithm_of(PPOConfig(**NUMBA))
    fast: Any = algorithm._fast
    network = fast._policy.of(2)
    with pytest.raises(TypeError, match="No matching definition"):
        compiled.forward(network, np.zeros((2, algorithm.spec.inputs)))
    assert len(compiled.forward.signatures) == 1


KERNELS = """
from numba import types
from offbeat.fastpath.compiled import compiled

@compiled(types.float64[::1])
def add(x):
    x[0] += {}
"""
ADD = """
import importlib, os, signal, sys
from pathlib import Path
import numpy
from threadpoolctl import threadpool_info, threadpool_limits
threadpool_limits(1)
import offbeat.fastpath.compiled as compiled  # before: its own files do not count
functions = compiled.forward, compiled.categorical_gradients, compiled.gaussian_gradients, compiled.value_gradients
hits = [sum(function.stats.cache_hits.values()) for function in functions]
print({info["num_threads"] for info in threadpool_info()}, *hits, flush=True)

def replace_or_die(source, target, replace=os.replace):
    global files
    if files == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    files -= 1
    replace(source, target)

os.replace = replace_or_die
kernels = Path("kernels_of_a_test.py")
template = kernels.read_text()
for case in sys.argv[1:]:
    number, files = case.split(":")
    files = int(files)
    kernels.write_text(template.format(number))
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    importlib.invalidate_caches()
    import kernels_of_a_test
    x = numpy.zeros(1)
    kernels_of_a_test.add(x)
    print(x[0], end=" ", flush=True)
    os._exit(0)
"""
"""Processes, each of which compiles and adds a number, and is killed after it has written so many files.

They are forked from one that has loaded Numba, but nothing of what they compile, and that says how many threads its
libraries have then, and which machine code it has read.
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> list[str]:
    """What these processes print; the machine code of the package is there already."""
    import_module("offbeat.fastpath.compiled")
    tmp_path = tmp_path_factory.mktemp("kernels")
    (tmp_path / "kernels_of_a_test.py").write_text(KERNELS)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", ADD, "1.0:-1", "2.0:0", "2.0:-1", "3.0:1", "3.0:-1"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    return done.stdout.splitlines()


@WITH_NUMBA
def test_the_import_reads_the_machine_code_from_the_disk_and_leaves_the_number_of_threads(printed):
    assert printed[0] == "{1} 1 1 1 1"


@WITH_NUMBA
def test_a_process_that_is_killed_while_it_compiles_leaves_no_machine_code_of_an_earlier_version(printed):
    assert printed[1:] == ["1.0 0", "-9", "2.0 0", "-9", "3.0 0"]


@WITH_NUMBA
def test_machine_code_for_another_cpu_is_in_files_of_its_own(tmp_path, monkeypatch):
    compiled: Any = import_module("offbeat.fastpath.compiled")
    (tmp_path / "kernels_of_cpus.py").write_text(KERNELS.format(1.0))
    monkeypatch.syspath_prepend(tmp_path)
    indices = []
    for cpu in ("one", "other"):
        monkeypatch.setattr("numba.core.codegen.JITCPUCodegen._get_host_cpu_name", lambda _, cpu=cpu: cpu)
        compiled.fingerprint.cache_clear()
        sys.modules.pop("kernels_of_cpus", None)
        import_module("kernels_of_cpus")
        indices.append({file.name for file in tmp_path.rglob("*.nbi")})
    compiled.fingerprint.cache_clear()
    assert [len(names) for names in indices] == [1, 2]


@WITH_NUMBA
def test_without_a_folder_for_machine_code_the_error_names_the_variable(monkeypatch):
    compiled: Any = import_module("offbeat.fastpath.compiled")
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    with pytest.raises(ConfigError, match="set the environment variable NUMBA_CACHE_DIR to a folder"):
        compiled.compiled()(lambda: None)


@WITH_NUMBA
def test_machine_code_that_cannot_be_written_is_an_error_in_words(monkeypatch):
    compiled: Any = import_module("offbeat.fastpath.compiled")

    def no_space(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def nothing(_: float) -> None:
        pass

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", no_space)
    with pytest.raises(ConfigError, match="No space left on device: set the environment variable NUMBA_CACHE_DIR"):
        compiled.compiled(import_module("numba").types.float64)(nothing)


# --- what is not supported ----------------------------------------------------------------------------------


class OwnA2C(A2C):
    pass


@WITH_NUMBA
@pytest.mark.parametrize("config", [PPOConfig(**NUMBA), A2CConfig(**NUMBA), IMPALAConfig(**NUMBA)])
@pytest.mark.parametrize(
    ("action", "settings"),
    [
        ("multidiscrete", {}),
        ("discrete", {"shared_trunk": True}),
        ("discrete", {"exploration": "symmetric_kl"}),
        ("box", {"action_distribution": "squashed"}),
    ],
)
def test_a_policy_without_compiled_gradients_is_an_error(config, action, settings):
    config = replace(config, **settings)
    with pytest.raises(ConfigError, match=r"kernels is numba, but .* has no such gradients for this policy"):
        algorithm_of(config, action, squashed=config.action_distribution == "squashed")


@WITH_NUMBA
def test_a_subclass_of_a_user_has_no_compiled_gradients():
    with pytest.raises(ConfigError, match="kernels is numba, but OwnA2C has no such gradients"):
        OwnA2C(A2CConfig(**NUMBA), policy_spec("discrete", hidden_sizes=(4,)), seed=0, corrected=False)
    OwnA2C(A2CConfig(), policy_spec("discrete", hidden_sizes=(4,)), seed=0, corrected=False)


@pytest.mark.parametrize("missing", ["numba", pytest.param("scipy.linalg.cython_blas", marks=WITH_NUMBA)])
def test_without_numba_the_error_says_what_to_install(tmp_path, monkeypatch, missing):
    for name in ("compiled", "compiled_actor_critic"):
        monkeypatch.delitem(sys.modules, f"offbeat.fastpath.{name}", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=rf'kernels is numba, but {missing} is not installed: run pip install "off'):
        small_run(tmp_path / "run", kernels="numba")
    assert not (tmp_path / "run").exists()


def test_a_numba_that_cannot_be_imported_is_an_error_with_its_reason(tmp_path, monkeypatch):
    for name in ("compiled", "compiled_actor_critic"):
        monkeypatch.delitem(sys.modules, f"offbeat.fastpath.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))  # as one that refuses this NumPy
    with pytest.raises(ConfigError, match=r"kernels is numba, but it cannot be imported \(cannot import name"):
        small_run(tmp_path / "run", kernels="numba")


@WITH_NUMBA
def test_a_run_with_compiled_gradients_is_resumed_without_numba(tmp_path, monkeypatch):
    stopped = small_run(tmp_path / "run", kernels="numba", steps=512, stop_at=256)
    monkeypatch.delitem(sys.modules, "offbeat.fastpath.compiled")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ConfigError, match="kernels is numba, but numba is not installed"):
        resume(stopped.path, progress="none")
    assert resume(stopped.path, progress="none", settings={"kernels": "numpy"}).metrics["env_steps"] >= 512
