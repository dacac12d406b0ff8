"""What the package is to those who import or install it."""

from __future__ import annotations

from importlib.metadata import entry_points, version
from importlib.resources import files

import pytest
from tests.support.runs import loaded_by
from tests.support.thorough import thorough

import offbeat

HEAVY = {"torch", "numpy", "gymnasium", "matplotlib", "tensorboard", "safetensors", "scipy"}


def test_importing_offbeat_imports_no_heavy_package():
    assert not loaded_by("import offbeat") & HEAVY


def test_help_imports_neither_torch_nor_a_slow_module_of_the_standard_library():
    code = "from offbeat.cli.main import run\ntry:\n    run(['--help'])\nexcept SystemExit:\n    pass"
    loaded = loaded_by(code)
    assert not loaded & (HEAVY - {"numpy"})
    assert not loaded & {"importlib.metadata", "urllib.request", "http.client", "ssl", "asyncio"}


def test_a_run_and_a_policy_that_needs_torch_import_no_package_that_they_do_not_use_and_leave_filters(tmp_path):
    from tests.support.runs import small_run

    path = small_run(tmp_path / "recurrent", steps=64, core="gru").path
    code = (
        "import sys, warnings, offbeat\nbefore = list(warnings.filters)\n"
        f"offbeat.load({str(path)!r})\nassert 'torch' in sys.modules and warnings.filters == before\n"
        "offbeat.train('ppo', 'CartPole-v1', steps=64, unroll_length=8, minibatch_size=8, eval_every=0,"
        f" runtime='serial', progress='none', run_dir={str(tmp_path / 'run')!r})"
    )
    unused = {"matplotlib", "scipy", "pandas", "ray", "mujoco", "pygame", "tensorflow", "onnx", "wandb", "IPython"}
    loaded = loaded_by(code)
    assert "offbeat.workers.learner" in loaded
    assert not {name.partition(".")[0] for name in loaded} & unused
    assert not {name for name in loaded if name.startswith(("torch._dynamo", "torch._inductor"))}


def test_a_mistyped_name_or_number_is_refused_before_torch_is_imported():
    typed = (["tran", "ppo"], ["train", "pppo", "CartPole-v1"], ["train", "ppo", "CartPole-v1", "--steps", "many"])
    assert "torch" not in loaded_by(f"from offbeat.cli.main import run\nassert [*map(run, {typed})] == [2, 2, 2]")


def test_a_loaded_policy_does_not_import_torch(tmp_path):
    from tests.support.runs import small_run

    path = small_run(tmp_path / "run", steps=64).path
    code = f"import numpy, offbeat\noffbeat.load({str(path)!r})(numpy.zeros(4, 'float32'))"
    assert "torch" not in loaded_by(code)


def test_every_public_name_can_be_imported():
    for name in offbeat.__all__:
        assert getattr(offbeat, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'tran'"):
        offbeat.tran  # noqa: B018


@pytest.mark.parametrize("name", ["load", "train", *thorough("evaluate", "register_env")])
def test_the_first_use_of_a_name_leaves_environment_and_filters_as_they_were(name):
    look = "(dict(os.environ), list(warnings.filters))"
    code = f"import os, warnings, offbeat\nbefore = {look}\noffbeat.{name}\nassert {look} == before"
    assert {"numpy"} <= loaded_by(code)


def test_the_version_equals_that_of_the_distribution():
    assert offbeat.__version__ == version("offbeat")


def test_the_package_installs_the_command_and_py_typed():
    (script,) = (point for point in entry_points(group="console_scripts") if point.name == "offbeat")
    assert script.value == "offbeat.cli.entry:main"
    assert (files("offbeat") / "py.typed").is_file()
    assert (files("offbeat") / "config" / "presets" / "ppo-cartpole-v1.toml").is_file()
