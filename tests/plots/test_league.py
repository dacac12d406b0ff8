from __future__ import annotations

import json

import numpy as np
import pytest
from tests.support.pictures import ink, legend_is_whole

from offbeat.core.errors import ConfigError
from offbeat.league.payoffs import Payoffs
from offbeat.league.ratings import Ratings, fit_ratings
from offbeat.plots.figures import MOST_NAMED, save_figure
from offbeat.plots.league import draw_ratings, plot_elo, plot_win_rates

BLUE, VERMILION, GREY = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0xE4, 0xE4, 0xE4)


def test_win_rates_are_shown_with_their_number_of_games(tmp_path):
    payoffs = Payoffs.count(["old", "middle", "new"], [(2, 0, 1.0)] * 30 + [(2, 0, 0.0)] * 10 + [(1, 0, 1.0)] * 1234)
    text = plot_win_rates(payoffs, out=tmp_path / "new" / "rates.svg").read_text()
    for shown in ("old", "middle", "new", "75", "40", "1.23k", "player", "opponent"):
        assert f"<!-- {shown} -->" in text
    assert text.count("<!-- 1.23k -->") == 2


def test_the_number_of_games_is_said_once_if_it_is_the_same_for_all_pairs(tmp_path):
    payoffs = Payoffs.count(["old", "new"], [(1, 0, 1.0)] * 30 + [(1, 0, 0.0)] * 10)
    text = plot_win_rates(payoffs, out=tmp_path / "rates.svg").read_text()
    assert "<!-- in percent of the 40 games of each pair -->" in text
    assert "<!-- 40 -->" not in text


def test_players_of_different_sides_have_a_panel_each(tmp_path):
    payoffs = Payoffs.count("abcd", [(1, 2, 1.0), (3, 0, 1.0), (1, 0, 0.5), (2, 3, 0.5)] * 9)
    ratings, sides = fit_ratings(payoffs), [("red_0", "red_1")] * 2 + [("blue",)] * 2
    figure = draw_ratings(ratings, policies=["r", "r", "b", "b"], env_steps=[0, 1, 0, 1], sides=sides)
    text = save_figure(figure, tmp_path / "r.svg").read_text()
    assert "<!-- as red_0, red_1 -->" in text
    assert "<!-- as blue -->" in text
    sides[3] = ("green",)
    figure = draw_ratings(ratings, policies=["r", "r", "b", "g"], env_steps=[0, 1, 0, 1], sides=sides)
    save_figure(figure, tmp_path / "one.svg")
    drawn = (tmp_path / "one.svg").read_text()
    assert "<!-- r -->" in drawn
    assert "<!-- b -->" not in drawn, "alone on its side"


def test_losses_wins_and_pairs_that_have_not_met_have_different_colours(tmp_path):
    payoffs = Payoffs.count(["a", "b", "c"], [(0, 1, 1.0)] * 5)
    assert {BLUE, VERMILION, GREY} <= ink(plot_win_rates(payoffs, out=tmp_path / "rates.png"))


def test_a_picture_of_very_many_players_names_some_of_them_and_promises_no_numbers_in_its_fields(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.plots.league.MOST_LABELED", 10)
    scores = [(i, i - 1, 1.0) for i in range(1, 36)] + [(1, 0, 0.0)] * 3
    payoffs = Payoffs.count([f"p{i}" for i in range(36)], scores)
    text = plot_win_rates(payoffs, out=tmp_path / "rates.svg").read_text()
    assert "<!-- in 1 to 4 games of each pair that has met -->" in text
    assert [f"<!-- p{i} -->" in text for i in range(4)] == [True, False, True, False]
    assert "<!-- 25 -->" not in text
    alone = plot_win_rates(Payoffs.count(["a"], []), out=tmp_path / "none.svg").read_text()
    assert "<!-- no games were played -->" in alone


def test_ratings_of_each_policy_are_a_line_over_env_steps(tmp_path):
    payoffs = Payoffs.count("abcd", [(1, 0, 1.0), (3, 2, 1.0), (1, 2, 0.5)] * 9)
    ratings, policies = fit_ratings(payoffs), ["red", "red", "blue", "blue"]
    steps = [0, 20_000, 0, 20_000]
    text = save_figure(draw_ratings(ratings, policies=policies, env_steps=steps), tmp_path / "r.svg").read_text()
    assert all(f"<!-- {shown} -->" in text for shown in ("red", "blue", "20k", "env steps"))
    assert all(f"stroke: {color}; stroke-width: 1.8" in text for color in ("#0072b2", "#d55e00"))


def test_names_are_drawn_as_they_are_also_with_dollar_signs_or_an_underscore_at_the_start(tmp_path):
    payoffs = Payoffs.count(["runs/$a_$", "runs/$b", "_c"], [(1, 0, 1.0), (0, 2, 1.0)] * 9)
    text = plot_win_rates(payoffs, out=tmp_path / "rates.svg").read_text()
    assert all(text.count(f"<!-- {name} -->") == 2 for name in payoffs.players)  # $a_$ is no formula
    ratings = fit_ratings(payoffs)
    figure = draw_ratings(ratings, policies=["_red", "$x_$", "b"], env_steps=[0, 1, 2])
    out = save_figure(figure, tmp_path / "ratings.svg")
    assert all(f"<!-- {name} -->" in out.read_text() for name in ("_red", "$x_$", "b"))


@pytest.mark.parametrize("count", [2, 20, MOST_NAMED + 5])
def test_the_legend_covers_no_ratings_however_many_policies_there_are(count):
    policies = [f"policy-{number}" for number in range(count)] * 2
    ratings = Ratings(np.arange(2.0 * count), np.ones(2 * count))
    figure = draw_ratings(ratings, policies=policies, env_steps=[0] * count + [1000] * count)
    assert legend_is_whole(figure)
    assert len(figure.legends[0].get_texts()) == min(count, MOST_NAMED + 1)


def test_a_single_policy_has_no_legend(tmp_path):
    ratings = fit_ratings(Payoffs.count("ab", [(1, 0, 1.0)] * 3))
    out = save_figure(draw_ratings(ratings, policies=["default"] * 2, env_steps=[0, 5]), tmp_path / "r.svg")
    assert "default" not in out.read_text()


def test_a_picture_with_an_unknown_suffix_is_refused(tmp_path):
    payoffs = Payoffs(("a",), np.zeros((1, 1)), np.zeros((1, 1)))
    with pytest.raises(ConfigError, match="must end in one of"):
        plot_win_rates(payoffs, out=tmp_path / "rates.xyz")
    with pytest.raises(ConfigError, match="must end in one of"):
        save_figure(draw_ratings(fit_ratings(payoffs), policies=["a"], env_steps=[0]), tmp_path / "rates.xyz")


def test_the_elo_ratings_of_each_policy_are_a_line_and_runs_without_a_league_have_no_picture(tmp_path):
    lines = [{"env_steps": step, "policies/a/elo": 1200.0 + step, "policies/b/elo": None} for step in (0, 100)]
    lines.append({"env_steps": 200, "policies/a/elo": 1250.0, "policies/b/elo": 1190.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "config.toml").write_text('[run]\nalgorithm = "ppo"\nenv = "chess"\n')
    assert plot_elo([tmp_path], out=tmp_path / "elo.svg") == tmp_path / "elo.svg"
    drawn = (tmp_path / "elo.svg").read_text()
    assert all(f"<!-- {shown} -->" in drawn for shown in ("PPO on chess", "policy a", "policy b", "1240"))
    assert "<!-- Elo rating of the newest policy -->" in drawn
    assert plot_elo([tmp_path / "none"], out=tmp_path / "none.svg") is None
    (tmp_path / "metrics.jsonl").write_text('{"env_steps": 1, "elo": null}\n')
    assert plot_elo([tmp_path], out=tmp_path / "none.svg") is None
    assert not (tmp_path / "none.svg").exists()


def test_only_the_last_metrics_line_of_a_run_without_a_league_is_read(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('not read\n{"env_steps": 1}\n')
    assert plot_elo([tmp_path], out=tmp_path / "none.svg") is None


@pytest.mark.parametrize(
    ("file", "text"), [("config.toml", "run = 1"), ("metrics.jsonl", '{"env_steps": 1, "elo": {}}\n')]
)
def test_a_league_whose_files_another_program_has_changed_is_refused(tmp_path, file, text):
    (tmp_path / "metrics.jsonl").write_text('{"env_steps": 1, "elo": 1200.0}\n')
    (tmp_path / "config.toml").write_text('[run]\nalgorithm = "ppo"\nenv = "chess"\n')
    assert plot_elo([tmp_path], out=tmp_path / "elo.svg") is not None
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError, match=r"cannot be plotted: its config.toml or metrics.jsonl was changed"):
        plot_elo([tmp_path], out=tmp_path / "elo.svg")


def test_each_picture_of_a_league_or_a_match_names_the_characters_that_the_font_lacks(tmp_path):
    said = list[str]()
    payoffs = Payoffs.count(["学", "b"], [(1, 0, 1.0)])
    plot_win_rates(payoffs, out=tmp_path / "rates.png", notify=said.append)
    figure = draw_ratings(fit_ratings(payoffs), policies=["学", "b"], env_steps=[0, 0])
    save_figure(figure, tmp_path / "r.png", said.append)
    (tmp_path / "metrics.jsonl").write_text('{"env_steps": 1, "elo": 1200.0}\n{"env_steps": 2, "elo": 1201.0}\n')
    (tmp_path / "config.toml").write_text('[run]\nalgorithm = "ppo"\nenv = "chess"\n')
    plot_elo([tmp_path], out=tmp_path / "elo.png", labels=["学"], notify=said.append)
    assert [text.partition(",")[0] for text in said] == ["the font of the picture lacks 学"] * 3
