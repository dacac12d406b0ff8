"""What a stranger's run directory, policy or spec may name, and what it cannot bring about."""

from __future__ import annotations

import json
import os
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.support.mutations import rehashed
from tests.support.registries import registries_kept
from tests.support.runs import OFFBEAT, CommandResult, contents, offbeat, run_python, small_run
from tests.support.warm import REPOSITORY
from torch import nn

import offbeat as library
from offbeat.api.playing.load import load
from offbeat.config import importing, registry
from offbeat.config.installed import is_installed
from offbeat.config.trust import Code, code_to_run, flags_for, require
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import ConfigError
from offbeat.run_directory.directory import RunDirectory

MODULE = '''"""Leaves a trace when it is imported, and another one when something of it is called."""
from pathlib import Path
import gymnasium as gym
from torch import nn

Path(__file__).with_suffix(".imported").touch()


def call(*arguments, **named):
    Path(__file__).with_suffix(".called").touch()
    return gym.make("CartPole-v1").unwrapped


class Env(gym.Wrapper):
    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode))


class Encoder(nn.Module):
    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(observation.size, 4)

    def forward(self, observations):
        return self.layer(observations)
'''


class Encoder(nn.Module):
    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(observation.size, 4)

    def forward(self, observations):
        return self.layer(observations)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A run that may be resumed."""
    return small_run(tmp_path_factory.mktemp("sound") / "run", stop_at=100, steps=1000).path


@pytest.fixture(scope="module")
def encoded(tmp_path_factory) -> Path:
    """A run whose policy has an encoder of the user's, under a name."""
    with registries_kept():
        library.register_encoder("mine", Encoder)
        settings: dict[str, Any] = {"encoder": "mine", "normalize_observations": False, "stop_at": 100}
        return small_run(tmp_path_factory.mktemp("encoded") / "run", steps=1000, **settings).path


@pytest.fixture
def module(tmp_path, monkeypatch, request) -> Path:
    """A module in the current folder, of a name that no other test has."""
    monkeypatch.chdir(tmp_path)
    name = f"own_{sha256(request.node.nodeid.encode()).hexdigest()[:12]}"
    file = tmp_path / f"{name}.py"
    file.write_text(MODULE)
    return file


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "stranger", symlinks=True))


def policy_changed(run: Path, **changes: Any) -> None:
    """Change what a run's policy.json says of the policy, hashes included."""
    folder = run / "checkpoints/latest"
    data = {path.name: path.read_bytes() for path in folder.iterdir()}
    saved = json.loads(data["policy.json"])
    saved["policy"] |= changes
    data["policy.json"] = json.dumps(saved).encode()
    for name in ("policy.json", "manifest.json"):
        (folder / name).write_bytes(data["policy.json"] if name == "policy.json" else rehashed(data))


def config_changed(run: Path, key: str, value: object) -> None:
    """Change a line of a run's config.toml; an env is changed in the checkpoint too."""
    config, new = run / "config.toml", f"{key} = {json.dumps(value)}"
    lines = [new if line.startswith(f"{key} = ") else line for line in config.read_text().splitlines()]
    config.write_text("\n".join(lines))
    if key == "env":
        folder = run / "checkpoints/latest"
        data = {path.name: path.read_bytes() for path in folder.iterdir()}
        data["policy.json"] = json.dumps(json.loads(data["policy.json"]) | {"env": value}).encode()
        (folder / "policy.json").write_bytes(data["policy.json"])
        (folder / "manifest.json").write_bytes(rehashed(data))


def executed_code(module: Path) -> set[str]:
    return {kind for kind in ("imported", "called") if module.with_suffix(f".{kind}").exists()}


def offbeat_in_new_process(folder: Path, *arguments: object) -> CommandResult:
    """Type a command in a process that knows nothing of the tests' modules."""
    return run_python(OFFBEAT, *arguments, folder=folder)


@pytest.fixture(autouse=True)
def _nothing_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have named in this process does not count here."""
    monkeypatch.setattr(importing, "_ACCEPTED", set())


# --- encoders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["subprocess:call", "os:abort", "torch.nn:Linear", "offbeat.cli.main:run"])
def test_loading_runs_no_encoder_named_in_a_policy_file(sound, tmp_path, place):
    run = copied(sound, tmp_path)
    policy_changed(run, encoder=place)
    before, path = set(sys.modules), list(sys.path)
    with pytest.raises(ConfigError, match=rf"would .*{place}.*--trust-code"):
        load(run)
    assert sys.path == path
    assert set(sys.modules) == before


@pytest.mark.parametrize("command", ["eval", "watch", "export", "push"])
def test_no_command_imports_the_encoder_module_named_in_a_policy_file(sound, module, tmp_path, command):
    run = copied(sound, tmp_path)
    policy_changed(run, encoder=f"{module.stem}:call")
    more = {"watch": ["--video", "a.gif"], "push": ["a/b", "--dry-run"]}.get(command, [])
    said = offbeat(command, run, *more)
    assert said.code == 2, said
    assert f"{module.stem}:call" in said.err
    assert "--trust-code" in said.err
    assert executed_code(module) == set()


def test_a_given_encoder_is_used_instead_of_the_one_named_in_the_policy_file(encoded):
    with pytest.raises(ConfigError, match="'mine'"):
        load(encoded)
    first, again = load(encoded, encoder=Encoder), load(encoded, encoder=Encoder)
    assert first.acting_policy.spec.encoder == again.acting_policy.spec.encoder == "mine#1"
    other = load(encoded, encoder=type("Other", (Encoder,), {}))
    assert other.acting_policy.spec.encoder == "mine#2"
    assert [policy([0.1, 0, 0, 0]) for policy in (first, other)] == [first([0.1, 0, 0, 0])] * 2


def test_an_encoder_passed_for_one_policy_is_not_used_for_another_with_that_name(encoded):
    load(encoded, encoder=Encoder)
    registered = type("Registered", (Encoder,), {})
    with registries_kept():
        registry.register_encoder("mine", registered)
        assert registry.encoder_factory("mine") is registered


def test_loading_imports_no_installed_module_that_a_file_chooses_for_an_unknown_encoder(encoded, tmp_path, monkeypatch):
    run = copied(encoded, tmp_path)
    config_changed(run, "imports", ["iniconfig"])
    monkeypatch.delitem(sys.modules, "iniconfig")
    with pytest.raises(ConfigError, match=r"encoder mine, which is not registered, and would import iniconfig"):
        load(run)
    assert "iniconfig" not in sys.modules
    importing.import_modules(("iniconfig",))
    with pytest.raises(ConfigError, match="'mine'"):  # it does not register the encoder
        load(run)


def test_an_encoder_is_accepted_only_for_a_policy_with_a_custom_encoder(sound):
    with pytest.raises(ConfigError, match="encoder is given, but"):
        load(sound, encoder=Encoder)


def test_an_encoder_of_an_imported_module_must_be_a_subclass_of_module(encoded, module, tmp_path):
    run = copied(encoded, tmp_path)
    policy_changed(run, encoder=f"{module.stem}:call")
    importing.import_modules((module.stem,))
    with pytest.raises(ConfigError, match=r"is not a class of torch modules\. It was not called"):
        load(run)
    policy_changed(run, encoder=f"{module.stem}:nn.Module.__subclasses__")
    with pytest.raises(ConfigError, match=r"is not a class of torch modules\. It was not called"):
        load(run)
    (tmp_path / f"{module.stem}:x.py").write_text(MODULE)
    policy_changed(run, encoder=f"{module.stem}:x:call")
    with pytest.raises(ConfigError, match="does not exist"):
        load(run)
    assert not (tmp_path / f"{module.stem}:x.imported").exists()
    policy_changed(run, encoder=f"{module.stem}:Encoder")
    assert load(run)([0.1, 0, 0, 0]) in (0, 1)
    assert executed_code(module) == {"imported"}


def test_trust_code_prints_what_will_be_imported_before_the_import(encoded, module, tmp_path, capsys):
    run = copied(encoded, tmp_path)
    module.write_text("import sys\nsys.stderr.write('imported\\n')\n" + MODULE)
    policy_changed(run, encoder=f"{module.stem}:Encoder")
    load(run, trust_code=True)
    trusting, imported = capsys.readouterr().err.splitlines()
    assert trusting == f"offbeat: trusting {run}, which will import and call {module.stem}:Encoder as its encoder"
    assert imported == "imported"


def test_names_of_code_cannot_hide_their_start_from_the_reader_of_a_terminal(sound, tmp_path):
    run = copied(sound, tmp_path)
    config_changed(run, "imports", ["own\x1b[2K\rnumpy", "one\noffbeat: two"])
    for said in (offbeat("eval", run), offbeat("eval", run, "--trust-code")):
        assert said.code == 2
        first = said.err.splitlines()[0]
        assert r"import own\x1b[2K\rnumpy" in first
        assert r"import one\noffbeat: two" in first
        assert "\x1b" not in said.err


# --- what a config names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["resume", "eval", "watch", "push"])
@pytest.mark.parametrize(("key", "value"), [("imports", ["{}"]), ("env", "{}:Env"), ("env", "{}:call")])
def test_a_run_that_names_a_module_of_the_current_folder_is_refused(sound, module, tmp_path, command, key, value):
    run = copied(sound, tmp_path)
    config_changed(run, key, json.loads(json.dumps(value).replace("{}", module.stem)))
    before = contents(run)
    more = {"watch": ["--video", "a.gif"], "push": ["a/b", "--dry-run"]}.get(command, [])
    said = offbeat(command, run, *more)
    assert said.code == 2, said
    assert f"would import {module.stem}" in said.err
    assert "--trust-code" in said.err
    assert executed_code(module) == set()
    assert contents(run) == before


def test_resume_refuses_an_algorithm_and_an_encoder_of_the_current_folder(sound, module, tmp_path):
    run = copied(sound, tmp_path)
    config = run / "config.toml"
    text = config.read_text()
    config.write_text(text.replace('"ppo"', f'"{module.stem}:PPO"').replace("[ppo]", f'["{module.stem}:PPO"]'))
    assert "as its algorithm" in offbeat("resume", run).err
    config.write_text(text.replace('encoder = "auto"', f'encoder = "{module.stem}:call"'))
    assert "as its encoder" in offbeat("resume", run).err
    assert executed_code(module) == set()


@pytest.mark.parametrize("place", ["subprocess:call", "os:abort", "pytest:main", "offbeat.cli.entry:main"])
def test_an_env_that_is_a_function_of_something_installed_is_not_called(sound, tmp_path, place):
    run = copied(sound, tmp_path)
    config_changed(run, "env", place)
    said = offbeat("eval", run)
    assert said.code == 2, said
    assert place in said.err
    assert "--trust-code" in said.err


def test_a_class_of_an_installed_package_is_an_env_with_several_agents_only_with_the_methods_of_one():
    require(Code(envs=("offbeat.envs.testing.worlds:CartPoles",)), "the run")
    with pytest.raises(ConfigError, match=r"which is not a class of envs\. It was not called"):
        require(Code(envs=("offbeat.envs.worlds.worlds:Worlds",)), "the run")


def test_the_python_api_does_not_import_an_env_module_named_in_a_policy_file(sound, module, tmp_path):
    from offbeat.api.playing.scoring import score

    run = copied(sound, tmp_path)
    config_changed(run, "env", f"{module.stem}:Env")
    policy = load(run)  # which makes no env
    with pytest.raises(ConfigError, match="as its env"):
        score({"default": policy}, episodes=1, seed=0)
    assert executed_code(module) == set()


def test_a_run_and_a_spec_name_all_modules_that_must_be_trusted_at_once(sound, module, tmp_path):
    other = module.with_name(f"{module.stem}_2.py")
    other.write_text(MODULE)
    run, spec = copied(sound, tmp_path), tmp_path / "spec.toml"
    config_changed(run, "imports", [module.stem])
    config_changed(run, "encoder", f"{other.stem}:Encoder")
    top = f'algorithm = "ppo"\nenv = "CartPole-v1"\nseeds = [1]\nimports = ["{module.stem}"]'
    spec.write_text(f'{top}\n[settings]\nsteps = 1000\nencoder = "{other.stem}:Encoder"\n')
    for refused in (offbeat("eval", run), offbeat("run", spec, "--dry-run")):
        assert f"pass --import {module.stem} --import {other.stem}, which trusts only these modules" in refused.err
    assert executed_code(module) | executed_code(other) == set()
    trusted = offbeat("run", spec, "--dry-run", "--trust-code")
    assert trusted.err.count("trusting") == 1


def test_a_refusal_names_each_module_once_with_all_that_would_be_called_in_it():
    code = Code(imports=("own", "other"), envs=("own:Env",), wrappers=("own:Wrapper",))
    says = "a.toml would import own, and call own:Env as its env and own:Wrapper as its wrapper; import other: code"
    with pytest.raises(ConfigError, match=f"^{says}"):
        require(code, "a.toml")


def test_code_that_this_process_was_given_needs_no_trust_code(module, tmp_path):
    run = small_run(tmp_path / "run", env=f"{module.stem}:call", stop_at=100, steps=1000).path
    assert offbeat("eval", run, "--episodes", 1).code == 0
    assert library.resume(run).exit_code == 0


def test_another_process_resumes_custom_code_only_with_the_flag_printed_by_train(module, tmp_path):
    arguments = f"train ppo {module.stem}:call --steps 300 --stop-at 100 --eval-every 0 --progress none --run-dir run"
    said = offbeat_in_new_process(tmp_path, *arguments.split(), "--set", "envs_per_actor=2", "minibatch_size=64")
    assert said.code == 0, said.err
    assert "next: offbeat resume run --trust-code\n" in said.out
    refused = offbeat_in_new_process(tmp_path, "resume", "run")
    assert refused.code == 2
    assert f"would import {module.stem}" in refused.err
    named = offbeat_in_new_process(tmp_path, "resume", "run", "--import", module.stem)
    assert "is not a class of envs. It was not called" in named.err
    trusted = offbeat_in_new_process(tmp_path, "resume", "run", "--trust-code", "--progress", "none")
    assert trusted.code == 0, trusted.err
    assert trusted.err.startswith(f"offbeat: trusting run, which will import and call {module.stem}:call as its env\n")
    again = offbeat_in_new_process(tmp_path, "resume", "run", "--trust-code")
    command = again.err.partition("`offbeat ")[2].partition("`")[0]
    assert command.startswith("resume run --steps ")
    longer = offbeat_in_new_process(tmp_path, *command.split(), "--progress", "none")
    assert longer.code == 0, longer.err


def test_the_import_flag_that_train_prints_allows_an_env_class_of_that_module(module, tmp_path):
    said = offbeat_in_new_process(
        tmp_path, *f"train ppo {module.stem}:Env --steps 300 --eval-every 0 --run-dir run".split()
    )
    assert said.code == 0, said.err
    evaluation = ("eval", "run", "--episodes", 1)
    refused = offbeat_in_new_process(tmp_path, *evaluation)
    flags = refused.err.partition("you have read it, pass ")[2].partition(", which trusts only this module")[0]
    assert flags == f"--import {module.stem}"
    assert f"next: offbeat eval run {flags}\n" in said.out
    assert offbeat_in_new_process(tmp_path, *evaluation, *flags.split()).code == 0


def test_a_spec_that_names_a_module_of_the_current_folder_is_refused_also_in_a_dry_run(module, tmp_path):
    spec, policies = tmp_path / "spec.toml", tmp_path / "policies.toml"
    policies.write_text(f'[policies.a]\nagents = "*"\nsettings = {{ encoder = "{module.stem}:call" }}\n')
    parts = 'algorithm = "ppo"\nseeds = [1]\n{}\n[settings]\nsteps = 1000\n{}'
    for top, setting in [
        (f'env = "CartPole-v1"\nimports = ["{module.stem}"]', ""),
        (f'env = "{module.stem}:Env"', ""),
        (f'envs = ["CartPole-v1", "{module.stem}:Env"]', ""),
        ('env = "CartPole-v1"', f'encoder = "{module.stem}:call"'),
        ('env = "CartPole-v1"', f'[search]\nmethod = "grid"\n[search.over]\nencoder = ["{module.stem}:call"]'),
        ('env = "CartPole-v1"', f'policies.a.settings.encoder = "{module.stem}:call"'),
        ('env = "CartPole-v1"', f'[search.over]\n"policies.a.settings.encoder" = ["{module.stem}:call"]'),
        ('env = "CartPole-v1"', f'policies = "{policies}"'),
        ('env = "CartPole-v1"', f'[search.over]\npolicies = ["shared", "{policies}"]'),
    ]:
        spec.write_text(parts.format(top, setting))
        said = offbeat("run", spec, "--dry-run")
        assert said.code == 2, said
        assert f"{spec} would import {module.stem}" in said.err
    assert executed_code(module) == set()
    spec.write_text(parts.format(f'env = "{module.stem}:Env"', ""))
    assert offbeat("run", spec, "--dry-run", "--trust-code").code == 0


ELSEWHERE = "10.0.0.1:6379"


@pytest.mark.parametrize("changes", [{"ray_address": "none"}, {"ray_address": None}, {"runtime": "processes"}])
def test_a_run_that_does_not_use_the_ray_cluster_that_it_names_is_resumed(sound, tmp_path, changes):
    run = copied(sound, tmp_path)
    config_changed(run, "ray_address", ELSEWHERE)
    with pytest.raises(ConfigError, match=f"would connect to the Ray cluster {ELSEWHERE}"):
        RunDirectory(run).require_code({"runtime": "ray"})
    RunDirectory(run).require_code({"runtime": "ray", **changes})


def test_a_run_is_resumed_on_another_ray_cluster_that_the_caller_names(sound, tmp_path, monkeypatch):
    run = copied(sound, tmp_path)
    config_changed(run, "runtime", "ray")
    config_changed(run, "ray_address", ELSEWHERE)
    addresses = []

    def refuse(address: str, **_settings: object) -> None:
        addresses.append(address)
        raise ConfigError("nobody answers")

    monkeypatch.setattr("offbeat.runtime.ray.acting.connect", refuse)
    said = offbeat("resume", run, "--set", "ray_address=10.0.0.2:6379")
    assert "nobody answers" in said.err
    assert addresses == ["10.0.0.2:6379"]


def test_a_runtime_of_a_module_that_is_not_imported_yet_may_use_the_ray_cluster_that_a_run_names():
    tables = {"run": {}, "runtime": {"runtime": "theirs", "ray_address": ELSEWHERE}}
    assert ELSEWHERE in " ".join(code_to_run(tables).clusters)


@pytest.mark.parametrize("table", ["[settings]", "[search.over]"])
def test_a_spec_that_names_a_ray_cluster_is_refused(tmp_path, table):
    spec = tmp_path / "spec.toml"
    value = f'"{ELSEWHERE}"' if table == "[settings]" else f'["{ELSEWHERE}"]'
    spec.write_text(f'algorithm = "ppo"\nseeds = [1]\nenv = "CartPole-v1"\n{table}\nray_address = {value}\n')
    said = offbeat("run", spec, "--dry-run")
    assert said.code == 2, said
    assert f"would connect to the Ray cluster {ELSEWHERE}" in said.err
    assert 'Or leave out ray_address and ray_runtime_env, or write ray_address = "auto".' in said.err


# --- what is installed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module", ["gymnasium", "gymnasium.envs.classic_control", "pytest", "offbeat.envs.testing.recall"]
)
def test_installed_packages_are_recognized_as_installed(module):
    assert is_installed(module)


@pytest.mark.parametrize(
    "module",
    ["subprocess", "os", "unittest.__main__", "tests", "tests.sample_envs.run_envs", "", "a/b", ".x", "no_such"],
)
def test_standard_library_modules_and_local_modules_are_not_installed_packages(module, monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY))
    assert not is_installed(module)


def test_a_folder_with_forged_editable_package_metadata_is_not_trusted(tmp_path, monkeypatch):
    (tmp_path / "evil.py").touch()
    metadata = tmp_path / "evil-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (metadata / "direct_url.json").write_text('{"url": "file:///", "dir_info": {"editable": true}}')
    (metadata / "top_level.txt").write_text("evil\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not is_installed("evil")


def test_a_package_that_is_installed_in_editable_mode_is_recognized_but_not_another_one_of_its_folder(
    tmp_path, monkeypatch
):
    source, metadata = tmp_path / "source", tmp_path / "site/edited_here-1.0.dist-info"
    for folder in (source, metadata):
        folder.mkdir(parents=True)
    for name in ("edited_here", "beside_it"):
        (source / f"{name}.py").touch()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: edited-here\nVersion: 1.0\n")
    (metadata / "direct_url.json").write_text(f'{{"url": "{source.as_uri()}", "dir_info": {{"editable": true}}}}')
    monkeypatch.syspath_prepend(str(source))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(metadata.parent)])
    assert is_installed("edited_here")
    assert not is_installed("beside_it")


def test_a_package_in_site_packages_is_trusted_but_a_folder_without_init_is_not(tmp_path, monkeypatch):
    for name in ("a_plugin_here", "a_folder_here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "envs.py").touch()
    (tmp_path / "a_plugin_here/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    assert is_installed("a_plugin_here.envs")
    assert not is_installed("a_folder_here.envs")


def test_an_installed_plugin_registers_envs_without_a_flag(tmp_path, monkeypatch):
    plugin = tmp_path / "a_plugin_for_envs"
    plugin.mkdir()
    text = 'import gymnasium\ngymnasium.register("plugin/Env-v0", "gymnasium.envs.classic_control:CartPoleEnv")\n'
    (plugin / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    path = list(sys.path)
    with registries_kept(plugin.name):
        code = Code(envs=(f"{plugin.name}:plugin/Env-v0",))
        require(code, "the run")
        assert flags_for(code) == []
        with pytest.raises(ConfigError, match="is not a class of envs"):
            require(Code(envs=(f"{plugin.name}:gymnasium.register",)), "the run")
    assert sys.path == path


# --- links --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log.txt", "metrics.jsonl", "checkpoints/best", "return.png"])
def test_a_run_with_symlinks_to_outside_is_refused_before_anything_is_written(sound, tmp_path, name):
    run = copied(sound, tmp_path)
    target = tmp_path / "mine.txt"
    target.write_text("mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    for command in ("resume", "eval", "export"):
        said = offbeat(command, run)
        assert said.code == 2, said
        assert "outside of the run" in said.err
    assert target.read_text() == "mine"
    assert offbeat("eval", run, "--episodes", 1, "--trust-code").code == 0


def test_a_plot_does_not_overwrite_the_target_of_a_symlink_in_the_run(sound, tmp_path):
    run, target = copied(sound, tmp_path), tmp_path / "mine.txt"
    target.write_text("mine")
    (run / "return.png").symlink_to(target)
    assert "is a symbolic link" in offbeat("plot", run).err
    assert target.read_text() == "mine"


def test_a_plot_creates_no_file_outside_of_a_run_with_links(sound, tmp_path):
    run, outside = copied(sound, tmp_path), tmp_path / "outside"
    (run / ".return.new.png").symlink_to(outside)
    assert offbeat("plot", run).code == 0
    assert not outside.exists()


def test_a_checkpoint_that_is_a_symlink_to_another_run_is_refused(sound, tmp_path):
    run = copied(sound, tmp_path)
    (run / "checkpoints/latest").unlink()
    (run / "checkpoints/latest").symlink_to(sound / "checkpoints/latest")
    assert "outside of the run" in offbeat("eval", run).err
    for name in ("../../x", ".."):
        assert "is not the name of a checkpoint" in offbeat("eval", sound, f"--checkpoint={name}").err


def test_a_named_pipe_in_a_run_is_refused_instead_of_blocking(sound, tmp_path):
    run = copied(sound, tmp_path)
    (run / "checkpoints/latest/weights.safetensors").unlink()
    os.mkfifo(run / "checkpoints/latest/weights.safetensors")
    assert "neither a file nor a folder" in offbeat("eval", run).err


OWN = "If the code is your own, or you have read it, pass"
RAY = "Or pass your own ray_address and ray_runtime_env, or none, with --set."


@pytest.mark.parametrize(
    ("code", "flags", "remedy"),
    [
        (Code(encoders=("mine:Encoder",)), True, "--import mine, which trusts only this module, or pass --trust-code."),
        (
            Code(imports=("mine", "rest.of.it"), envs=("mine:Env",)),
            True,
            "--import mine --import rest.of.it, which trusts only these modules, or pass --trust-code.",
        ),
        (Code(imports=("a; rm -r ~",)), True, "--trust-code."),
        (Code(imports=("mine",), clusters=("connect to the Ray cluster a",)), True, f"--trust-code. {RAY}"),
        (Code(imports=("mine",)), False, "trust_code=True."),
        (
            Code(encoders=("mine:Encoder",)),
            False,
            "trust_code=True. For an encoder, offbeat.load takes encoder=MyEncoder.",
        ),
    ],
)
def test_the_remedy_for_refused_code_is_what_its_reader_can_do(code: Code, flags: bool, remedy: str) -> None:
    with flags_shown(flags), pytest.raises(ConfigError) as refused:
        require(code, "runs/a")
    with flags_shown(flags):
        assert str(refused.value).endswith(f"{OWN} {remedy}")


def test_a_run_of_ones_own_that_names_a_cluster_is_not_refused_as_code() -> None:
    with flags_shown(True), pytest.raises(ConfigError) as refused:
        require(Code(clusters=("connect to the Ray cluster a",)), "runs/a")
    assert str(refused.value) == (
        "runs/a would connect to the Ray cluster a. A cluster can run any code here, so no file may choose it. If the "
        f"run and the cluster are your own, pass --trust-code. {RAY}"
    )
