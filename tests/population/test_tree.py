"""Decisions and the family tree, on scores that are computed at once: no run is trained."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.pictures import legend_is_whole

from offbeat.core.errors import ConfigError
from offbeat.core.messages import ignore
from offbeat.plots.figures import MOST_NAMED
from offbeat.population import pictures
from offbeat.population.ledger import Decision, Failure, Ledger, Score
from offbeat.population.mutation import Gene, Genome
from offbeat.population.pictures import draw_all
from offbeat.population.settings import PopulationSettings
from offbeat.population.tree import Family

RATES = Genome({"rate": Gene(1e-6, 1.0)}, 0.5)


def family(path: Path, genome: Genome = RATES, seed: int = 0, **settings: Any) -> Family:
    given = {"members": 4, "generation": 100, "gap_std": 0.0, "gap_relative": 0.0, **settings}
    return Family(PopulationSettings(**given), genome, seed, Ledger.read(path / "ledger.jsonl"))


def play(family: Family, generations: int, score: Callable[[int, int], float]) -> list[Decision]:
    """Enter the scores of all generations, and all decisions that they allow."""
    decisions = []
    for generation in range(generations):
        for member in range(family.settings.members):
            family.ledger.add(Score(member, generation, score(member, generation), 100))
        for member in range(family.settings.members):
            decision = family.decide(member, generation)
            assert decision is not None
            family.ledger.add(decision)
            decisions.append(decision)
    return decisions


@pytest.mark.parametrize(
    ("generation", "lag", "start", "copied", "decides"),
    [
        (0, 0, 0, [], True),
        (0, 1, 0, [], False),
        (1, 1, 0, [], True),
        (2, 1, 0, [1], False),  # the score of generation 1 is from before the copy at its end
        (3, 1, 0, [1], True),
        (1, 0, 0, [0], True),
        (2, 0, 400, [], False),
        (4, 1, 400, [], True),
    ],
)
def test_a_member_copies_only_by_a_score_of_its_present_weights_after_the_start(
    tmp_path, generation, lag, start, copied, decides
):
    worst = family(tmp_path, lag=lag, start=start)
    for end in range(generation + 1):
        worst.ledger.scores |= {(member, end): Score(member, end, float(member), 100) for member in range(4)}
    for end in range(generation):
        donor = 3 if end in copied else None
        worst.ledger.decisions |= {(m, end): Decision(m, end, donor, end, "test", {"rate": 0.1}) for m in range(4)}
    decision = worst.decide(0, generation)
    assert decision is not None
    assert (decision.donor is not None) is decides


# --- the toy of the paper -----------------------------------------------------------------------------------


def trained(path: Path, *, exchange: bool) -> list[float]:
    """Train the two members of figure 2 of arXiv:1711.09846; return the objective of each at the end.

    The objective 1.2 - a^2 - b^2 is not differentiated: one member only lowers a^2, the other one only b^2. Their step
    sizes differ a little, because two equal members would never be ahead of each other.
    """
    toy = family(path, Genome({}, 0.5), members=2)
    theta = {member: [0.9, 0.9] for member in range(2)}
    for generation in range(40):
        for member in range(2):
            for _ in range(4):
                theta[member][member] -= (0.02 + 0.001 * member) * 2 * theta[member][member]
            a, b = theta[member]
            toy.ledger.add(Score(member, generation, 1.2 - a**2 - b**2, 0))
        kept = {member: list(weights) for member, weights in theta.items()}
        for member in range(2 * exchange):
            decision = toy.decide(member, generation)
            assert decision is not None
            toy.ledger.add(decision)
            if decision.donor is not None:
                theta[member] = list(kept[decision.donor])
    return [1.2 - a**2 - b**2 for a, b in theta.values()]


def test_two_members_with_one_surrogate_each_solve_together_what_neither_solves_alone(tmp_path):
    (tmp_path / "alone").mkdir()
    assert max(trained(tmp_path / "alone", exchange=False)) < 0.6
    assert max(trained(tmp_path, exchange=True)) >= 1.15


# --- decisions ----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_tree_and_another_seed_another_one(tmp_path):
    genes, trees = Genome({"rate": Gene(1e-9, 1.0)}, mutation_rate=1.0, initial={"rate": (1e-4,) * 4}), []
    for number, seed in enumerate((3, 3, 4)):
        (tmp_path / str(number)).mkdir()
        trees.append(play(family(tmp_path / str(number), genes, seed=seed), 5, lambda m, g: (m * 7 + g * 3) % 5))
    assert trees[0] == trees[1]
    assert trees[0] != trees[2]


def test_each_decision_has_random_numbers_of_its_own(tmp_path):
    genes = Genome({"rate": Gene(1e-9, 1.0)}, mutation_rate=1.0, initial={"rate": (1e-4,) * 4})
    playing = family(tmp_path, genes, replace_fraction=0.5, donor_fraction=0.25)
    decisions = play(playing, 3, lambda member, _generation: float(member))
    factors = [
        decision.values["rate"] / playing.values(decision.donor, decision.generation)["rate"]
        for decision in decisions
        if decision.donor is not None
    ]
    assert len(factors) == 6, "two members copy in each generation"
    assert len(set(factors)) == 6


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (Score(4, 0, 1.0, 100), "has a generation 0 of member 4, but there are 4 members"),
        (Decision(3, 0, None, None, "", {}), r"member 3 after generation 0 with values of \[\], but rate are mutated"),
        (Decision(3, 0, None, None, "", {"a": 1.0, "rate": 1.0}), r"of \['a', 'rate'\], but rate are mutated"),
    ],
)
def test_a_ledger_of_other_members_or_other_keys_is_refused(tmp_path, entry, says):
    ledger = family(tmp_path).ledger
    for member in range(4):
        ledger.add(Score(member, 0, float(member), 100))
    ledger.add(entry)
    with pytest.raises(ConfigError, match=says):
        family(tmp_path)


def test_a_decision_does_not_depend_on_the_order_in_which_scores_arrive(tmp_path):
    (tmp_path / "other").mkdir()
    one, other = family(tmp_path), family(tmp_path / "other")
    for member in range(4):
        one.ledger.add(Score(member, 0, float(member), 100))
        other.ledger.add(Score(3 - member, 0, float(3 - member), 100))
    assert one.decide(0, 0) == other.decide(0, 0)


def test_a_decision_waits_for_the_scores_of_all_members(tmp_path):
    waiting = family(tmp_path)
    for member in range(3):
        assert waiting.decide(0, 0) is None
        waiting.ledger.add(Score(member, 0, 1.0, 100))
    assert waiting.decide(0, 0) is None
    waiting.ledger.add(Score(3, 0, 1.0, 100))
    assert waiting.decide(0, 0) is not None


def test_with_a_lag_a_decision_needs_only_scores_of_earlier_generations(tmp_path):
    lagging = family(tmp_path, lag=1)
    first = lagging.decide(0, 0)
    assert first is not None
    assert first.donor is None
    for member in range(4):
        lagging.ledger.add(first if member == 0 else Decision(member, 0, None, None, "", lagging.values(member, 0)))
        lagging.ledger.add(Score(member, 0, float(member), 100))
    decision = lagging.decide(0, 1)  # no score of generation 1 is known
    assert decision is not None
    assert (decision.donor, decision.donor_generation) == (3, 0)


def test_a_copied_member_is_not_replaced_again_for_the_score_of_its_old_weights(tmp_path):
    decisions = play(family(tmp_path, lag=1), 5, lambda member, _generation: float(member))
    copied = [decision.generation for decision in decisions if decision.member == 0 and decision.donor is not None]
    assert copied == [1, 3]


@pytest.mark.parametrize(("later", "donor"), [(9.0, None), (0.5, 3), (None, 3)])
def test_with_a_lag_a_member_that_has_failed_is_judged_by_a_score_since_then(tmp_path, later, donor):
    lagging = family(tmp_path, lag=1)
    for generation in range(2):
        lagging.ledger.add(
            Failure(0, generation, 50, "broken")
            if generation == 0 or later is None
            else Score(0, generation, later, 200)
        )
        for member in range(1, 4):
            lagging.ledger.add(Score(member, generation, float(member), 100))
        for member in range(4 * (generation == 0)):
            decision = lagging.decide(member, generation)
            assert decision is not None
            lagging.ledger.add(decision)
    decision = lagging.decide(0, 1)
    assert decision is not None
    assert decision.donor == donor
    if donor is not None:
        assert decision.reason.startswith("it has failed," if later is None else "score 0.5 against score 3")


def test_no_score_before_the_start_leads_to_a_decision(tmp_path):
    decisions = play(family(tmp_path, start=250), 4, lambda member, _generation: float(member))
    assert {decision.generation for decision in decisions if decision.donor is not None} == {2, 3}


def test_a_population_that_minimizes_copies_the_lowest_score(tmp_path):
    decisions = play(family(tmp_path, maximize=False), 1, lambda member, _generation: float(member))
    assert [decision.donor for decision in decisions] == [None, None, None, 0]


def test_a_copy_starts_from_the_donors_values(tmp_path):
    playing = family(tmp_path, mutation_rate=0.0)
    (copy,) = [
        decision for decision in play(playing, 1, lambda member, _g: float(member)) if decision.donor is not None
    ]
    assert copy.values == playing.values(copy.donor or 0, 0)


def test_the_lineage_of_a_member_leads_through_its_donors(tmp_path):
    playing = family(tmp_path)
    play(playing, 3, lambda member, generation: float(member == generation))
    for node in ((member, 2) for member in range(4)):
        lineage = playing.lineage(node)
        assert [generation for _, generation in lineage] == [0, 1, 2]
        for before, after in pairwise(lineage):
            decision = playing.ledger.decisions[after[0], before[1]]
            assert before[0] == (after[0] if decision.donor is None else decision.donor)
    assert playing.winner(2) == 2
    assert playing.winner(3) is None


# --- the pictures -------------------------------------------------------------------------------------------


def test_the_picture_of_a_large_family_has_a_limited_size(tmp_path):
    large = family(tmp_path, members=110)
    play(large, 1, lambda member, _generation: float(member))
    for generation in range(1, 60):
        large.ledger.add(Score(0, generation, 1.0, 100))
        large.ledger.add(Decision(0, generation, None, None, "", {"rate": 0.1}))
    for figure in (pictures._tree(large, ()), pictures._values(large), pictures._scores(large, ())):
        assert max(figure.get_size_inches()) * figure.dpi <= 5200


@pytest.mark.parametrize("members", [2, 24, 50])
def test_the_legend_of_the_values_is_whole(tmp_path, members):
    several = family(tmp_path, members=members)
    play(several, 1, lambda member, _generation: float(member))
    figure = pictures._values(several)
    assert legend_is_whole(figure)
    assert len(figure.legends[0].get_texts()) == min(members, MOST_NAMED + 1)


def test_the_pictures_show_the_best_of_a_generation_in_which_a_member_has_failed(tmp_path, monkeypatch):
    ended = family(tmp_path)
    play(ended, 1, lambda member, _generation: float(member))
    for member in range(3):
        ended.ledger.add(Score(member, 1, float(member), 200))
    assert pictures._ancestors(ended, 1, ()) == set()
    assert (2, 1) in pictures._ancestors(ended, 1, {3})
    figures: dict[Path, Any] = {}
    monkeypatch.setattr(pictures, "write_figure", lambda figure, path, _notify: figures.update({path: figure}))
    for failed, generations in (((), [0]), ({3}, [0, 1]), (range(4), [0, 1])):
        tree, _, scores = draw_all(ended, tmp_path, ignore, failed)
        (best,) = [line for line in figures[scores].axes[0].lines if line.get_label() == "best"]
        assert list(np.asarray(best.get_xdata())) == generations
        connections = figures[tree].axes[0].collections[0]
        assert (max(connections.get_linewidths()) > 1) == (len(generations) == 2), "those of the best are thicker"


def test_the_pictures_after_one_generation_show_whole_titles_and_no_fractions_of_generations(tmp_path):
    stopped = family(tmp_path)
    for member in range(4):
        stopped.ledger.add(Score(member, 0, 1000 + 0.1 * member, 100))
    for figure in (pictures._tree(stopped, ()), pictures._values(stopped), pictures._scores(stopped, ())):
        figure.canvas.draw()
        assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())
        title = figure.axes[0].title.get_window_extent()
        assert 0 <= title.x0 < title.x1 <= figure.bbox.x1


def test_a_generation_in_which_all_members_have_failed_has_no_best_score_in_the_picture(tmp_path):
    ended = family(tmp_path)
    for member in range(4):
        ended.ledger.add(Failure(member, 0, 50, "broken"))
        ended.ledger.add(Decision(member, 0, None, None, "", {"rate": 0.1}))
        ended.ledger.add(Score(member, 1, float(member), 200))
    (axes,) = pictures._scores(ended, ()).axes
    (best,) = [line for line in axes.lines if line.get_label() == "best"]
    assert list(np.asarray(best.get_xdata())) == [1]


# --- the ledger ---------------------------------------------------------------------------------------------


def test_a_ledger_is_read_as_it_was_written(tmp_path):
    written = family(tmp_path)
    play(written, 3, lambda member, generation: member / 3 + generation)
    read = Ledger.read(written.ledger.path)
    assert [read.finished(member) for member in range(5)] == [3, 3, 3, 3, 0]
    assert read == written.ledger
    assert Ledger(read.path, dict(read.scores)).finished(0) == 3


@pytest.mark.parametrize("maximize", [True, False])
def test_a_failure_takes_the_place_of_a_score(tmp_path, maximize):
    failed = family(tmp_path, maximize=maximize)
    for member in range(3):
        failed.ledger.add(Score(member, 0, 10.0 - member if maximize else member, 100))
    assert failed.decide(3, 0) is None
    assert failed.winner(0) is None
    failed.ledger.add(Failure(3, 0, 50, "broken"))
    decision = failed.decide(3, 0)
    assert decision is not None
    assert (decision.donor, decision.donor_generation) == (0, 0)
    assert decision.reason == f"it has failed, against score {10 if maximize else 0}"
    failed.ledger.add(decision)
    assert failed.winner(0) == 0
    read = Ledger.read(failed.ledger.path)
    assert read == failed.ledger
    assert (read.finished(3), read.env_steps((3, 0))) == (1, 50)
    failed.ledger.add(Score(3, 0, 1.0, 100))
    with pytest.raises(ConfigError, match=r"line 6 is of generation 0 of member 3, .* it is there twice"):
        Ledger.read(failed.ledger.path)


def test_a_line_that_a_kill_has_cut_is_left_out_and_overwritten(tmp_path):
    ledger = Ledger.read(tmp_path / "ledger.jsonl")
    ledger.add(Score(0, 0, 1.0, 100))
    whole = ledger.path.read_bytes()
    for size in range(1, len(whole)):
        ledger.path.write_bytes(whole + whole[:size])
        cut = Ledger.read(ledger.path)
        assert list(cut.scores) == [(0, 0)]
    cut.add(Score(1, 0, 2.0, 100))
    assert list(Ledger.read(ledger.path).scores) == [(0, 0), (1, 0)]


def test_a_ledger_without_a_line_that_others_follow_from_is_refused(tmp_path):
    played = family(tmp_path)
    play(played, 3, lambda member, generation: member / 3 + generation)
    path = played.ledger.path
    lines = path.read_text().splitlines(keepends=True)
    for left_out in range(len(lines) - played.settings.members - 1):  # all but the last decisions, which end a file
        path.write_text("".join([*lines[:left_out], *lines[left_out + 1 :]]))
        with pytest.raises(ConfigError, match=r"line \d+ is of generation \d of member \d, .* is missing"):
            Ledger.read(path)
    for double in range(len(lines)):
        path.write_text("".join([*lines, lines[double]]))
        with pytest.raises(ConfigError, match=rf"line {len(lines) + 1} is of .* it is there twice"):
            Ledger.read(path)


DECISION = '{"event": "decision", "member": 0, "generation": 0, "donor": null, "donor_generation": null, "reason": ""'


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"event": "other"}',
        '{"event": "score", "member": 0, "generation": 0, "score": NaN, "env_steps": 1}',
        '{"event": "score", "member": -1, "generation": 0, "score": 1, "env_steps": 1}',
        DECISION + "}",
        DECISION + ', "values": {"rate": "x"}}',
    ],
)
def test_a_damaged_ledger_is_refused_with_the_line(tmp_path, line):
    path = tmp_path / "ledger.jsonl"
    Ledger.read(path).add(Score(0, 0, 1.0, 100))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ConfigError, match="line 2"):
        Ledger.read(path)
