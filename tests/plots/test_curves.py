from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from matplotlib.figure import Figure
from PIL import Image
from tests.support.pictures import colors, ink, texts
from tests.support.runs import files_up_to

import offbeat
from offbeat.api.plot import plot
from offbeat.core.errors import ConfigError
from offbeat.plots.alignment import GRID_POINTS, Curve, aligned, moving_average
from offbeat.plots.curves import draw_runs
from offbeat.plots.figures import MOST_NAMED, save_figure
from offbeat.plots.labels import labels_of
from offbeat.plots.panels import read_panels
from offbeat.plots.runs import has_returns, read_run, runs_of
from offbeat.run_directory.directory import RunDirectory

FIRST, SECOND = "#0072B2", "#D55E00"
"""The colours of the first curves."""


def make_run(
    path: Path,
    *,
    seed: int = 0,
    lines: int = 30,
    ended: bool = True,
    env: str = "CartPole-v1",
    policies: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **settings: object,
) -> Path:
    """A run directory with an evaluation at every tenth line."""
    path.mkdir(parents=True)
    tables = {
        "run": {"algorithm": "ppo", "env": env, "seed": seed, **(run or {})},
        "ppo": {"clip": 0.2, **settings},
        **({"policies": policies} if policies else {}),
    }
    (path / "config.toml").write_text(tomli_w.dumps(tables))
    records = [
        {
            "env_steps": 1000 * n + 7 * seed,
            "frames": 4000 * n,
            "wall_time_s": 3.0 * n,
            "learning_step": n,
            "episode_return_mean": float(n + seed) if ended and n > 0 else None,
            "eval_return_mean": float(n // 10 * 10) if n >= 10 else None,
            "evaluations": n // 10,
        }
        for n in range(lines)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def with_metrics(run: Path, **values: Any) -> Path:
    """Set metrics in each line of a run."""
    file = run / "metrics.jsonl"
    lines = [{**json.loads(line), **values} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def with_line(run: Path, env_steps: int, **values: Any) -> Path:
    """Add a metrics line to a run."""
    with (run / "metrics.jsonl").open("a") as lines:
        lines.write(json.dumps({"env_steps": env_steps, **values}) + "\n")
    return run


def test_one_run_is_plotted_into_a_new_folder(tmp_path):
    out = save_figure(draw_runs([make_run(tmp_path / "run")]), tmp_path / "new" / "curve.png")
    assert out == tmp_path / "new" / "curve.png"
    assert (0x00, 0x72, 0xB2) in ink(out)


def test_a_run_given_twice_is_plotted_once(tmp_path):
    run, twin = make_run(tmp_path / "run"), make_run(tmp_path / "twin")
    assert colors(draw_runs([run, run])) == {FIRST}
    assert colors(draw_runs([run, twin])) == {FIRST, SECOND}


def test_a_run_without_evaluations_is_plotted_with_runs_that_have_them(tmp_path):
    runs = [make_run(tmp_path / "short", seed=0, lines=5), make_run(tmp_path / "long", seed=1)]
    assert legend(draw_runs(runs)) == [
        "training episodes, mean of 2 seeds",
        "range of the 2 seeds",
    ]  # they have no common range


def test_a_seed_that_ends_a_curve_early_is_named(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed, lines=lines) for seed, lines in enumerate((30, 12, 29))]
    runs.append(make_run(tmp_path / "other", clip=0.1))
    said: list[str] = []
    draw_runs(runs, "time", notify=said.append)
    draw_runs(runs[::2], notify=said.append)
    assert said == []
    draw_runs(runs, notify=said.append)
    (text,) = said
    assert text.endswith(
        "the shortest of them: clip 0.2 (3 seeds), seed 1 after 11k of 29k env steps; "
        "clip 0.2 (3 seeds), evaluations of seed 1 after 10k of 20k env steps"
    )


@pytest.mark.parametrize("x", ["steps", "frames", "time"])
def test_a_seed_without_evaluations_is_named_beside_one_that_has_them(tmp_path, x):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed) for seed in range(2)]
    with_metrics(runs[1], eval_return_mean=None)
    said: list[str] = []
    draw_runs(runs, x, notify=said.append)
    end = {"steps": "20k env steps", "frames": "80k frames", "time": "60 seconds"}[x]
    assert said == [f"a curve of several seeds ends with the shortest of them: evaluations of seed 1 after 0 of {end}"]


def test_an_evaluation_is_one_point_although_later_lines_repeat_it(tmp_path):
    (run,) = read_run(make_run(tmp_path / "run"), "steps")
    assert run.evaluation.x.tolist() == [10_000, 20_000]
    assert run.evaluation.y.tolist() == [10, 20]


@pytest.mark.parametrize(("x", "reached"), [("steps", 28_500), ("frames", 114_000), ("time", 85.5)])
def test_an_evaluation_beside_the_learner_is_drawn_where_its_weights_were_reached(tmp_path, x, reached):
    ended: dict[str, Any] = {"frames": 128_000, "wall_time_s": 96.0, "evaluations": 3}
    path = with_line(make_run(tmp_path / "run"), 32_000, **ended, eval_env_steps=28_500, eval_return_mean=7.0)
    (run,) = read_run(path, x)
    assert (run.evaluation.x[-1], run.evaluation.y[-1]) == (reached, 7.0)


@pytest.mark.parametrize("folder", ["/proc/nobody", "a_file"])
def test_an_output_folder_that_is_not_writable_is_refused(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    Path("a_file").touch()
    with pytest.raises(ConfigError, match=r"curve.png cannot be written, .*: pass a file in another folder with --out"):
        save_figure(draw_runs([make_run(tmp_path / "run")]), Path(folder) / "curve.png")


@pytest.mark.parametrize("name", ["curve.svg", "link.png"])
def test_a_picture_is_replaced_only_by_a_complete_one(tmp_path, name):
    run, out = make_run(tmp_path / "run"), tmp_path / name
    (tmp_path / "link.png").symlink_to("curve.png")
    save_figure(draw_runs([run], title="first"), out)
    before = out.read_bytes()
    with files_up_to(2000), pytest.raises(ConfigError, match=f"{name} cannot be written"):
        save_figure(draw_runs([run], title="second"), out)
    assert out.read_bytes() == before
    save_figure(draw_runs([run], title="second"), out)
    assert out.read_bytes() != before
    assert out.is_symlink() == (name == "link.png")
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "link.png", "curve.png", "curve.svg"}


def test_a_folder_with_the_name_of_a_picture_is_refused_by_this_name(tmp_path):
    (tmp_path / "curve.png").mkdir()
    with pytest.raises(ConfigError, match=r"curve\.png cannot be written \(Is a directory\): pass another file with"):
        save_figure(draw_runs([make_run(tmp_path / "run")]), tmp_path / "curve.png")


def test_a_picture_behind_a_link_has_the_format_of_the_name_of_the_link(tmp_path):
    (tmp_path / "link.png").symlink_to("curve.svg")
    save_figure(draw_runs([make_run(tmp_path / "run")]), tmp_path / "link.png")
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_is_replaced_keeps_its_permissions(tmp_path):
    run, out = make_run(tmp_path / "run"), tmp_path / "curve.png"
    out.touch()
    out.chmod(0o600)
    save_figure(draw_runs([run]), out)
    assert out.stat().st_size > 0
    assert out.stat().st_mode & 0o777 == 0o600


def test_lines_before_the_first_episode_are_not_plotted(tmp_path):
    (run,) = read_run(make_run(tmp_path / "run"), "steps")
    assert run.training.x[0] == 1000


def test_curves_are_aggregated_over_the_range_that_all_have():
    long = Curve(np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0]))
    late = Curve(np.array([5.0, 15.0]), np.array([5.0, 15.0]))
    x, y = aligned([long, late])
    assert x.tolist() == [5.0, 10.0, 15.0]
    assert y.tolist() == [[0.5, 1.0, 1.5], [5.0, 10.0, 15.0]]


def test_curves_over_the_same_points_are_not_interpolated():
    curve = Curve(np.array([1.0, 2.0, 7.0]), np.array([3.0, 1.0, 2.0]))
    x, y = aligned([curve, curve])
    assert x.tolist() == [1.0, 2.0, 7.0]
    assert y.tolist() == [[3.0, 1.0, 2.0]] * 2


def curve_at(*points: tuple[float, float]) -> Curve:
    x, y = zip(*points, strict=True)
    return Curve(np.array(x), np.array(y))


def test_points_of_several_seeds_that_are_close_are_paired_by_their_number():
    one = curve_at((1000.0, 10.0), (2200.0, 500.0), (3000.0, 400.0))
    other = curve_at((1024.0, 30.0), (2000.0, 460.0), (3048.0, 390.0))
    x, y = aligned([one, other])
    assert x.tolist() == [1012.0, 2100.0, 3024.0]
    assert y.tolist() == [one.y.tolist(), other.y.tolist()]


def test_points_of_several_seeds_are_interpolated_where_their_numbers_do_not_pair_them():
    one = curve_at((1000.0, 10.0), (2000.0, 20.0), (3000.0, 30.0))
    far = curve_at((1000.0, 10.0), (2600.0, 26.0), (3000.0, 30.0))
    fewer = curve_at((1000.0, 10.0), (3000.0, 30.0))
    for other in (far, fewer):
        x, y = aligned([one, other])
        assert x.tolist() == [1000.0, 2000.0, 3000.0]
        assert y.tolist() == [[10.0, 20.0, 30.0]] * 2


def test_single_points_of_several_seeds_that_are_far_apart_are_not_paired():
    x, y = aligned([curve_at((100_000.0, 1.0)), curve_at((149_000.0, 9.0))])
    assert (x.shape, y.shape) == ((0,), (2, 0))


def test_the_last_points_of_two_are_not_paired_if_they_are_far_apart():
    x, _ = aligned([curve_at((50_000.0, 1.0), (100_000.0, 2.0)), curve_at((50_000.0, 1.0), (85_000.0, 2.0))])
    assert x.tolist() == [50_000.0, 85_000.0]


def test_many_paired_points_are_thinned_to_the_points_of_a_grid_with_both_ends():
    x = np.arange(1.0, 1001.0)
    common, y = aligned([Curve(x, x), Curve(x + 0.1, 2 * x)])
    assert len(common) == GRID_POINTS
    assert (y[:, 0].tolist(), y[:, -1].tolist()) == ([1.0, 2.0], [1000.0, 2000.0])
    assert np.array_equal(y[1], 2 * y[0])


def test_a_single_curve_keeps_all_its_points():
    x = np.arange(1000.0)
    common, y = aligned([Curve(x, 2 * x)])
    assert (common.tolist(), y.tolist()) == (x.tolist(), [(2 * x).tolist()])


def test_curves_whose_points_are_not_in_the_order_of_x_are_paired_in_this_order():
    x = np.array([1.0, 2.0, 3.0, 2.5, 4.0])
    common, y = aligned([Curve(x, x), Curve(x, 2 * x)])
    assert common.tolist() == y[0].tolist() == [1.0, 2.0, 2.5, 3.0, 4.0]
    assert y[1].tolist() == [2.0, 4.0, 5.0, 6.0, 8.0]


def test_the_last_point_of_an_evaluation_curve_is_the_mean_of_the_last_evaluations(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed) for seed in (0, 50)]
    with_line(runs[0], 30_000, evaluations=3, eval_return_mean=100.0, eval_env_steps=30_000)
    with_line(runs[1], 30_350, evaluations=3, eval_return_mean=300.0, eval_env_steps=30_350)
    evaluation = draw_runs(runs).axes[0].lines[-1]
    assert (np.asarray(evaluation.get_xdata())[-1], np.asarray(evaluation.get_ydata())[-1]) == (30_175, 200)


def test_no_seed_ends_a_curve_early_whose_evaluations_are_paired(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed, lines=11) for seed in (0, 200)]
    said: list[str] = []
    evaluation = draw_runs(runs, notify=said.append).axes[0].lines[-1]
    assert np.asarray(evaluation.get_xdata()).tolist() == [10_700]
    assert said == ["a curve of several seeds ends with the shortest of them: seed 0 after 10k of 11.4k env steps"]


def test_evaluations_of_several_seeds_that_have_one_each_are_drawn(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed, lines=15) for seed in range(2)]
    evaluation = draw_runs(runs).axes[0].lines[-1]
    assert np.asarray(evaluation.get_xdata()).tolist() == [10_003.5]


def test_a_band_over_many_equal_points_has_some_of_them_and_both_ends(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed, lines=1000) for seed in range(2)]
    for run in runs:
        (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().replace("eval_return_mean", "other"))
    (band,) = draw_runs(runs, "time").axes[0].collections
    x = np.asarray(band.get_paths()[0].vertices)[:, 0] * 60  # in minutes
    assert len(x) < 2 * GRID_POINTS + 5
    assert (x.min(), x.max()) == (3.0, 2997.0)


def test_curves_with_disjoint_ranges_have_no_common_point():
    x, y = aligned([Curve(np.array([0.0, 1.0]), np.zeros(2)), Curve(np.array([2.0, 3.0]), np.zeros(2))])
    assert x.shape == (0,)
    assert y.shape == (2, 0)


def with_returns_at(path: Path, seed: int, *env_steps: int) -> Path:
    run = make_run(path, seed=seed)
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps({"env_steps": n, "episode_return_mean": n / 100}) + "\n" for n in env_steps)
    )
    return run


def test_runs_with_a_single_point_in_common_have_a_visible_marker(tmp_path):
    x, y = aligned([Curve(np.array([1.0]), np.array([2.0])), Curve(np.array([1.0, 3.0]), np.array([4.0, 5.0]))])
    assert (x.tolist(), y.tolist()) == ([1.0], [[2.0], [4.0]])
    runs = [with_returns_at(tmp_path / "a", 1, 100), with_returns_at(tmp_path / "b", 2, 100, 200)]
    picture = Image.open(save_figure(draw_runs(runs), tmp_path / "point.png")).convert("RGB")
    above_the_legend = picture.crop((0, 0, picture.width, int(0.85 * picture.height)))
    assert (0x00, 0x72, 0xB2) in {color for _, color in above_the_legend.getcolors(1 << 24) or []}


def test_long_names_are_not_cut_at_the_edges_of_the_picture(tmp_path):
    envs = [f"my_module:{'Environment' * 9}{number // 2}" for number in range(4)]
    runs = [make_run(tmp_path / f"run-{number}-{'d' * 150}", env=env) for number, env in enumerate(envs)]
    figures = {"legend.png": draw_runs(runs), "title.png": draw_runs(runs[:1])}
    pictures = [save_figure(figure, tmp_path / name) for name, figure in figures.items()]
    for picture in map(Image.open, pictures):
        edges = [picture.convert("L").crop((x, 0, x + 1, picture.height)) for x in (0, picture.width - 1)]
        assert all(min(value for _, value in edge.getcolors() or []) == 255 for edge in edges)


def test_runs_without_a_common_range_are_refused_in_place_of_an_empty_picture(tmp_path):
    runs = [with_returns_at(tmp_path / "a", 1, 100, 150), with_returns_at(tmp_path / "b", 2, 200, 300)]
    with pytest.raises(
        ConfigError, match=r"no curve to plot: .*common range, and these have none\. Plot them one by one"
    ):
        draw_runs(runs)
    assert draw_runs([*runs, make_run(tmp_path / "c", clip=0.1)])


def test_a_moving_average_is_the_mean_of_up_to_the_last_n_points():
    returns = np.random.default_rng(0).normal(size=250)
    averaged = moving_average(Curve(np.arange(250.0), returns), 100)
    expected = [np.mean(returns[max(0, index - 99) : index + 1]) for index in range(250)]
    assert averaged.y == pytest.approx(expected)
    assert averaged.x.tolist() == list(range(250))
    assert moving_average(Curve(np.empty(0), np.empty(0)), 100).y.shape == (0,)
    assert np.allclose(moving_average(averaged, 10**30).y, np.cumsum(averaged.y) / np.arange(1, 251))


@pytest.mark.parametrize("large", [3e12, -1e18, np.nan, np.inf])
def test_a_moving_average_is_exact_after_a_very_large_value(large):
    values = np.concatenate([np.full(20, 1e-3), [large], np.full(60, 1e-3)])
    averaged = moving_average(Curve(np.arange(81.0), values), 10).y
    np.testing.assert_allclose(np.delete(averaged, range(20, 30)), 1e-3, rtol=1e-12)
    assert averaged[29] == pytest.approx(np.mean(values[20:30]), nan_ok=True)


def legend(figure: Figure) -> list[str]:
    """Return the entries of the legend of a figure."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_names_exactly_the_kinds_of_lines_in_the_plot(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed) for seed in range(5)]
    assert legend(draw_runs(runs[:1])) == ["evaluation", "training episodes"]
    assert legend(draw_runs(runs)) == [
        "evaluation, interquartile mean of 5 seeds",
        "training episodes",
        "95 % bootstrap interval",
    ]
    short = make_run(tmp_path / "short", lines=5)
    assert legend(draw_runs([short])) == ["training episodes"]


def test_the_band_of_two_seeds_is_called_their_range(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed) for seed in range(6)]
    assert legend(draw_runs(runs[:2])) == [
        "evaluation, mean of 2 seeds",
        "training episodes",
        "range of the 2 seeds",
    ]
    others = [make_run(tmp_path / f"other{seed}", seed=seed, clip=0.1) for seed in range(2)]
    mixed = legend(draw_runs([*runs, *others]))
    assert mixed[:2] == ["clip 0.2 (6 seeds)", "clip 0.1 (2 seeds)"]
    assert mixed[-1] == "95 % bootstrap interval; of fewer than 4 seeds, their range"


def test_the_legend_names_seeds_only_where_they_differ(tmp_path):
    runs = [make_run(tmp_path / f"{clip}", seed=seed, clip=clip) for clip, seed in ((0.1, 7), (0.2, 7), (0.3, 8))]
    assert legend(draw_runs(runs[:2]))[:2] == ["clip 0.1", "clip 0.2"]
    assert legend(draw_runs(runs[1:]))[:2] == ["clip 0.2 (seed 7)", "clip 0.3 (seed 8)"]


# --- what the caller chooses --------------------------------------------------------------------------------


def test_labels_replace_the_settings_in_the_legend(tmp_path):
    runs = [make_run(tmp_path / f"{clip}-{seed}", seed=seed, clip=clip) for clip in (0.1, 0.2) for seed in range(2)]
    of_runs = draw_runs(runs, labels=["small", "small", "large", "large"])
    of_curves = draw_runs(runs, labels=["small", "large"])
    assert legend(of_runs)[:2] == legend(of_curves)[:2] == ["small", "large"]


def test_runs_with_one_label_and_different_settings_are_separate_curves(tmp_path):
    runs = [make_run(tmp_path / f"{clip}", clip=clip) for clip in (0.1, 0.2, 0.3)]
    figure = draw_runs(runs, labels=["small", "small", "large"])
    assert legend(figure)[:3] == ["small, clip 0.1", "small, clip 0.2", "large"]


def test_the_label_of_a_single_curve_is_in_the_legend(tmp_path):
    assert legend(draw_runs([make_run(tmp_path / "run")], labels=["mine"]))[0] == "evaluation, mine"


def test_a_wrong_number_of_labels_is_refused(tmp_path):
    runs = [make_run(tmp_path / f"{clip}", clip=clip) for clip in (0.1, 0.2)]
    message = (
        r"3 labels are given, but 2 runs make 2 curves \(clip 0.1; clip 0.2\): pass one label for each run, or one"
    )
    with pytest.raises(ConfigError, match=message):
        draw_runs(runs, labels=["a", "b", "c"])


def test_one_label_for_two_envs_is_refused(tmp_path):
    runs = [make_run(tmp_path / env, env=env) for env in ("CartPole-v1", "Acrobot-v1")]
    with pytest.raises(ConfigError, match="1 label is given, but 2 envs have a panel with one curve each"):
        draw_runs(runs, labels=["mine"])
    draw_runs(runs, labels=["mine", "yours"])


def test_plotting_several_runs_again_keeps_the_earlier_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [make_run(tmp_path / "runs" / name, clip=clip) for name, clip in (("a", 0.1), ("b", 0.2))]
    for earlier in ("return.png", "return-2.png"):
        Path(earlier).touch()
    assert plot(runs) == [Path("return-3.png")]
    assert not Path("return.png").read_bytes()


@pytest.mark.parametrize(
    ("metrics", "name"),
    [
        (["policies/cat/episode_return_mean"], "policies-cat-episode_return_mean.png"),
        (["learning_step", "return"], "metrics.png"),
        ("mine-loss", "mine%2Dloss.png"),
        ("metrics", "metric-metrics.png"),
    ],
)
def test_the_default_file_of_other_metrics_than_the_return_has_their_name(tmp_path, metrics, name):
    run = with_policies(make_run(tmp_path / "run"), cat=1.0, dog=2.0)
    with_line(run, 99_000, **{"mine-loss": 2.0, "metrics": 4.0})
    assert plot(run, metrics=metrics) == [run / name]


def test_settings_that_only_change_what_is_reported_do_not_tell_curves_apart(tmp_path):
    settings: list[dict[str, Any]] = [{}, {"eval_every": 10}, {"log_every": 7}, {"tracker": "wandb"}]
    seeds = [make_run(tmp_path / f"seed{seed}", seed=seed, run=run) for seed, run in enumerate(settings)]
    with (seeds[0] / "config.toml").open("a") as config:
        config.write('[env]\ninfo_metrics = ["success"]\n')
    assert "interquartile mean of 4 seeds" in texts(draw_runs(seeds))
    others = [make_run(tmp_path / f"c{clip}", clip=clip, run={"eval_every": round(100 * clip)}) for clip in (0.1, 0.2)]
    text = texts(draw_runs(others))
    assert "clip 0.1" in text
    assert "eval_every" not in text


def test_each_metric_has_a_panel_that_names_it(tmp_path):
    runs = [make_run(tmp_path / f"{clip}", clip=clip) for clip in (0.1, 0.2)]
    text = texts(draw_runs(runs, metrics=["learning_step", "return"]))
    assert text.count("learning_step") == 1
    assert text.count("episode return") == 1
    assert text.count("clip 0.1") == 1


@pytest.mark.parametrize("name", ["eval_return_mean", "eval_of_a_callback"])
def test_a_metric_of_evaluations_is_one_point_for_each_evaluation(tmp_path, name):
    directory = make_run(tmp_path / "run")
    metrics = directory / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("eval_return_mean", name))
    (during,) = read_run(directory, "steps", "learning_step")
    (evaluated,) = read_run(directory, "steps", name)
    assert (len(during.training.x), len(during.evaluation.x)) == (30, 0)
    assert (len(evaluated.training.x), evaluated.evaluation.x.tolist()) == (0, [10_000, 20_000])


def test_a_metric_of_policies_has_a_curve_for_each(tmp_path):
    directory = with_policies(make_run(tmp_path / "run"), dog=2.0, cat=1.0)
    policies = read_run(directory, "steps", "episode_return_mean")
    assert [run.settings["policy"] for run in policies] == ["cat", "dog"]
    assert len(read_run(directory, "steps", "learning_step")) == 1


@pytest.mark.parametrize(
    ("metric", "remedy"),
    [
        ("learning_steps", "did you mean learning_step"),
        ("zzz", "pass return, or one of env_steps, episode_return_mean"),
    ],
)
def test_a_metric_that_no_run_has_is_refused_with_those_that_they_have(tmp_path, metric, remedy):
    run = make_run(tmp_path / "run")
    with pytest.raises(ConfigError, match=f"the metric {metric} is missing in .*run: {remedy}"):
        draw_runs([run], metrics=[metric])


def test_smoothing_is_told_in_the_legend_and_averages_each_line(tmp_path):
    run = make_run(tmp_path / "run")
    assert legend(draw_runs([run], smooth=2)) == [
        "evaluation",
        "training episodes",
        "each line: moving average over 2 points",
    ]
    assert legend(draw_runs([run], smooth=2, average=True))[-1] == "other lines: moving average over 2 points"
    assert legend(draw_runs([with_metrics(run, entropy=0.5)], metrics=["entropy"], smooth=2)) == [
        "each line: moving average over 2 points"
    ]
    (axes,) = draw_runs([run], smooth=2).axes
    np.testing.assert_array_equal(np.asarray(axes.lines[-1].get_ydata()), [10, 15])
    with pytest.raises(ConfigError, match="smooth is 0, but at least 1 point is expected"):
        draw_runs([run], smooth=0)


def test_the_average_of_the_training_returns_is_that_of_the_returns_that_are_not_smoothed(tmp_path):
    run = make_run(tmp_path / "run")
    for smooth in (1, 10):
        _, averaged, _ = draw_runs([run], smooth=smooth, average=True).axes[0].lines
        np.testing.assert_allclose(np.asarray(averaged.get_ydata()), [(n + 1) / 2 for n in range(1, 30)])


def test_the_title_counts_algorithms_and_not_the_panels_or_policies_of_their_runs(tmp_path):
    runs = [make_run(tmp_path / name, run={"algorithm": name}) for name in ("ppo", "sac", "a2c")]
    assert draw_runs(runs, metrics=["return", "env_steps"]).get_suptitle() == "3 algorithms on CartPole-v1"
    assert draw_runs(runs[:2]).get_suptitle() == "PPO and SAC on CartPole-v1"


def test_each_env_has_its_column_also_if_it_does_not_have_the_first_metric(tmp_path):
    runs = [make_run(tmp_path / env, env=env) for env in ("A-v1", "B-v1")]
    with_metrics(runs[1], entropy=0.1)
    for metrics in (["return", "entropy"], ["entropy", "return"]):
        places = [axes.get_subplotspec() for axes in draw_runs(runs, metrics=metrics).axes]
        columns = [place.colspan.start for place in places if place is not None]
        assert sorted(columns) == ([0, 1, 1] if metrics[0] == "return" else [0, 0, 1])


def test_with_several_envs_each_curve_beside_others_has_an_entry_in_the_legend(tmp_path):
    runs = [make_run(tmp_path / f"{env}-{i}", env=env, seed=i // 2) for env in ("A-v1", "B-v1") for i in range(3)]
    entries = legend(draw_runs(runs))
    assert entries[:3] == ["2 seeds", "A-v1-1", "B-v1-1"]


def test_curves_of_two_algorithms_with_the_same_label_are_named_by_both(tmp_path):
    runs = [make_run(tmp_path / name, run={"algorithm": name}) for name in ("ppo", "sac")]
    assert legend(draw_runs(runs, labels=["mine", "mine"]))[:2] == ["mine, ppo", "mine, sac"]
    assert legend(draw_runs(runs, labels=["mine", "other"]))[:2] == ["mine", "other"]


def test_the_legend_of_very_many_curves_names_the_first_ones(tmp_path):
    runs = [make_run(tmp_path / str(number), lines=3, clip=0.001 * number) for number in range(MOST_NAMED + 2)]
    entries = legend(draw_runs(runs))
    assert entries[MOST_NAMED - 1 :] == ["clip 0.039", "2 more", "training episodes"]


def test_the_title_can_be_chosen(tmp_path):
    run = make_run(tmp_path / "run")
    text = texts(draw_runs([run], title="Two carts on a pole"))
    assert "Two carts on a pole" in text
    assert "PPO on" not in text


def test_a_title_with_an_invalid_formula_is_refused_and_dollar_signs_can_be_escaped(tmp_path):
    run, out = make_run(tmp_path / "run"), tmp_path / "curve.svg"
    with pytest.raises(ConfigError, match=r"curve.svg cannot be drawn, .*: write \\\$ for each dollar sign"):
        save_figure(draw_runs([run], title="in US$_$"), out)
    assert save_figure(draw_runs([run], title=r"in US\$_\$"), out) == out


def test_a_value_of_a_setting_is_no_formula(tmp_path):
    runs = [make_run(tmp_path / name, goal=f"US$_$ {name}") for name in ("a", "b")]
    drawn = save_figure(draw_runs(runs), tmp_path / "curve.svg").read_text()
    assert all(f"<!-- goal US$_$ {name} -->" in drawn for name in ("a", "b"))


def test_the_suffix_selects_the_format(tmp_path):
    assert save_figure(draw_runs([make_run(tmp_path / "run")]), tmp_path / "curve.pdf").read_bytes().startswith(b"%PDF")


def test_the_moving_average_is_plotted_only_on_request(tmp_path):
    run = make_run(tmp_path / "run")
    average = "training, average over 100 points"
    assert average not in legend(draw_runs([run]))
    assert average in legend(draw_runs([run], average=True))


def test_each_env_has_a_panel_and_each_setting_one_colour_in_all_panels(tmp_path):
    envs = ("A-v0", "B-v0")
    runs = [make_run(tmp_path / f"{env}{clip}", env=env, clip=clip) for env in envs for clip in (0.1, 0.2)]
    one, both = draw_runs(runs[:2]), draw_runs(runs)
    assert both.get_figwidth() > 1.2 * one.get_figwidth()
    assert [colors(axes) for axes in both.axes] == [{FIRST, SECOND}] * 2


def test_labels_name_the_settings_that_differ_in_any_panel(tmp_path):
    runs = [make_run(tmp_path / f"{clip}", env="A-v0", clip=clip) for clip in (0.1, 0.2)]
    text = texts(draw_runs([*runs, make_run(tmp_path / "b", env="B-v0", clip=0.2)]))
    assert text.count("clip 0.1") == 1
    assert text.count("clip 0.2") == 1
    assert "A-v0" in text


def make_trial(path: Path, number: int, **settings: Any) -> Path:
    """A trial of two sessions, each of which has chosen a layout of its own, and whose callers have named modules."""
    trial = path / f"trial-{number:03}"
    for seed in (9, 10):
        run = make_run(trial / f"seed-{seed}", seed=seed, run={"imports": [f"module_{seed}"]}, **settings)
        with (run / "config.toml").open("a") as file:
            file.write(f'[runtime]\nsplit = "given"\nactors = {seed}\n')
    tables = {
        "run": {"algorithm": "ppo", "env": "CartPole-v1", "imports": []},
        "runtime": {"split": "measured", "actors": 1},
    }
    (trial / "trial.toml").write_text(tomli_w.dumps(tables))
    return trial


def test_the_sessions_of_a_trial_are_seeds_of_one_setting_despite_different_auto_layouts_and_imports(tmp_path):
    runs = [run for number in (0, 1) for run in runs_of(make_trial(tmp_path, number, clip=0.1 * number))]
    text = texts(draw_runs(runs))
    assert "clip 0.0" in text
    assert "clip 0.1" in text
    assert "mean of 2 seeds" in text
    assert "actors" not in text
    assert "imports" not in text


def test_a_session_of_a_trial_with_settings_that_a_resume_has_changed_has_a_curve_of_its_own(tmp_path):
    runs = runs_of(make_trial(tmp_path, 0))
    config = runs[1] / "config.toml"
    config.write_text(config.read_text().replace("clip = 0.2", "clip = 0.3"))
    assert legend(draw_runs(runs))[:2] == ["clip 0.2 (seed 9)", "clip 0.3 (seed 10)"]


def test_trials_of_equal_settings_have_separate_curves(tmp_path):
    runs = [run for number in (0, 1) for run in runs_of(make_trial(tmp_path, number, clip=0.1))]
    assert legend(draw_runs(runs))[:2] == ["trial-000", "trial-001"]


def test_runs_of_equal_settings_and_seed_are_named_by_their_directories(tmp_path):
    runs = [make_run(tmp_path / name) for name in ("before", "after")]
    assert legend(draw_runs(runs))[:2] == ["before", "after"]
    runs.append(make_run(tmp_path / "other", seed=1))
    assert legend(draw_runs(runs))[:2] == ["2 seeds", "after (seed 0)"]


def test_runs_of_equal_settings_and_seed_in_folders_of_equal_name_are_named_by_more_of_their_paths(tmp_path):
    runs = [make_run(tmp_path / name / "run") for name in ("old", "new")]
    assert legend(draw_runs(runs))[:2] == ["old/run", "new/run"]
    sessions = [run for name in ("old", "new") for run in runs_of(make_trial(tmp_path / name, 0))]
    assert legend(draw_runs(sessions))[:2] == ["old/trial-000", "new/trial-000"]


def test_the_plot_of_an_experiment_has_the_sessions_with_returns(tmp_path):
    (tmp_path / "experiment.json").touch()
    trials = [make_trial(tmp_path, number, clip=0.1) for number in (10, 9)]
    make_run(trials[1] / "seed-11", seed=11, lines=3, ended=False)
    (trials[1] / "seed-12").mkdir()
    make_run(trials[1] / "seed-9.lost-1", seed=9)
    (tmp_path / "trial-best").symlink_to("trial-009")
    expected = [tmp_path / f"trial-{name}" for name in ("009/seed-9", "009/seed-10", "010/seed-9", "010/seed-10")]
    assert runs_of(tmp_path) == expected
    assert runs_of(trials[0]) == expected[2:]
    assert runs_of(expected[0]) == [expected[0]]


def test_an_experiment_with_a_trial_without_its_trial_toml_is_refused(tmp_path):
    (tmp_path / "experiment.json").touch()
    lost, _ = (make_trial(tmp_path, number, clip=0.1) for number in (0, 1))
    (lost / "trial.toml").unlink()
    with pytest.raises(ConfigError, match=f"{lost}/trial.toml is missing, but the trial has sessions: copy"):
        runs_of(tmp_path)


def test_an_experiment_without_returns_is_refused(tmp_path):
    (tmp_path / "experiment.json").touch()
    for metric in ("return", "entropy"):
        with pytest.raises(ConfigError, match="no returns yet"):
            runs_of(tmp_path, [metric])
    trial = make_trial(tmp_path, 0)
    for run in runs_of(trial):
        (run / "metrics.jsonl").unlink()
    for path in (tmp_path, trial):
        with pytest.raises(ConfigError, match=r"no returns yet.*offbeat run"):
            runs_of(path)
        sessions = runs_of(path, ["entropy"])
        assert sessions == [trial / "seed-9", trial / "seed-10"]
        with pytest.raises(ConfigError, match="entropy is missing in each of the 2 runs: no metrics are there yet"):
            read_panels(sessions, "steps", ["entropy"], {})


def test_labels_name_only_settings_that_differ():
    settings = [
        {"run.env": "A-v1", "run.seed": 0, "ppo.clip": 0.1, "ppo.gamma": 0.99},
        {"run.env": "B-v1", "run.seed": 1, "ppo.clip": 0.2, "ppo.gamma": 0.99},
    ]
    assert labels_of([settings])[0] == ["A-v1, clip 0.1", "B-v1, clip 0.2"]
    assert labels_of([settings[:1]])[0] == [""]


def test_labels_count_the_settings_that_they_omit():
    settings = [{f"ppo.{key}": value for key in "abcdef"} for value in (1, 2)]
    assert labels_of([settings])[0][1] == "a 2, b 2, c 2, d 2, 2 more"


def test_labels_first_name_the_settings_without_which_two_curves_have_the_same_label():
    dqn = [{"run.algorithm": "dqn", **{f"dqn.{key}": 1 for key in "abcd"}, "dqn.last": last} for last in (1, 2)]
    other = {"run.algorithm": "dqn", **{f"dqn.{key}": 2 for key in "abcd"}, "dqn.last": 1}
    assert labels_of([[*dqn, other]])[0] == [
        f"last {last}, a {a}, b {a}, c {a}, 1 more" for last, a in ((1, 1), (2, 1), (1, 2))
    ]


def test_labels_are_as_long_as_they_need_to_be_to_differ():
    base = {f"setting_{number}": 0 for number in range(9)}
    changed = [{**base, key: 1} for key in base]
    (labels,) = labels_of([[base, *changed]])
    assert len(set(labels)) == 10


def test_labels_compare_settings_of_an_algorithm_only_between_its_runs():
    ppo = {"run.algorithm": "ppo", "run.env": "A-v1", "run.preset": "ppo-a", "ppo.gamma": 0.9, "runtime.actors": 1}
    a2c = {"run.algorithm": "a2c", "run.env": "A-v1", "run.preset": "a2c-a", "a2c.rho": 1.0, "runtime.actors": 2}
    assert labels_of([[ppo, a2c]])[0] == ["ppo, actors 1", "a2c, actors 2"]
    assert labels_of([[ppo, {**ppo, "ppo.gamma": 1.0}, a2c]])[0] == [
        "ppo, gamma 0.9, actors 1",
        "ppo, gamma 1.0, actors 1",
        "a2c, actors 2",
    ]
    assert labels_of([[ppo, {**ppo, "run.preset": None}]])[0] == ["preset ppo-a", "preset -"]


def test_labels_omit_a_layout_and_a_lag_that_follow_from_the_runtime():
    serial: dict[str, Any] = {"runtime.runtime": "serial", "runtime.actors": 1, "runtime.envs_per_actor": 8}
    serial |= {"runtime.unrolls_per_batch": "none", "runtime.max_lag": 0, "runtime.learner_threads": "none"}
    by_auto_layout: dict[str, Any] = {"runtime.actors": 2, "runtime.envs_per_actor": 4, "runtime.unrolls_per_batch": 2}
    processes = {**serial, **by_auto_layout, "runtime.runtime": "processes", "runtime.max_lag": 1}
    processes["runtime.learner_threads"] = 2
    assert labels_of([[serial, processes]]) == [["serial", "processes"]]
    assert labels_of([[serial, {**processes, "runtime.max_lag": 3}]]) == [["serial, max_lag 0", "processes, max_lag 3"]]
    more = {**processes, "runtime.actors": 4, "runtime.unrolls_per_batch": "none", "runtime.learner_threads": "none"}
    assert labels_of([[serial, more]]) == [
        ["serial, actors 1, envs_per_actor 8", "processes, actors 4, envs_per_actor 4"]
    ]


def test_labels_of_an_algorithm_in_a_package_omit_the_settings_of_the_others():
    own, ppo = ({"run.algorithm": name, f"{name}.gamma": 0.9} for name in ("my_package.module:MyPPO", "ppo"))
    assert labels_of([[own, ppo]])[0] == ["my_package.module:MyPPO", "ppo"]


def test_labels_name_a_setting_that_only_one_run_has():
    assert labels_of([[{"ppo.clip": 0.1}, {"a2c.rho": 1.0}]])[0] == ["clip 0.1, rho -", "clip -, rho 1.0"]


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"is not a run directory \(it has no config.toml\)"):
        draw_runs([tmp_path])


def test_a_run_without_returns_is_refused_with_the_remedy(tmp_path):
    run = make_run(tmp_path / "run", lines=3, ended=False)
    with pytest.raises(ConfigError, match=f"no episode has ended.*offbeat resume {run}`"):
        draw_runs([run])
    RunDirectory(run).write_status("finished")
    with pytest.raises(ConfigError, match=f"`offbeat resume {run} --steps N` with a larger N"):
        draw_runs([run])
    RunDirectory(run).write_status("running")
    (run / "metrics.jsonl").unlink()
    with pytest.raises(ConfigError, match="has no returns yet"):
        draw_runs([run])


@pytest.mark.parametrize("metrics", ["return", "entropy"])
@pytest.mark.parametrize("as_trial", [False, True])
def test_a_finished_run_whose_metrics_are_missing_is_refused_also_beside_another(tmp_path, metrics, as_trial):
    runs = [make_run(tmp_path / f"seed-{seed}", seed=seed) for seed in (1, 2)]
    if as_trial:
        (tmp_path / "trial.toml").write_text("")
    RunDirectory(runs[1]).write_status("finished")
    (runs[1] / "metrics.jsonl").unlink()
    with pytest.raises(ConfigError, match=f"{runs[1]}/metrics.jsonl is missing, but the run has finished: copy"):
        plot([tmp_path] if as_trial else runs, out=tmp_path / "curve.png", metrics=metrics)


@pytest.mark.parametrize("lines", ["not read\n{last}\n", "{last}\n{without}\n"], ids=["in the last line", "before it"])
def test_whether_a_run_has_returns_is_read_from_the_end_of_its_metrics(tmp_path, lines):
    found = lines.format(last='{"eval_return_mean": 1.5}', without='{"eval_return_mean": null}')
    (tmp_path / "metrics.jsonl").write_text(found)
    assert has_returns(tmp_path)


def test_of_several_runs_those_without_returns_are_left_out(tmp_path):
    (tmp_path / "new" / "experiment.json").parent.mkdir()
    (tmp_path / "new" / "experiment.json").touch()
    runs = [make_run(tmp_path / name, lines=lines, clip=lines) for name, lines in (("a", 30), ("b", 1), ("c", 20))]
    said: list[str] = []
    (out,) = plot(
        [runs[1], tmp_path / "new", *runs[::2]],
        out=tmp_path / "curve.svg",
        labels=("b", "new", "a", "c"),
        notify=said.append,
    )
    drawn = out.read_text()
    assert [f"<!-- {label} -->" in drawn for label in ("a", "b", "c", "new")] == [True, False, True, False]
    assert said == [f"left out, because no episode has ended there yet: {runs[1]}, {tmp_path / 'new'}"]
    with pytest.warns(UserWarning, match=f"left out, .*: {runs[1]}$") as caught:
        plot(runs, out=out)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.raises(ConfigError, match=f"no episode has ended.*offbeat resume {runs[1]}"):
        plot([runs[1], tmp_path / "new"], out=out)


def test_of_several_runs_those_without_a_metric_are_left_out_of_its_panel_and_named(tmp_path):
    runs = [make_run(tmp_path / name, lines=lines, clip=lines) for name, lines in (("a", 30), ("b", 5))]
    said: list[str] = []
    draw_runs(runs, metrics=("learning_step", "eval_return_mean"), notify=said.append)
    assert said == [f"left out, because eval_return_mean is missing there: {runs[1]}"]


def test_an_unknown_picture_format_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"must end in one of .*\.png"):
        save_figure(draw_runs([make_run(tmp_path / "run")]), tmp_path / "curve.doc")


@pytest.mark.parametrize("out", [".", "/", ".."])
def test_a_folder_in_place_of_a_picture_is_refused(tmp_path, out):
    with pytest.raises(ConfigError, match=f"must end in one of .*, such as {Path(out, 'picture.png')}$"):
        plot(make_run(tmp_path / "run"), out=out)


def test_a_plot_of_no_run_is_refused():
    with pytest.raises(ConfigError, match="no run to plot"):
        draw_runs([])


# --- several policies ---------------------------------------------------------------------------------------


def with_policies(run: Path, **returns: float | None) -> Path:
    """Add returns of policies to each metrics line of a run."""
    return with_metrics(run, **{f"policies/{name}/episode_return_mean": value for name, value in returns.items()})


def test_a_run_with_several_policies_has_a_curve_for_each_with_returns(tmp_path):
    runs = read_run(with_policies(make_run(tmp_path / "run"), dog=2.0, cat=1.0, frozen=None), "steps")
    assert [(run.settings["policy"], set(run.training.y)) for run in runs] == [("cat", {1.0}), ("dog", {2.0})]


def test_the_legend_names_policies_and_their_settings_that_differ(tmp_path):
    tables = [{"cat": {"settings": {"gamma": gamma}}, "dog": {"agents": ["*"]}} for gamma in (0.9, 0.99)]
    runs = [
        run
        for index, policies in enumerate(tables)
        for run in read_run(
            with_policies(make_run(tmp_path / str(index), policies=policies), cat=1.0, dog=2.0), "steps"
        )
    ]
    assert labels_of([[run.settings for run in runs]])[0] == [
        "policy cat, gamma of cat 0.9",
        "policy dog, gamma of cat 0.9",
        "policy cat, gamma of cat 0.99",
        "policy dog, gamma of cat 0.99",
    ]


def test_runs_with_other_policies_do_not_differ_in_the_settings_of_each_policy(tmp_path):
    """Settings of a policy that another run does not have are no differences."""
    tables: list[dict[str, Any]] = [
        {"cat": {"agents": ["*"], "train": True}},
        {"dog": {"agents": ["*"]}, "cow": {"agents": ["c"]}},
    ]
    names: list[dict[str, float]] = [{"cat": 1.0, "pig": 1.0}, {"dog": 2.0, "cow": 2.0}]
    runs = [
        run
        for index, (policies, returns) in enumerate(zip(tables, names, strict=True))
        for run in read_run(with_policies(make_run(tmp_path / str(index), policies=policies), **returns), "steps")
    ]
    assert labels_of([[run.settings for run in runs]])[0] == ["policy cat", "policy pig", "policy cow", "policy dog"]


@pytest.mark.parametrize(
    ("added", "label"),
    [
        ({}, "episode return"),
        ({"agent_steps": 0}, "episode return"),
        ({"agent_steps": 10**6}, "episode return per agent"),
        ({"eval_team_return_mean": 3.0}, "episode return per agent"),
        ({"policies/cat/episode_return_mean": 1.0}, "episode return per agent"),
    ],
)
def test_returns_in_an_env_with_several_agents_are_said_to_be_per_agent(tmp_path, added, label):
    policies = {"cat": {"agents": ["*"]}} if "policies/cat/episode_return_mean" in added else None
    run = with_metrics(make_run(tmp_path / "run", policies=policies), **added)
    assert draw_runs([run]).axes[0].get_ylabel() == label


def test_members_of_a_population_have_a_curve_each_and_are_named_by_their_numbers(tmp_path):
    """Two of them have the same settings at the end, but had others before."""
    members = [
        make_run(tmp_path / "pbt" / f"member-{number:03}", seed=90 + number, gamma=gamma)
        for number, gamma in enumerate((0.9, 0.9, 0.99))
    ]
    make_run(tmp_path / "pbt/member-001.lost-1", seed=91)
    (tmp_path / "pbt" / "population.jsonl").touch()
    assert runs_of(tmp_path / "pbt") == members
    text = texts(draw_runs(runs_of(tmp_path / "pbt")))
    assert all(f"\nmember {number}\n" in text for number in range(3))
    assert "gamma" not in text
    assert "seed" not in text
    both = texts(draw_runs([*members, make_run(tmp_path / "run", gamma=0.9)]))
    assert "pbt, member 2" in both
    assert "gamma 0.9 (seed 0)" in both


def test_seeds_of_one_policy_share_a_colour_and_policies_do_not(tmp_path):
    seeds = [with_policies(make_run(tmp_path / f"seed{seed}", seed=seed), cat=1.0, dog=2.0) for seed in range(2)]
    assert colors(draw_runs(seeds)) == {FIRST, SECOND}


def test_an_unknown_x_axis_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="x is 'seconds', but one of steps, frames, time, episodes is expected"):
        offbeat.plot(make_run(tmp_path / "run"), x="seconds")  # type: ignore[arg-type]


def test_the_average_of_returns_that_are_not_drawn_is_refused(tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"^average is of the training returns: .*draw the return too$"):
        plot(run, metrics="frames", average=True)
    plot(run, metrics=("frames", "return"), average=True)


def test_elo_ratings_of_several_runs_have_a_band_over_the_seeds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [make_run(tmp_path / f"seed{seed}", seed=seed) for seed in range(2)]
    for seed, run in enumerate(runs):
        for step in (98_000, 99_000):
            with_line(run, step, elo=1200.0 + step * seed)
    without = make_run(tmp_path / "without", gamma=0.5)
    assert plot([*runs, without]) == [Path("return.png"), Path("return-elo.png")]
    (without / "metrics.jsonl").write_text((runs[0] / "metrics.jsonl").read_text())
    assert plot([*runs, without], labels=("ours", "theirs"), out="a.svg") == [Path("a.svg"), Path("a-elo.svg")]
    drawn = Path("a-elo.svg").read_text()
    assert all(f"<!-- {shown} -->" in drawn for shown in ("ours", "theirs", "range of the seeds"))


def test_the_numbers_at_the_axis_of_elo_ratings_are_whole_ratings(tmp_path):
    run = make_run(tmp_path / "run")
    for step, elo in ((98_000, 1199.9), (99_000, 1199.5)):
        with_line(run, step, elo=elo)
    (axes,) = draw_runs([run], metrics=["elo"]).axes
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown
    assert all(number.startswith("1199.") or number == "1200.0" for number in shown), shown


def test_the_elo_picture_beside_a_named_file_overwrites_no_other_picture(tmp_path):
    run = with_line(make_run(tmp_path / "run"), 99_000, learning_step=99, elo=1200.0)
    out = tmp_path / "return.svg"
    for earlier in ("return.png", "return-elo.png"):
        (run / earlier).touch()
    assert plot(run) == [run / "return.png", run / "return-elo.png"]
    assert plot(run, metrics="learning_step") == [run / "learning_step.png", run / "return-elo.png"]
    (tmp_path / "return-elo.svg").write_text("of another plot")
    assert plot(run, out=out) == [out, tmp_path / "return-elo-2.svg"]
    assert (tmp_path / "return-elo.svg").read_text() == "of another plot"
