"""The schedule of evaluations: decides when the weights are evaluated, and passes on the results.

Exact runs, which must not depend on time, and serial runs wait for each result. Other runs continue to learn while the
evaluator works; evaluations that are due meanwhile are made as one, once it has ended. Unless the run is exact or
`eval_time_share` is 1, an evaluation is skipped if all evaluations together would cost more than ALWAYS_ALLOWED_S
seconds and more than this fraction of the run's time so far. The last evaluation is never skipped.

An evaluation is expected to cost as much as the last one. If learning continues meanwhile, the time in which the
evaluator waits for a core does not count: it costs the run nothing, and on a machine with other load it is most of the
time. The first evaluation is expected to cost what acting took so far, for as many env steps. This may be far too
much after few env steps, or on such a machine. So, if learning continues meanwhile, each skip halves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from offbeat.core.policy_names import policy_key
from offbeat.core.process.threads import usable_core_numbers
from offbeat.core.types import Tree
from offbeat.metrics.counters import Counters
from offbeat.metrics.names import ADAPTATION_TRIALS, adaptation_key
from offbeat.models.published import published_vector
from offbeat.runtime.board import POLL_INTERVAL_S
from offbeat.runtime.evaluation.evaluators import Evaluator, Result, make_evaluator
from offbeat.runtime.evaluation.plan import EvaluatedPolicy, EvaluationPlan
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.saving import Saving
from offbeat.runtime.parts import Parts
from offbeat.workers.episodes import Episodes, Evaluation

ALWAYS_ALLOWED_S = 5.0
"""Seconds that all evaluations of a run may take together in any case, so that short runs skip none."""
REPORTED_SHARE = 0.01
"""Fraction of the time since the start or the resume from which on the last message reports that of evaluations."""


class Evaluations:
    """See the module's docstring."""

    def __init__(
        self,
        plan: EvaluationPlan,
        parts: Parts,
        make_evaluator: Callable[[], Evaluator],
        services: RunServices,
        saving: Saving,
        expected_s: Callable[[Counters], float],
        *,
        concurrent: bool,
        bounded: bool,
    ) -> None:
        """Make the schedule of a run.

        Args:
            plan: the plan of the evaluations.
            parts: the parts of the run: its policies, which are evaluated together, and their weights.
            make_evaluator: makes the evaluator; is called when the first evaluation is due.
            services: the recorder gets the results, the observer also the evaluated weights, for callbacks.
            saving: gets the evaluated weights, to save the best ones.
            expected_s: estimates the seconds of the first evaluation from acting so far, up to these counters.
            concurrent: whether the learner continues during an evaluation, if the evaluator has a process of its own.
            bounded: whether evaluations are skipped to bound their share of the time.
        """
        self._plan, self._policies, self._weights = plan, parts.policies, parts.weights
        self._make_evaluator = make_evaluator
        self._evaluator: Evaluator | None = None
        self._recorder, self._observer, self._notify = services.recorder, services.observer, services.reporting.notify
        self._saving, self._expected_s = saving, expected_s
        self.concurrent, self._bounded = concurrent, bounded
        self._running: tuple[dict[str, Tree], Counters] | None = None
        """The weights that are being evaluated, and the counters of the run at these weights."""
        self._pending = False
        """Whether an evaluation is due and not started yet, because another one is running."""
        self._has_cut = False
        """Whether an evaluation of this run was cut."""
        self.seconds = 0.0
        """Seconds of all evaluations of the run so far."""
        self._seconds_before = 0.0
        """Those before the resume; 0 in a new run."""
        self._cost_s = 0.0
        """What they have cost the run."""
        self._last_cost_s: float | None = None
        self._skips = 0
        """Number of skipped evaluations."""
        self.return_mean: float | None = None
        """The mean return of the last evaluation since the run was started or resumed; None before it."""

    @property
    def is_due(self) -> bool:
        """Whether an evaluation is due and has no result yet."""
        return self._pending or self._running is not None

    def state(self) -> dict[str, float | None]:
        """Return what a checkpoint has of the evaluations, besides their seconds, which are a counter."""
        return {"cost_s": self._cost_s, "last_cost_s": self._last_cost_s, "is_due": self.is_due}

    def restore(self, seconds: float, state: Mapping[str, Any]) -> None:
        """Continue a run whose evaluations have taken these seconds so far.

        Args:
            seconds: of all evaluations so far.
            state: the result of `state`.
        """
        self.seconds = self._seconds_before = seconds
        self._cost_s, self._last_cost_s = state["cost_s"], state["last_cost_s"]
        self._pending = state["is_due"]

    @property
    def restarts(self) -> int:
        return self._evaluator.restarts if self._evaluator else 0

    def postpone(self) -> None:
        """Note that an evaluation is due which is not made in this part of the run."""
        self._pending = True

    def step(
        self,
        counters: Counters,
        wall_time_s: float,
        on_wait: Callable[[], None],
        write_line: Callable[[], None],
        *,
        due: bool,
        last: bool,
    ) -> bool:
        """Collect the result of a finished evaluation, then start an evaluation if one is due.

        Args:
            counters: counters of the run at the present weights.
            wall_time_s: seconds of training so far.
            on_wait: is called often while this waits for a result; may raise to stop waiting.
            write_line: writes a metrics line within a period; each result gets its own line.
            due: whether the weights are to be evaluated.
            last: whether the run has ended: this then waits for the result.

        Returns:
            Whether a result was recorded that is not in a metrics line yet.
        """
        reported = self._collect(POLL_INTERVAL_S if last else 0.0, on_wait, until_done=last)
        self._pending |= due
        if not self._pending or self._running or (not last and self._exceeds_time_share(counters, wall_time_s)):
            return reported
        if reported and last:
            write_line()
        self._pending = False
        self._start(counters)
        if last or not self.concurrent:
            reported |= self._collect(POLL_INTERVAL_S, on_wait, until_done=True)
        return reported

    def _exceeds_time_share(self, counters: Counters, wall_time_s: float) -> bool:
        """Whether another evaluation would take too large a share of the time; if so, skip it."""
        next_s = self._next_cost_s(counters)
        allowed_s = max(ALWAYS_ALLOWED_S, self._plan.run.eval_time_share * wall_time_s)
        if not self._bounded or self._cost_s + next_s <= allowed_s:
            return False
        self._pending = False
        if not self._skips:
            self._notify(
                f"an evaluation takes about {next_s:.1f} s: some are skipped, because all together would take more "
                f"than {self._plan.run.eval_time_share:.0%} of the time so far; the last one is never skipped. "
                "To skip none, pass --set eval_time_share=1"
            )
        self._skips += 1
        return True

    def _next_cost_s(self, counters: Counters) -> float:
        """The expected cost of the next evaluation: see the module's docstring."""
        if self._last_cost_s is not None:
            return self._last_cost_s
        return self._expected_s(counters) * (0.5**self._skips if self.concurrent else 1.0)

    def _start(self, counters: Counters) -> None:
        weights = {policy: {name: np.array(a) for name, a in tree.items()} for policy, tree in self._weights().items()}
        if self._evaluator is None:
            self._evaluator = self._make_evaluator()
            self.concurrent = self._evaluator.concurrent
        self._running = weights, counters
        self._evaluator.start(
            {policy.name: published_vector(policy.spec, weights[policy.name]) for policy in self._policies}
        )

    def _collect(self, seconds: float, on_wait: Callable[[], None], *, until_done: bool) -> bool:
        """Record the result of the running evaluation, if it has ended; return whether it has."""
        while self._running and self._evaluator:
            result = self._evaluator.poll(seconds, on_wait)
            if result:
                self._record(result, *self._running)
                self._running = None
                return True
            if not until_done:
                return False
        return False

    def _record(self, result: Result, weights: Mapping[str, Tree], counters: Counters) -> None:
        self.seconds += result.seconds
        self._last_cost_s = result.seconds - (result.waited_s if self.concurrent else 0.0)
        self._cost_s += self._last_cost_s
        if result.evaluation is None:
            self._recorder.evaluation_failed()
            self._notify(f"evaluation failed, and training continues: {result.failure}", result.details)
            return
        metrics = self._metrics_of(result.evaluation)
        results = {"eval_env_steps": counters.env_steps, **metrics}
        self._recorder.add_evaluation(results)
        self.return_mean = metrics["eval_return_mean"]
        if self.return_mean is not None:
            self._saving.evaluated(self.return_mean, weights, counters)
        self._notify_of_cuts(result.evaluation.cuts)
        numbers = self._observer.evaluated(results, weights, counters)
        self._recorder.add_to_evaluation(numbers, self._observer.owner_of)

    def _metrics_of(self, evaluation: Evaluation) -> dict[str, float | None]:
        """Return the metrics of the agents that learn, and, in a run with several policies, those of each policy."""
        policies = self._policies
        learning = [policy.name for policy in policies if policy.trained] or [policy.name for policy in policies]
        metrics = {
            **self._of_agents(evaluation.of(learning)),
            "eval_episodes_cut": evaluation.cut,
            **_of_trials(evaluation),
        }
        if len(policies) > 1:
            for name, episodes in evaluation.policies.items():
                metrics |= {policy_key(name, key): value for key, value in self._of_agents(episodes).items()}
        return metrics

    def _of_agents(self, episodes: Episodes) -> dict[str, float | None]:
        """Return the metrics of some agents. The sum over agents is one of them in a world with several."""
        return {
            "eval_return_mean": episodes.return_mean,
            "eval_return_std": episodes.return_std,
            "eval_return_min": episodes.return_min,
            "eval_return_max": episodes.return_max,
            "eval_length_mean": episodes.length_mean,
            **({"eval_team_return_mean": episodes.team_return_mean} if self._policies[0].env_spec.agents else {}),
        }

    def _notify_of_cuts(self, cuts: str) -> None:
        """Notify the user, once in a run, that episodes of an evaluation were cut."""
        if cuts and not self._has_cut:
            self._has_cut = True
            self._notify(
                f"evaluation: {cuts}; those cut count with their return so far. The limits are "
                f"eval_max_episode_steps={self._plan.max_episode_steps} per episode and "
                f"eval_max_steps={self._plan.run.eval_max_steps} in total. If episodes of this env can go on forever, "
                "pass --set max_episode_steps=N"
            )

    def summary(self, waited_s: float, wall_s: float) -> str:
        """Return a message about the time of evaluations since the run was started or resumed.

        It is empty if their share is below REPORTED_SHARE.

        Args:
            waited_s: seconds in which the run waited for evaluations, with the starts of the evaluator's process. They
                count unless the learner continues meanwhile.
            wall_s: seconds since the run was started or resumed.
        """
        seconds = self.seconds - self._seconds_before if self.concurrent else waited_s
        if seconds <= REPORTED_SHARE * wall_s:
            return ""
        concurrent = ", in parallel to learning" if self.concurrent else ""
        return f"evaluations took {seconds:.1f} s, {seconds / wall_s:.0%} of the time{concurrent}"

    def close(self) -> None:
        if self._evaluator:
            self._evaluator.close()


def make_evaluations(
    parts: Parts,
    services: RunServices,
    saving: Saving,
    expected_s: Callable[[Counters], float],
    on_endless: Callable[[int], None],
) -> Evaluations:
    """Make the schedule of a run from its settings: see `Evaluations`, and `make_evaluator` for `on_endless`."""
    config, policies = parts.config, parts.policies
    exact, cores = config.runtime.lag == "exact", usable_core_numbers()  # the learner is not pinned yet
    is_free = not exact and not config.runtime.entry.runs_in_order
    concurrent = is_free and config.run.evaluator == "process" and len(cores) > 1
    evaluated = tuple(EvaluatedPolicy(each.name, each.spec, each.env_spec.agents, each.sides) for each in policies)
    plan = EvaluationPlan(config.run, config.env.in_evaluations, evaluated, parts.world, config.trials)

    def make() -> Evaluator:
        return make_evaluator(
            plan,
            config,
            services.reporting,
            parts.main_thread,
            on_endless,
            cores=cores,
            threads=parts.blas_threads,
            concurrent=concurrent,
        )

    return Evaluations(
        plan,
        parts,
        make,
        services,
        saving,
        expected_s,
        concurrent=concurrent,
        bounded=not exact and config.run.eval_time_share < 1,
    )


def _of_trials(evaluation: Evaluation) -> dict[str, float]:
    """Return the metrics of an evaluation in new tasks, by episode of a trial; none if the env has no tasks."""
    by_episode = evaluation.returns_by_episode
    if not by_episode:
        return {}
    numbered = {number: {"mean": mean, "std": std} for number, (mean, std) in enumerate(by_episode, start=1)}
    return {
        "eval_first_return_mean": by_episode[0][0],
        ADAPTATION_TRIALS: evaluation.episodes,
        **{adaptation_key(number, name): value for number, each in numbered.items() for name, value in each.items()},
    }
