"""Draw the learning curves on the pages from benchmarks/results: nothing is trained.

python -m benchmarks.curves
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.common import RESULTS
from benchmarks.options import new_parser
from benchmarks.scores.works import Work, all_works
from offbeat.plots.curves import draw_runs
from offbeat.plots.figures import save_figure

IMAGES = Path(__file__).parents[1] / "docs/images"
LAYOUT = ("runtime", "max_lag")
"""Settings that the legend names."""


def scores(work: Path, scored: Work) -> list[Path]:
    """Return the runs of a work of the table of scores, one a seed."""
    runs = []
    for result in scored.results():
        config = {
            "run": {key: result["config"]["run"][key] for key in ("algorithm", "env", "seed")},
            "runtime": {key: result["config"]["runtime"][key] for key in LAYOUT},
        }
        lines = (dict(zip(result["curve_keys"], point, strict=True)) for point in result["curve"])
        runs.append(run_directory(work / f"{scored.runtime}-{result['seed']}", config, lines))
    return runs


def beside_stable_baselines3(work: Path, out: Path) -> None:
    """Plot PPO on HalfCheetah-v5 over time, with offbeat and with Stable-Baselines3."""
    record = json.loads((RESULTS / "time-to-return.json").read_text())
    names = {"processes": "offbeat, processes, max_lag 1", "sb3": "Stable-Baselines3"}
    keys = ("env_steps", "wall_time_s", "episode_return_mean")
    runs = {}
    for result in (run for run in record["runs"] if run["side"] in names):
        config = {"run": {"algorithm": "ppo", "env": record["work"]["env"], "seed": result["seed"]}}
        lines = ({**dict(zip(keys, point, strict=True)), "eval_return_mean": None} for point in result["curve"])
        runs[run_directory(work / f"{result['side']}-{result['seed']}", config, lines)] = names[result["side"]]
    title = f"PPO on {record['work']['env']}, {record['work']['steps']:,} env steps"
    save_figure(draw_runs(list(runs), "time", labels=list(runs.values()), title=title), out)


def hogwild_runs(work: Path, study: str, **chosen: str) -> list[Path]:
    """Return the runs of a study with 1, 2, ... workers whose other settings are as chosen; evaluations alone."""
    table = {row["trial"]: row for row in read(study, "table") if all(row[key] == chosen[key] for key in chosen)}
    points: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in read(study, "evaluations"):
        if row["trial"] in table:
            point = {key: float(row[key]) for key in ("env_steps", "wall_time_s", "eval_return_mean")}
            points.setdefault((row["trial"], row["session"]), []).append(point)
    runs = []
    for (trial, session), lines in points.items():
        run = {"algorithm": "sac", "env": table[trial]["env"], "seed": int(session.removeprefix("seed-"))}
        config = {"run": run, "runtime": {"workers": int(table[trial]["workers"])}}
        runs.append(run_directory(work / f"{trial}-{session}", config, lines))
    return runs


def read(study: str, name: str) -> list[dict[str, str]]:
    """Return the rows of one of a study's tables."""
    with (RESULTS / study / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def run_directory(path: Path, config: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write what `offbeat plot` reads of a run directory; each line with an evaluation is the first that has it."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(tomli_w.dumps(config))
    with (path / "metrics.jsonl").open("w") as file:
        evaluations = 0
        for line in lines:
            evaluations += line["eval_return_mean"] is not None
            file.write(json.dumps({**line, "evaluations": evaluations}) + "\n")
    return path


def main() -> None:
    """Write all pictures."""
    new_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        beside_stable_baselines3(work / "beside", IMAGES / "time-to-return.png")
        for number, scored in enumerate(all_works()):
            if runs := scores(work / str(number), scored):
                save_figure(draw_runs(runs), scored.folder / "return.png")
        of_env = [scored for scored in all_works() if (scored.algorithm, scored.env) == ("ppo", "HalfCheetah-v5")]
        both = [scored for scored in of_env if not scored.preset and not scored.settings]
        runs = [run for scored in both for run in scores(work / "halfcheetah", scored)]
        save_figure(draw_runs(runs), IMAGES / "halfcheetah.png")
        pendulum = hogwild_runs(work / "pendulum", "hogwild-pendulum", hogwild="shared", learning_rate="0.001")
        save_figure(draw_runs(pendulum, "time"), IMAGES / "hogwild-pendulum.png")
        cheetah = hogwild_runs(work / "cheetah", "hogwild-halfcheetah")
        save_figure(draw_runs(cheetah, "time"), IMAGES / "hogwild-halfcheetah.png")


if __name__ == "__main__":
    main()
