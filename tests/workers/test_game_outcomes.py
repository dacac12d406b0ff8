"""The outcome of each side of a game, as far as the env has reported one for its agents."""

from __future__ import annotations

import numpy as np
import pytest

from offbeat.workers.game_outcomes import GameOutcomes


def test_a_reported_outcome_of_a_side_is_the_mean_over_the_agents_that_report_one():
    games = GameOutcomes(2, 1, reported=True)
    for side, outcome in ((0, 0.5), (0, 1.0), (1, 0.6)):
        games.add_outcome(0, side, outcome)
    assert games.take(0) == pytest.approx([0.75, 0.6])


def test_a_game_that_is_cut_before_an_outcome_is_reported_has_no_result():
    games = GameOutcomes(2, 1, reported=True)
    games.add_reward(0, 0, 1.0)
    assert games.take(0) is None
    games.add_outcome(0, 1, 1.0)
    outcomes = games.take(0)
    assert outcomes is not None
    assert np.isnan(outcomes[0])
