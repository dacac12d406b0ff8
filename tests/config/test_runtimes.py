"""The records of runtimes: names are compared in offbeat/runtime alone, and a user's runtime is one like any other."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.registries import registries_kept
from tests.support.runs import offbeat as typed
from tests.support.runs import small_run, weights_of

import offbeat
from offbeat.config.config_file import load
from offbeat.config.resolve import resolve
from offbeat.config.runtimes import OPTIONAL_KEYS, RUNTIMES, RuntimeEntry, runtime_entry, supporting
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of

SOURCE = Path(offbeat.__file__).parent
MODULES = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "runtime"]
OWN_MODULE = """
import offbeat

record = offbeat.RuntimeEntry(
    "offbeat.runtime.threads",
    "threads of my own",
    overlaps=True,
    default_max_lag=2,
    supports=("actor_nice",),
    refuses={"decorrelate": "its envs begin together"},
)
offbeat.register_runtime("own_threads", record)
"""


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    with registries_kept("own_runtime"):
        yield


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the current folder that registers a runtime."""
    (tmp_path / "own_runtime.py").write_text(OWN_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


# --- names are not compared ---------------------------------------------------------------------------------


def compared(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield all that is compared, or is a case of a match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.MatchValue):
            yield node.value


def names_in(compared: ast.expr) -> set[str]:
    """Return the runtimes' names that something compared is, or has among its items."""
    items = compared.elts if isinstance(compared, ast.Tuple | ast.List | ast.Set) else [compared]
    return {str(item.value) for item in items if isinstance(item, ast.Constant) and item.value in RUNTIMES}


def test_no_module_outside_of_runtime_compares_the_name_of_a_runtime():
    found = {
        f"{path.relative_to(SOURCE)}:{expression.lineno}": names
        for path in MODULES
        if any(f'"{name}"' in path.read_text() for name in RUNTIMES)  # the others cannot
        for expression in compared(ast.parse(path.read_text()))
        if (names := names_in(expression))
    }
    assert not found


@pytest.mark.parametrize("text", ["x == 'serial'", "'hogwild' != x", "x in ('threads', 'processes')"])
def test_the_check_finds_a_comparison_with_a_runtimes_name(text):
    assert any(map(names_in, compared(ast.parse(text))))


def test_the_general_config_knows_no_key_of_an_algorithm():
    names = {"utd_ratio", "steps_per_update", "max_ahead"}
    for path in (SOURCE / "config").rglob("*.py"):
        assert not names & set(re.findall(r"\w+", path.read_text())), path


# --- the built-in ones --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_record_has_its_registered_name_and_an_existing_module(name):
    entry = runtime_entry(name)
    assert entry.name == name
    assert (SOURCE.parent / f"{entry.module.replace('.', '/')}.py").is_file()


def test_each_optional_key_is_supported_by_a_runtime_and_unset_by_default():
    runtime: Any = resolve("ppo", "CartPole-v1").runtime
    for key in OPTIONAL_KEYS:
        assert supporting(key)
        assert getattr(runtime, key) is None
    assert hints_of(type(runtime)).keys() >= {*OPTIONAL_KEYS}


# --- one of the user's --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own")
def test_a_custom_runtime_is_listed_trains_and_resumes_by_name():
    assert "own_threads  threads of my own\n" in typed("list", "runtimes", "--import", "own_runtime").out
    short = ("--steps", 512, "--lag", "exact", "--max-lag", 1, "--set", "hidden_sizes=8", "eval_every=0")
    for name in ("own_threads", "threads"):
        said = typed(
            *("train", "ppo", "CartPole-v1", "--import", "own_runtime", "--runtime", name, "--run-dir", name), *short
        )
        assert said.code == 0, said
    assert weights_of(Path("own_threads")) == weights_of(Path("threads"))
    assert load(Path("own_threads/config.toml")).runtime.runtime == "own_threads"
    said = typed("resume", "threads", "--steps", 1024, "--runtime", "own_threads", "--import", "own_runtime")
    assert said.code == 0, said


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"decorrelate": True}, "decorrelate is true, which is not supported by the own_threads runtime: its envs"),
        ({"actor_cores": (0,)}, "not supported by the own_threads runtime: leave it out, or pass --runtime threads"),
    ],
)
def test_the_keys_of_a_custom_runtime_are_validated(given, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve("ppo", "CartPole-v1", flags={"imports": ("own_runtime",), "runtime": "own_threads", **given})


@pytest.mark.parametrize("given", [{"actor_cores": (0,)}, {"runtime": "hogwild", "inference": "worker"}])
def test_a_message_in_python_quotes_the_name_of_any_runtime_that_supports_a_key(given):
    offbeat.register_runtime("mine", RuntimeEntry("own_runtime", supports=("actor_cores", "inference_workers")))
    with flags_shown(False):
        with pytest.raises(ConfigError) as refused:
            resolve("ppo", "CartPole-v1", flags=given)
        assert str(refused.value).endswith(' or runtime="mine"')


@pytest.mark.usefixtures("own")
def test_the_defaults_of_a_custom_runtime_follow_from_its_record():
    own: dict[str, object] = {"imports": ("own_runtime",), "runtime": "own_threads"}
    runtime = resolve("ppo", "CartPole-v1", flags=own).runtime
    assert (runtime.max_lag, runtime.split) == (2, "measured")
    laid_out = resolve("ppo", "CartPole-v1", flags={**own, "actors": 2, "actor_nice": 3})
    there = laid_out.in_runtime("serial").runtime
    assert (there.runtime, there.actors, there.actor_nice) == ("serial", 2, None)


def test_a_custom_runtime_of_a_module_that_is_not_imported_is_refused_with_the_remedy():
    for flags, remedy in ((True, "pass --import my_module"), (False, "import the module that registers it")):
        with flags_shown(flags), pytest.raises(ConfigError, match=f"unknown runtime 'own_threads'.*{remedy}"):
            resolve("ppo", "CartPole-v1", flags={"runtime": "own_threads"})


@pytest.mark.parametrize(
    ("name", "entry", "words"),
    [
        ("serial", RuntimeEntry("my_module"), "'serial' is already the name of offbeat.runtime.serial"),
        ("My", RuntimeEntry("my_module"), "cannot be the name of the runtime"),
        ("own", RuntimeEntry("my_module", supports=("actor_core",)), "unknown key 'actor_core'.*'actor_cores'"),
        ("own", RuntimeEntry("my_module", refuses={"max_lags": "no"}), "unknown key 'max_lags'.*'max_lag'"),
        ("own", "my_module", "a RuntimeEntry is expected"),
    ],
)
def test_an_invalid_runtime_record_is_refused(name, entry, words):
    with pytest.raises(ConfigError, match=words):
        offbeat.register_runtime(name, entry)
    assert "own" not in RUNTIMES


BUILT = """
import offbeat
from offbeat.runtime.loop.paced import PacedRuntime
from offbeat.runtime.serial import SerialActing

finished = []


class Noted(SerialActing):
    def finish(self, learned):
        finished.append(learned)
        super().finish(learned)


RUNTIME = PacedRuntime(Noted)
offbeat.register_runtime("noted", offbeat.RuntimeEntry("own_runtime"))
"""


def test_a_run_is_built_by_the_module_of_a_registered_runtime(tmp_path, monkeypatch):
    (tmp_path / "own_runtime.py").write_text(BUILT)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = small_run(tmp_path / "own", runtime="noted", imports=("own_runtime",))
    serial = small_run(tmp_path / "serial", runtime="serial")
    assert sys.modules["own_runtime"].finished == list(range(1, own.metrics["learning_step"] + 1))
    assert weights_of(own.path) == weights_of(serial.path)
