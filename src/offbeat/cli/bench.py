"""`offbeat bench`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from offbeat.cli.output import changing_spinner, spinner, stdout_to_stderr
from offbeat.cli.train import RunArguments
from offbeat.core.errors import ConfigError
from offbeat.core.messages import once
from offbeat.core.printing import print_text

if TYPE_CHECKING:
    from offbeat.runtime.reporting import Notify
    from offbeat.tuning.chosen_layout import ChosenLayout


@dataclass(frozen=True)
class Bench(RunArguments):
    """Measure the cost of acting and learning, and the speed of a run: offbeat bench ppo CartPole-v1.

    It takes the flags of `offbeat train`. Five have no effect, because it trains for SECONDS without evaluations:
    --steps, --stop-at, --stop-at-return, --time and --eval-every. All policies start with new weights, also those with
    init_from in their tables, so --init-from is refused.
    """

    seconds: Annotated[float, arg(metavar="SECONDS")] = 5.0
    """Seconds for which the run is measured, and each layout that it is compared with. Measuring the costs takes about
    ten seconds more. With slow envs or learning steps all of this takes longer, because a run needs a few of them."""
    act_only: bool = False
    """Only act, without a learner."""
    json: bool = False
    """Print one JSON object and nothing else."""

    def run(self) -> int:
        if self.seconds <= 0:
            raise ConfigError(f"seconds is {self.seconds:g}, but more than 0 is expected: pass --seconds 5")
        with stdout_to_stderr(), spinner("starting"):
            config = self.config()
            if config.run.init_from is not None:
                raise ConfigError(
                    f"init_from is {config.run.init_from}, but `offbeat bench` measures new weights: leave it out"
                )
            from offbeat.api.running.compiled_modules import import_compiled
            from offbeat.tuning.auto_layout import with_measured_topology

            import_compiled(config, _notify)
        notify = once(_notify)
        with stdout_to_stderr(), changing_spinner(lines=not self.json) as show:
            if config.runtime.split != "given":
                show("measuring the cost of acting and learning, to choose the number of actors")
            layout = with_measured_topology(config, notify)
        if layout.reason and not self.json:
            print_text(layout.reason)
        with stdout_to_stderr(), changing_spinner(lines=not self.json) as show:
            result = self._measured(layout, notify, show)
        if self.json:
            print(json.dumps(result))
        else:
            print_text(_table(result))
        return 0

    def _measured(self, layout: ChosenLayout, notify: Notify, show: Callable[[str], None]) -> dict[str, Any]:
        from offbeat.tuning import bench as measure

        if self.act_only:
            show("measuring acting")
            return {"act_only_sps": measure.sampling_sps(layout.config, self.seconds, notify)}
        others = () if layout.next_best is None else (layout.next_best,)
        return measure.report(layout.config, self.seconds, notify, others, show)


def _notify(text: str, _details: str = "") -> None:
    print_text(text, sys.stderr)


def _table(result: dict[str, Any]) -> str:
    if "act_only_sps" in result:
        return f"acting only: {result['act_only_sps']:,.0f} env steps/s"
    costs_us = {name: result[f"c_{name}_us"] for name in ("env", "act", "learn")}
    total = sum(costs_us.values())
    costs = "\n".join(f"  {name:6} {cost:9.2f} us  {cost / total:4.0%}" for name, cost in costs_us.items())
    return (
        f"CPU time per env step in microseconds, each part measured separately:\n{costs}\n"
        f"{_env_wait(result)}"
        f"achieved {result['achieved_sps']:,.0f} env steps/s: {result['layout_fraction']:.0%} of the limit of this "
        f"topology ({result['layout_limit_sps']:,.0f}), {result['fraction']:.0%} of the limit of {result['cores']} "
        f"cores ({result['limit_sps']:,.0f})\n"
        f"{_agent_steps(result)}"
        f"bound by the {result['bound_by']}; policy lag {result['policy_lag_mean']:.1f} (at most "
        f"{result['policy_lag_max']:.0f}) learning steps"
        f"{_layouts(result)}"
        f"{_line(result, 'messages')}"
        f"{_line(result, 'one_machine')}"
        f"{_line(result, 'inference')}"
        f"{_busy(result)}"
    )


def _env_wait(result: dict[str, Any]) -> str:
    """Return how long envs wait as a line of text, because such an env has little CPU time; '' if they compute."""
    wait = result["env_wait_us"]
    if not wait:
        return ""
    line = (
        f"an env step takes {result['c_env_us'] + wait:,.2f} us, in {wait:,.2f} us of which the env waits for another "
        "process, a device or a timer"
    )
    if max(layout["actors"] for layout in result["layouts"]) <= result["cores"]:
        line += (
            "; actors can wait at the same time: with --runtime processes and without --actors, more actors than cores "
            "are tried too"
        )
    return f"{line}\n"


def _busy(result: dict[str, Any]) -> str:
    """Return the warning that the machine was busy as a line; '' if it was not."""
    from offbeat.tuning.other_load import warning

    text = warning(result["other_cores"], result["cores"])
    return f"\n{text}" if text else ""


def _line(result: dict[str, Any], name: str) -> str:
    """Return a text of the results as a line; '' if it is not there."""
    return f"\n{result[name]}" if name in result else ""


def _agent_steps(result: dict[str, Any]) -> str:
    """Return the speed in agent steps as a line of text; '' if each env has one agent."""
    if "achieved_agent_sps" not in result:
        return ""
    return (
        f"these env steps have {result['achieved_agent_sps']:,.0f} agent steps/s, the decisions that are learned from\n"
    )


def _layouts(result: dict[str, Any]) -> str:
    """Return the layouts with their predicted and measured speeds, and what follows, as lines of text."""
    from offbeat.tuning.layouts import FailedLayout, MeasuredLayout, failures, misprediction, table
    from offbeat.tuning.other_load import is_busy

    busy = is_busy(result["other_cores"], result["cores"])
    layouts = [MeasuredLayout(**layout) for layout in result["layouts"]]
    failed = [FailedLayout(**layout) for layout in result["failed_layouts"]]
    lines = (table(layouts), failures(failed), result["advice"], misprediction(layouts, busy=busy))
    return "".join(f"\n{line}" for line in lines if line)
