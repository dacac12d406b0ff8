"""Callbacks: stop without progress, write a video at each evaluation, and lower the learning rate when progress stops.

python examples/callbacks.py --steps 50000
"""

from __future__ import annotations

import argparse
from math import inf
from typing import Any

import offbeat


class StopWithoutProgress(offbeat.Callback):
    """Stops the run when several evaluations in a row are not better than the best one before."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_start(self) -> None:
        self.best, self.without_progress = -inf, 0

    def on_evaluation(self, results: dict[str, float | None]) -> dict[str, float]:
        mean = results["eval_return_mean"]
        if mean is not None and mean > self.best:
            self.best, self.without_progress = mean, 0
        else:
            self.without_progress += 1
        if self.without_progress >= self.patience:
            self.run.stop(f"{self.patience} evaluations without progress")
        return {"eval_without_progress": self.without_progress}


class VideoAtEachEvaluation(offbeat.Callback):
    """Writes the start of an episode of the evaluated policy as an animated GIF, into the run directory."""

    def on_evaluation(self, results: dict[str, float | None]) -> None:
        video = self.run.path / "videos" / f"{results['eval_env_steps']}.gif"
        offbeat.watch(self.run.evaluated_policy(), video=video, max_steps=100)


def train_with_falling_rate(steps: int, rate: float, times: int) -> offbeat.Run:
    """Train; whenever progress stops, continue with half the learning rate, at most so many times.

    The rate is changed by a resume. So each value is in the run directory, and the run can be repeated bit for bit.
    """
    settings: dict[str, Any] = {"learning_rate": rate, "learning_rate_schedule": "constant", "eval_every": steps // 10}
    callbacks = [StopWithoutProgress(patience=2), VideoAtEachEvaluation()]
    run = offbeat.train("ppo", "CartPole-v1", steps=steps, seed=1, callbacks=callbacks, **settings)
    while run.state == "interrupted" and run.exit_code == 0 and times > 0:  # not by Ctrl-C
        print(f"{run.reason}, after {run.metrics['env_steps']} env steps: the learning rate {rate:g} is halved")
        rate, times = rate / 2, times - 1
        run = offbeat.resume(run.path, learning_rate=rate, callbacks=callbacks)
    return run


def main() -> None:
    """Train and say how it ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000, help="env steps to learn from")
    run = train_with_falling_rate(parser.parse_args().steps, rate=1e-3, times=2)
    videos = len(list(run.path.glob("videos/*.gif")))
    print(f"{run.state}: {run.reason}; {videos} videos in {run.path}")


if __name__ == "__main__":
    main()
