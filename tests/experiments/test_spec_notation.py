"""Messages on a trial name settings as a spec file writes them."""

from __future__ import annotations

import re
import tomllib

import pytest

from offbeat.experiments.spec_notation import in_spec


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("pass --set epochs=4", "pass epochs = 4"),
        ("pass --set core=gru or --set core=lstm", 'pass core = "gru" or core = "lstm"'),
        ("pass --set gamma=0.9 epochs=2, or less", "pass gamma = 0.9, epochs = 2, or less"),
        ("Pass --set load_ahead=0.", "Pass load_ahead = 0."),
        ("but a comma-separated list, each item text", "but a list, each item text"),
        ("pass --set hidden_sizes=64,64: lists", "pass hidden_sizes = [64, 64]: lists"),
        ("pass --set hidden_sizes=[64,64]", "pass hidden_sizes = [64, 64]"),
        ("--set devices=cpu,cpu for example", 'devices = ["cpu", "cpu"] for example'),
        ("pass --set temperature=none, so that", 'pass temperature = "none", so that'),
        ("pass --set utd_ratio=1/4 or more", 'pass utd_ratio = "1/4" or more'),
        ("pass --set advantages=true", "pass advantages = true"),
        ("pass --set learning_rate=3e-4", "pass learning_rate = 3e-4"),
        ("pass --set '<key>=a b'", "pass --set '<key>=a b'"),
        (
            "pass --set a.b=8 'a.c=[1, 2]' 'a.d={x = 1, y = 2}'.",
            "pass a.b = 8, a.c = [1, 2], a.d = {x = 1, y = 2}.",
        ),
        ("pass --set 'curriculum=a 0:9.8, b 1:2'", 'pass curriculum = "a 0:9.8, b 1:2"'),
        ("pass --set 'curriculum=gravity 0:9.8'", 'pass curriculum = "gravity 0:9.8"'),
        ("pass --env-kwargs size=8 name=pole", 'pass env.kwargs.size = 8, env.kwargs.name = "pole"'),
        ("--runtime threads or --runtime serial, which", 'runtime = "threads" or runtime = "serial", which'),
        ("pass --max-lag 0 or more", "pass max_lag = 0 or more"),
        ("pass --actors N, and", "pass actors = N, and"),
        ("pass --import my_module if", 'pass imports = ["my_module"] if'),
        ("pass another --runtime, or leave it out", "pass another runtime, or leave it out"),
        ("leave out --policies and the tables", "leave out policies and the tables"),
        ("leave out --wrapper, or", "leave out wrappers, or"),
        ("pass, for example, --workers 2", "pass, for example, workers = 2"),
        ("pass --trust-code, or", "pass --trust-code, or"),
        (
            "run `offbeat check MyEnv-v0 --set frame_stack=4` first",
            "run `offbeat check MyEnv-v0 --set frame_stack=4` first",
        ),
    ],
)
def test_a_message_shows_settings_as_a_spec_file_writes_them(written, shown):
    assert in_spec(written) == shown
    assert in_spec(shown) == shown
    for assignment in re.findall(r'[a-z_.]+ = (?:"[^"]*"|\[[^]]*\]|[\d.e-]*\d|true)', shown):
        tomllib.loads(assignment)
