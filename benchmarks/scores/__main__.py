"""Scores of the presets: several seeds each, greedy evaluation at the end, beside the best published figures.

    make scores                                                all works of works.toml: many hours
    make scores ARGS="--algorithm sac"                         those of an algorithm
    make scores ARGS="--env Hopper-v5 --seeds 1 2"             some of them
    make scores ARGS="--runtime processes"                     as `--runtime processes` trains: acting beside learning
    make scores ARGS="--only-page"                             the page from the results that are there

Runs have one thread each, two at a time. A seed whose result is there is not run again, and one that was broken off
continues from its last checkpoint. Run directories stay under runs/scores until you delete them; the results are small
and are kept with the code. The page is docs/concepts/scores.md; `python -m benchmarks.curves` draws the curves.
MiniGrid's envs need `.venv/bin/pip install minigrid`, CarRacing `.venv/bin/pip install envpool`.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from benchmarks.common import finish
from benchmarks.options import new_parser
from benchmarks.scores.page import write_page
from benchmarks.scores.works import Work, all_works
from benchmarks.side_by_side import results_of

AT_A_TIME = 2


def run_missing(works: list[Work], chosen: list[Work], seeds: list[int] | None) -> None:
    """Run the seeds that have no result yet, `AT_A_TIME` at once; write the page after each.

    Raises:
        SystemExit: one failed; its messages are shown at once, and those that are under way are waited for.
    """
    jobs = [(work, seed) for work in chosen for seed in seeds or range(1, work.seeds + 1)]
    missing = [(work, seed) for work, seed in jobs if not work.result_path(seed).exists()]
    program = [sys.executable, "-m", "benchmarks.scores.run"]
    commands = [[*program, str(works.index(work)), str(seed)] for work, seed in missing]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            for said in results_of(pool, finish, commands, AT_A_TIME):
                print(said, end="", flush=True)
                write_page(works)
        except SystemExit as failure:
            print(failure, file=sys.stderr, flush=True)
            raise SystemExit(1) from failure


def main() -> None:
    """Run what is missing, then write the page from all results that are there."""
    parser = new_parser(__doc__)
    works = all_works()
    for name in ("algorithm", "env", "runtime"):
        names = dict.fromkeys(getattr(work, name) for work in works)
        parser.add_argument(f"--{name}", nargs="+", choices=names, default=list(names), help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 1 to as many as the work has")
    parser.add_argument("--only-page", action="store_true", help="run nothing")
    given = parser.parse_args()
    if not given.only_page:
        chosen = [
            work
            for work in works
            if work.algorithm in given.algorithm and work.env in given.env and work.runtime in given.runtime
        ]
        run_missing(works, chosen, given.seeds)
    write_page(works)


if __name__ == "__main__":
    main()
