"""Write docs/reference/options.md from the code: every key and every flag, with what the code says of it.

python docs/generate_options.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from offbeat.cli.arguments import Usage
from offbeat.cli.listed_settings import default_text, table_settings
from offbeat.cli.main import COMMANDS
from offbeat.config.env import EnvConfig
from offbeat.config.league import LeagueConfig
from offbeat.config.policies import PolicyConfig
from offbeat.config.registry import ALGORITHMS
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.argument_notation import flags_shown
from offbeat.core.field_definitions import field_docstrings

PAGE = Path(__file__).parent / "reference/options.md"

HEAD = """\
# Options

<!-- Written by docs/generate_options.py: change the docstrings in the code, then run it. -->

A run's settings are four tables: `[run]`, `[env]`, `[runtime]` and the algorithm's own. Values come
from the defaults below, the preset, flags and `--set`; later ones replace earlier ones. The run's `config.toml` has the
result. A run with several policies also has a table `[policies.NAME]` for each of them, and one with a league the table
`[league]`.

```bash
offbeat train ppo CartPole-v1 --steps 100000 --set learning_rate=0.001 gamma=0.98 --set hidden_sizes=128,128
```

Every key can be given with `--set key=value`, and from Python by its name: `offbeat.train("ppo", "CartPole-v1",
learning_rate=0.001)`. Keys of `[league]` have a prefix: `--set league.window=5`, in Python `league={"window": 5}`.
Tables of policies are given with `--policies FILE.toml`, and single values in them with
`--set policies.NAME.settings.learning_rate=0.001`. A key that is not known, a value of the wrong kind or range, and a
key that is given twice are refused before any work starts, with exit code 2. `none` means that nothing is set.

`offbeat list settings ppo --env CartPole-v1` prints the same in a terminal, for one algorithm, with the values of the
env's preset.

Without `--preset`, the preset for the algorithm and the env applies, if there is one. The first line of a run names it.
`offbeat list presets` shows their names; they are the TOML files in `src/offbeat/config/presets`. With `--preset none`
only the defaults apply.
"""

COMMANDS_HEAD = """
# Commands and flags

Exit codes: 0 done, 1 the run failed, 2 bad input, 130 interrupted. A flag of `train` without a default leaves the key
of the same name, in the tables above, as it is."""


@flags_shown()
def page() -> str:
    """Return the whole page."""
    tables = {"run": RunConfig, "env": EnvConfig, "runtime": RuntimeConfig}
    tables |= {name: entry.config_class() for name, entry in ALGORITHMS.items()}
    tables |= {"policies.NAME": PolicyConfig, "league": LeagueConfig}
    keys = (line for name, config in tables.items() for line in ("", *_key_table(name, config)))
    flags = (line for name, command in COMMANDS.items() for line in ("", *_flag_table(name, command)))
    return HEAD + "\n".join([*keys, COMMANDS_HEAD, *flags]) + "\n"


# --- keys ---------------------------------------------------------------------------------------------------


def _key_table(name: str, config: type[Any]) -> Iterator[str]:
    yield f"## [{name}]"
    yield ""
    yield inspect.getdoc(config) or ""
    yield ""
    yield from _table_head("key", "takes", "default", "meaning")
    for item in table_settings(name, config):
        default = item.default + (_own_defaults(item.key) if name == "runtime" else "")
        key = item.key if name == "league" else item.key.removeprefix("env.").removesuffix(".NAME")
        yield _row(f"`{key.removeprefix('league.')}`", item.takes, default, item.meaning)


def _own_defaults(key: str) -> str:
    """Return the defaults of a key of [runtime] that algorithms have of their own, as text."""
    own = {name: entry.config_class().runtime_defaults for name, entry in ALGORITHMS.items()}
    return "".join(f"; with {name} {values[key]}" for name, values in own.items() if key in values)


# --- flags --------------------------------------------------------------------------------------------------


def _flag_table(name: str, command: type[Any]) -> Iterator[str]:
    yield f"## offbeat {name}"
    yield ""
    yield inspect.getdoc(command) or ""
    if not fields(command):
        return
    yield ""
    yield from _table_head("argument", "default", "meaning")
    notes = field_docstrings(command)
    for item, argument in zip(fields(command), Usage(name, command).arguments, strict=True):
        note = argument.help or notes[item.name]
        text = default_text(item)
        default = "" if text in ("none", "false") else text
        yield _row(f"`{argument.usage}`", default, note + (" Repeatable." if argument.is_repeatable else ""))


# --- both ---------------------------------------------------------------------------------------------------


def _table_head(*names: str) -> list[str]:
    return [_row(*names), "|" + " --- |" * len(names)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page())
