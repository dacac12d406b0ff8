"""Evaluations of a run: when its weights are evaluated, and what is done with the results.

A run that must not depend on the clock (lag exact), and one in serial, waits for each result. Else the evaluator works
beside the learner, and a result is taken in when it has come. An evaluation is skipped if all together would then take
more than FREE_S seconds and more than a share of the run's time so far; the last one never is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from offbeat.config.run_config import RunConfig
from offbeat.core.types import Tree
from offbeat.metrics.recorder import Counters, Recorder
from offbeat.models.published import published_vector
from offbeat.runtime.board import POLL_INTERVAL_S
from offbeat.runtime.evaluation.evaluators import Evaluator, Result
from offbeat.runtime.parts import PolicyParts
from offbeat.runtime.saving import Saving
from offbeat.runtime.supervisor import Notify

ALWAYS_ALLOWED_S = 5.0
"""Seconds that evaluations of a run may take together, whatever their share: short runs are evaluated as asked for."""
REPORTED_SHARE = 0.01
"""Share of the time from which on the closing line says what evaluations took."""


class Evaluations:
    """See the module's docstring."""

    def __init__(
        self,
        run: RunConfig,
        policy: PolicyParts,
        make_evaluator: Callable[[], Evaluator],
        recorder: Recorder,
        saving: Saving,
        notify: Notify,
        expected_s: Callable[[], float],
        write_line: Callable[[], None],
        *,
        beside: bool,
        bounded: bool,
    ) -> None:
        """Evaluate a run.

        Args:
            run: what is evaluated, and how often.
            policy: which is evaluated.
            make_evaluator: makes who does it; called when the first evaluation is due.
            recorder: takes the results.
            saving: takes the weights, which may be the best.
            notify: tells the user.
            expected_s: returns the seconds that the first evaluation may take, by what acting has taken so far.
            write_line: writes a metrics line; each result is in one of its own.
            beside: whether the learner goes on meanwhile.
            bounded: whether the share of time is bounded, which depends on the clock.
        """
        self._run, self._policy, self._make_evaluator = run, policy, make_evaluator
        self._evaluator: Evaluator | None = None
        self._recorder, self._saving, self._notify, self._expected_s = recorder, saving, notify, expected_s
        self._write_line, self.beside, self._bounded = write_line, beside, bounded
        self._under_way: tuple[dict[str, Tree], Counters] | None = None
        """The weights that are being evaluated, and how far the run had come with them."""
        self._pending = self._left_out = self._was_cut = False
        """Whether one is due that could not begin as another was under way; whether one was left out, or cut."""
        self.seconds = 0.0
        """What all have taken together."""
        self._last_seconds: float | None = None

    @property
    def restarts(self) -> int:
        return self._evaluator.restarts if self._evaluator else 0

    def step(
        self,
        snapshot: Callable[[], Mapping[str, Tree]],
        counters: Counters,
        wall_time_s: float,
        on_wait: Callable[[], None],
        *,
        due: bool,
        last: bool,
    ) -> bool:
        """Take in a result that has come; begin an evaluation that is due. Return whether there is something to report.

        Args:
            snapshot: returns the weights of each policy, which may be views.
            counters: how far the run has come with them.
            wall_time_s: seconds of training so far.
            on_wait: is called often while a result is waited for; may raise to give up.
            due: whether the weights are to be evaluated.
            last: whether they are those of the end: then the result is waited for.
        """
        reported = self._take_in(POLL_INTERVAL_S if last else 0.0, on_wait, until_done=last)
        self._pending |= due
        if not self._pending or self._under_way or (not last and self._exceeds_time_share(wall_time_s)):
            return reported
        if reported and last:
            self._write_line()
        self._pending = False
        self._start(snapshot(), counters)
        if last or not self.beside:
            reported |= self._take_in(POLL_INTERVAL_S, on_wait, until_done=True)
        return reported

    def _exceeds_time_share(self, wall_time_s: float) -> bool:
        """Whether one more would take too large a share of the time; then it is left out."""
        one = self._expected_s() if self._last_seconds is None else self._last_seconds
        if not self._bounded or self.seconds + one <= max(ALWAYS_ALLOWED_S, self._run.eval_time_share * wall_time_s):
            return False
        self._pending = False
        if not self._left_out:
            self._notify(
                f"an evaluation takes about {one:.1f} s: some are skipped, because all together would take more than "
                f"{100 * self._run.eval_time_share:.0f} % of the time so far; the last one is never skipped. To skip "
                "none, pass --set eval_time_share=1"
            )
        self._left_out = True
        return True

    def _start(self, snapshot: Mapping[str, Tree], counters: Counters) -> None:
        weights = {policy: {name: np.array(a) for name, a in own.items()} for policy, own in snapshot.items()}
        if self._evaluator is None:
            self._evaluator = self._make_evaluator()
        self._under_way = weights, counters
        self._evaluator.start(published_vector(self._policy.spec, weights[self._policy.name]))

    def _take_in(self, seconds: float, on_wait: Callable[[], None], *, until_done: bool) -> bool:
        """Take in the result of what is under way, if it has come; return whether it has."""
        while self._under_way and self._evaluator:
            result = self._evaluator.poll(seconds, on_wait)
            if result:
                self._record(result, *self._under_way)
                self._under_way = None
                return True
            if not until_done:
                return False
        return False

    def _record(self, result: Result, weights: Mapping[str, Tree], counters: Counters) -> None:
        self.seconds += result.seconds
        self._last_seconds = result.seconds
        if result.evaluation is None:
            self._recorder.evaluation_failed()
            self._notify(f"evaluation failed, and training continues: {result.failure}", result.details)
            return
        evaluation = result.evaluation
        self._recorder.add_evaluation(
            {
                "eval_env_steps": counters.env_steps,
                "eval_return_mean": evaluation.return_mean,
                "eval_return_std": evaluation.return_std,
                "eval_return_min": evaluation.return_min,
                "eval_return_max": evaluation.return_max,
                "eval_length_mean": evaluation.length_mean,
                "eval_episodes_cut": evaluation.cut,
            }
        )
        self._saving.evaluated(evaluation.return_mean, weights, counters)
        self._notify_of_cuts(evaluation.cuts)

    def _notify_of_cuts(self, cuts: str) -> None:
        """Say once a run that an evaluation was cut."""
        if cuts and not self._was_cut:
            self._was_cut = True
            self._notify(
                f"evaluation: {cuts}; these count with their return so far. The limits are "
                f"eval_max_episode_steps={self._run.eval_max_episode_steps} per episode and "
                f"eval_max_steps={self._run.eval_max_steps} in total. If episodes of this env can go on forever, pass "
                "--set max_episode_steps=N"
            )

    def summary(self, wall_time_s: float) -> str:
        """Say what evaluations took of a run; nothing where that is nothing worth a word."""
        share = self.seconds / wall_time_s if wall_time_s else 0.0
        if share < REPORTED_SHARE:
            return ""
        beside = ", beside learning" if self.beside else ""
        return f"evaluations took {self.seconds:.1f} s, {100 * share:.0f} % of the time{beside}"

    def close(self) -> None:
        if self._evaluator:
            self._evaluator.close()
