"""`offbeat check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from offbeat.cli.flags import EnvKwargs, Imports, Wrappers, assigned, env_settings_of
from offbeat.cli.output import progress_bar
from offbeat.core.fields import Count
from offbeat.core.printing import print_text


@dataclass(frozen=True)
class Check:
    """Step an env and report its problems with a remedy for each: offbeat check ENV."""

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Gymnasium id, envpool:ID, pettingzoo:ID, openspiel:NAME, or my_module:MyEnv."""
    imports: Imports = ()
    """Python module to import first; it may register envs."""
    env_kwargs: EnvKwargs = ()
    wrappers: Wrappers = ()
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE ...")] = ()
    """Settings of the env, as for `offbeat train`."""
    steps: Annotated[Count, arg(metavar="N", help_behavior_hint="")] = 1000
    """Random steps of each env."""

    def run(self) -> int:
        from offbeat.api.check import check_with

        with progress_bar(f"stepping {self.env}", shown=True) as on_step:
            findings = check_with(self.env, self.given(), steps=self.steps, imports=self.imports, on_step=on_step)
        for finding in findings:
            print_text(str(finding))
        errors = sum(finding.severity == "error" for finding in findings)
        warnings = len(findings) - errors
        print(f"{self.env}: errors {errors}, warnings {warnings}" if findings else f"{self.env}: no problems found")
        return 1 if errors else 0

    def given(self) -> dict[str, object]:
        """Return the settings of the env that were given, by key."""
        return assigned(self.set) | env_settings_of(self.env_kwargs, self.wrappers)
