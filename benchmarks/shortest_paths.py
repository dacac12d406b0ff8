"""The best possible mean return of MiniGrid's small envs: shortest paths by breadth-first search, played in the env.

    python -m benchmarks.shortest_paths                     a few seconds; it needs `.venv/bin/pip install minigrid`
    python -m benchmarks.shortest_paths --episodes 10 --out /tmp/trial

The search knows the whole grid, so it is a bound for agents, which see a part of it. It has the actions left, right,
forward, pickup (of the key) and toggle (of the door). Each path is played in the env, whose return counts. It writes
shortest-paths.json to benchmarks/results, or to the folder `--out`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from statistics import mean, stdev
from typing import Any, NamedTuple

import gymnasium

from benchmarks.common import machine, write_json
from benchmarks.options import new_parser, read_options

ENVS = ("MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-FourRooms-v0")
LEFT, RIGHT, FORWARD, PICKUP, TOGGLE = 0, 1, 2, 3, 5
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""The move of each direction of the agent."""
Cell = tuple[int, int]


class State(NamedTuple):
    """What an action can change."""

    cell: Cell
    direction: int
    has_key: bool
    is_open: bool


def shortest_path(env: Any) -> list[int]:
    """Return the fewest actions from the state of a MiniGrid env to its goal.

    Raises:
        ValueError: the goal cannot be reached.
    """
    cells = cells_by_kind(env.grid)
    x, y = env.agent_pos
    start = State((int(x), int(y)), int(env.agent_dir), has_key=False, is_open=False)
    paths: dict[State, list[int]] = {start: []}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if state.cell in cells["goal"]:
            return paths[state]
        for action, following in moves(state, cells):
            if following not in paths:
                paths[following] = [*paths[state], action]
                waiting.append(following)
    raise ValueError("no path leads to the goal")


def cells_by_kind(grid: Any) -> dict[str, set[Cell]]:
    """Return the cells of each kind of object."""
    found: dict[str, set[Cell]] = {"wall": set(), "key": set(), "door": set(), "goal": set()}
    for x in range(grid.width):
        for y in range(grid.height):
            if thing := grid.get(x, y):
                found[thing.type].add((x, y))
    return found


def moves(state: State, cells: dict[str, set[Cell]]) -> Iterator[tuple[int, State]]:
    """Yield each action that changes a state, with the state after it."""
    yield LEFT, state._replace(direction=(state.direction - 1) % 4)
    yield RIGHT, state._replace(direction=(state.direction + 1) % 4)
    x, y = STEPS[state.direction]
    ahead = state.cell[0] + x, state.cell[1] + y
    is_key, is_door = ahead in cells["key"] and not state.has_key, ahead in cells["door"]
    if is_key:
        yield PICKUP, state._replace(has_key=True)
    elif is_door and not state.is_open:
        if state.has_key:
            yield TOGGLE, state._replace(is_open=True)
    elif ahead not in cells["wall"]:
        yield FORWARD, state._replace(cell=ahead)


def best_return(env: gymnasium.Env[Any, Any], seed: int) -> float:
    """Return what the shortest path of an episode earns.

    Raises:
        ValueError: the env did not end with its last action.
    """
    env.reset(seed=seed)
    rewards, terminated = [], False
    for action in shortest_path(env.unwrapped):
        _, reward, terminated, _, _ = env.step(action)
        rewards.append(float(reward))
    if not terminated:
        raise ValueError(f"the path of seed {seed} does not end its episode")
    return sum(rewards)


def main() -> None:
    """Search all envs; print the means and write them."""
    parser = new_parser(__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    options = read_options(parser)
    records = {}
    for name in ENVS:
        with gymnasium.make(f"minigrid:{name}") as env:
            returns = [best_return(env, seed) for seed in range(options.episodes)]
        records[name] = {"return_mean": round(mean(returns), 5), "return_std": round(stdev(returns), 5)}
        print(f"{name}: {mean(returns):.4f}, standard deviation {stdev(returns):.4f}")
    record = {"machine": machine(), "episodes": options.episodes, "envs": records}
    write_json(options.out / "shortest-paths.json", record)


if __name__ == "__main__":
    main()
