"""The keys of [runtime] for a Ray cluster, and what is refused of them."""

from __future__ import annotations

import pytest
from tests.support.matrix import CARTS, LEAGUE, TEAMS
from tests.support.runs import offbeat, small_run

from offbeat.config import importing
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runtime": "processes", "ray_cpus": 2}, "ray_cpus is 2.0, which is not supported by the processes runtime"),
        ({"ray_resources": ("other",)}, "ray_resources.*of the form NAME=AMOUNT"),
        ({"ray_resources": ("other=much",)}, "ray_resources.*of the form NAME=AMOUNT"),
        ({"ray_address": ""}, "ray_address is empty: pass, for example, "),
        ({"ray_cpus": 1.5}, "ray_cpus is 1.5, but Ray supports fractions only below 1: pass 2"),
        ({"ray_resources": ("fast=2.5",)}, "the resource fast is 2.5, but Ray supports fractions only below 1: pass 3"),
        ({"ray_resources": ("GPU=1",)}, "ray_resources has GPU, which is not a custom resource: pass ray_cpus or"),
        ({"ray_placement": "anywhere"}, "ray_placement.*pack, spread"),
        ({"ray_runtime_env": "pip: my-env"}, "ray_runtime_env is 'pip: my-env', but a JSON object is expected"),
        ({"ray_runtime_env": "[1]"}, r"ray_runtime_env is '\[1\]', but a JSON object is expected"),
        (
            {"ray_address": "10.0.0.1:6379", "ray_object_store_mb": 100},
            "ray_object_store_mb is 100, but ray_address is 10.0.0.1:6379",
        ),
        ({"split": "measured"}, "how many actors are fastest depends on the cluster: pass --actors N"),
    ],
)
def test_keys_for_ray_that_are_wrong_or_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        resolve("ppo", "CartPole-v1", flags={"runtime": "ray", **settings})


def test_league_on_ray_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match=r"whose actors get the newest weights only.*pass another --runtime"):
        resolve("ppo", CARTS, flags={"runtime": "ray", "policies": TEAMS, "league": LEAGUE})


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("ray_address", "127.0.0.1:1", "connect to the Ray cluster 127.0.0.1:1"),
        ("ray_runtime_env", '{"pip": ["unknown"]}', 'prepare the nodes of a Ray cluster with {"pip": ["unknown"]}'),
    ],
)
def test_resume_does_not_use_a_cluster_that_only_the_run_directory_names(tmp_path, key, value, named):
    run = small_run(tmp_path / "run", steps=512, stop_at=128).path
    config = run / "config.toml"
    text = config.read_text().replace('"serial"', '"ray"').replace(f'{key} = "none"', f"{key} = '{value}'")
    config.write_text(text)
    said = offbeat("resume", run)
    assert (said.code, f"{run} would {named}" in said.err) == (2, True), said.err
    assert "pass your own ray_address and ray_runtime_env, or none, with --set" in said.err
    assert config.read_text() == text
    assert offbeat("eval", run, "--episodes", 1).code == 0, "an evaluation connects to no cluster"
    assert offbeat("resume", run, "--runtime", "threads").code == 0, "neither do other runtimes"


def test_resume_uses_a_cluster_that_the_caller_names(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "_ACCEPTED", set(importing._ACCEPTED))
    run = small_run(tmp_path / "run", steps=512, stop_at=128).path
    config = run / "config.toml"
    text = config.read_text().replace('"serial"', '"ray"').replace('ray_address = "none"', 'ray_address = "here"')
    config.write_text(text)
    said = offbeat("resume", run, "--set", "ray_address=here")
    assert "'here' is not the address of a Ray cluster" in said.err
