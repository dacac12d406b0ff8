"""`offbeat list`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from offbeat.cli.flags import Imports
from offbeat.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from offbeat.cli.listed_settings import ListedSetting


@dataclass(frozen=True)
class List:
    """List the known names, or the settings of an algorithm: offbeat list envs, offbeat list settings ppo."""

    what: Annotated[Positional[Literal["envs", "algorithms", "runtimes", "presets", "settings"]], arg(metavar="WHAT")]
    """What to list: envs, algorithms, runtimes, presets or settings."""
    algo: Annotated[Positional[str | None], arg(metavar="[ALGO]", help_behavior_hint="")] = None
    """Of settings: the algorithm. Your own: my_module:MyAlgorithm."""
    env: Annotated[str | None, arg(metavar="ENV", help_behavior_hint="")] = None
    """Of settings: the env whose preset is shown beside the defaults."""
    imports: Imports = ()
    """Python module to import first. The names that it registers are listed too."""

    def run(self) -> int:
        from offbeat.config.importing import import_modules

        import_modules(self.imports)
        if self.what == "settings":
            self._print_settings()
            return 0
        for name, given in (("ALGO", self.algo), ("--env", self.env)):
            if given is not None:
                raise ConfigError(
                    f"{name} is {given!r}, but only settings are listed for an algorithm and an env: leave it out, or "
                    "run, for example, offbeat list settings ppo --env CartPole-v1"
                )
        print("\n".join(_NAMES[self.what]()))
        return 0

    def _print_settings(self) -> None:
        if self.algo is None:
            raise ConfigError("the algorithm is missing: run, for example, offbeat list settings ppo")
        from rich.console import Console

        from offbeat.cli.listed_settings import listed_settings

        preset, settings = listed_settings(self.algo, self.env)
        if self.env is not None and not preset:
            _require_env(self.env, self.imports)
        if not sys.stdout.isatty():
            print("\n".join(_plain(settings)))
            return
        console = Console(highlight=False)
        for part in _drawn(settings, self.env, preset):
            console.print(part)


def _require_env(env_id: str, imports: Sequence[str]) -> None:
    """Refuse an env that does not exist, unless it is of a library whose ids are only known when envs are made.

    `imports`: the modules that the user has imported.
    """
    from offbeat.config.env import adapter_prefix
    from offbeat.envs.registration import naming_imports, registry_entry

    if not adapter_prefix(env_id):
        with naming_imports(env_id, imports):
            registry_entry(env_id)


def _envs() -> Iterable[str]:
    from offbeat.envs.make import list_envs

    return list_envs()


def _algorithms() -> Iterable[str]:
    from offbeat.config.registry import ALGORITHMS

    return (f"{name}  {entry.summary}".rstrip() for name, entry in ALGORITHMS.items())


def _runtimes() -> Iterable[str]:
    from offbeat.config.runtimes import RUNTIMES

    return (f"{name}  {entry.summary}".rstrip() for name, entry in RUNTIMES.items())


def _presets() -> Iterable[str]:
    from offbeat.config.preset_files import preset_names

    return preset_names()


_NAMES = {"envs": _envs, "algorithms": _algorithms, "runtimes": _runtimes, "presets": _presets}

# --- settings -----------------------------------------------------------------------------------------------

COLUMNS = ("table", "key", "takes", "default", "preset", "meaning")
"""The columns of the plain text, separated by tabs."""
_INDENT = 4


def _plain(settings: Iterable[ListedSetting]) -> Iterator[str]:
    """Yield a line of names, and a line for each setting."""
    yield "\t".join(COLUMNS)
    for setting in settings:
        yield "\t".join((*astuple(setting)[:-1], setting.sentence))


def _drawn(settings: Iterable[ListedSetting], env: str | None, preset: str) -> Iterator[RenderableType]:
    """Yield the settings for a terminal of any width: each has its key and its values, and below them its meaning."""
    from rich.padding import Padding
    from rich.text import Text

    for table, group in groupby(settings, key=lambda setting: setting.table):
        yield Text.assemble("\n", (f"[{table}]", "bold"))
        for setting in group:
            preset_value = f"   preset: {setting.preset}" if setting.preset else ""
            yield Text.assemble("  ", (setting.key, "bold cyan"), f" = {setting.default}", (preset_value, "green"))
            meaning = Text.assemble(f"{setting.sentence} ".lstrip(), (f"({setting.takes})", "bright_black"))
            yield Padding(meaning, (0, 0, 0, _INDENT))
    if env is not None:
        yield Text(f"\nThe preset of {env} is {preset}." if preset else f"\nThere is no preset for {env}.")
    yield Text("Shown as KEY = DEFAULT. Pass them with --set, such as --set gamma=0.98; in Python by name.")
