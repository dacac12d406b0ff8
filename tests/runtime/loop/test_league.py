"""A league in a run: the same bits in every runtime, and nothing of a frozen player is learned from."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.runs import SMALL, lines_of, small_run, untimed, weights_of

from offbeat.api.resume import resume
from offbeat.api.train import Run, train
from offbeat.config.league import LeagueConfig
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.pace import OnPolicyPace
from offbeat.core.policy_names import policy_key
from offbeat.core.types import NOT_ENDED
from offbeat.league.plan import LeaguePlan
from offbeat.league.players import LATEST, Player
from offbeat.league.sides import Side
from offbeat.league.table import LeagueTable
from offbeat.memory.arena import private_arena
from offbeat.memory.league import LeagueMemory, LeagueShape
from offbeat.memory.unrolls import Unrolls
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.models.acting import ActingPolicy
from offbeat.run_directory.checkpoint import load
from offbeat.runtime.assembly import build_paced
from offbeat.runtime.loop.league import League
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.serial import SerialActing
from offbeat.workers.seats import Seats

GAME, TEAMS = "offbeat.envs.testing.games:RockPaperScissors", "offbeat.envs.testing.worlds:CartPoles"
LEAGUE: dict[str, Any] = {"league": {"window": 3, "snapshot_every": 4, "opponents": "prioritized"}}
SETTINGS: dict[str, Any] = {
    "steps": 640, "unroll_length": 8, "actors": 2, "max_lag": 1, "lag": "exact", "envs_per_actor": 4,
    "env": GAME, **LEAGUE,
}  # fmt: skip
RED_AND_BLUE = {"red": {"agents": "cart_0"}, "blue": {"agents": "cart_*", "settings": {"learning_rate": 1e-4}}}
TEAM_SETTINGS: dict[str, Any] = {
    **SETTINGS, "env": TEAMS, "policies": RED_AND_BLUE, "league": {**LEAGUE["league"], "team_change_every": 3}
}  # fmt: skip
DRAWN_SETTINGS: dict[str, Any] = {
    **SETTINGS, "env": TEAMS,
    "policies": {"red": {"agents": "*"}, "blue": {"agents": "*"}},
    "league": {**LEAGUE["league"], "draw_policies": True},
}  # fmt: skip
CASES = {"one policy": SETTINGS, "two policies by turns": TEAM_SETTINGS, "two drawn policies": DRAWN_SETTINGS}
each_case = pytest.mark.parametrize("settings", list(CASES.values()), ids=list(CASES))


def test_a_league_says_which_agents_are_a_side_if_nobody_named_the_sides():
    (each_agent,), (each_policy,) = messages_of(TEAMS), messages_of(TEAMS, policies=RED_AND_BLUE)
    assert "3 sides, whose agents win or lose together: (cart_0); (cart_1); (cart_2);" in each_agent
    assert "2 sides, whose agents win or lose together: (cart_1, cart_2); (cart_0);" in each_policy
    assert messages_of(TEAMS, league={"sides": ["cart_0", "cart_[12]"]}) == []
    assert messages_of(GAME) == []


def messages_of(env: str, **settings: Any) -> list[str]:
    """Return what is told of a run while it is built."""
    lines: list[str] = []
    build_paced(resolve("ppo", env, flags={**SMALL, **LEAGUE, **settings}), lines.append, shared=False).close()
    return lines


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """A function from a case to its run in the serial runtime."""

    @cache
    def run(case: str) -> Any:
        return small_run(tmp_path_factory.mktemp("runs") / "serial", runtime="serial", **CASES[case])

    return run


def league_state(run: Any) -> dict[str, Any]:
    state = load(run.path / "checkpoints" / "latest").state
    assert state is not None
    league: dict[str, Any] = state["league"]
    return league


def test_a_league_with_drawn_policies_has_the_bits_of_serial_in_processes(serial, tmp_path):
    case = "two drawn policies"
    expected, run = serial(case), small_run(tmp_path / "run", runtime="processes", **CASES[case])
    assert weights_of(run.path) == weights_of(expected.path)
    assert [untimed(line) for line in lines_of(run.path)] == [untimed(line) for line in lines_of(expected.path)]
    assert league_state(run)["table"] == league_state(expected)["table"]


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_league_has_the_same_ratings_snapshots_and_opponents(case, serial, tmp_path):
    whole = serial(case)
    stopped = small_run(tmp_path / "stopped", runtime="serial", stop_at=320, **CASES[case])
    resumed = resume(stopped.path)
    expected, found = league_state(whole), league_state(resumed)
    assert found["table"] == expected["table"]
    assert found["games"] == expected["games"] > 10
    for name, array in expected["arrays"].items():
        assert np.array_equal(found["arrays"][name], array), name
    assert weights_of(resumed.path) == weights_of(whole.path)


REPLAY_BY_TURNS: dict[str, Any] = {
    "policies": {"red": {"agents": "cart_0"}, "blue": {"agents": "cart_*"}},
    "steps": 512, "actors": 2, "envs_per_actor": 4, "chunk_length": 8, "lag": "exact", "runtime": "serial",
    "capacity": 8192, "warmup": 64, "batch_size": 32, "utd_ratio": "1/8", "save_replay": True, "hidden_sizes": (16,),
    "league": {"window": 3, "snapshot_every": 4, "team_change_every": 4, "latest_ratio": 1.0},
    "eval_every": 0, "checkpoint_every": 0,
}  # fmt: skip


def test_a_resumed_league_on_a_replay_has_the_same_bits_where_the_turn_of_learning_changes(tmp_path):
    whole = train("dqn", TEAMS, run_dir=tmp_path / "whole", **REPLAY_BY_TURNS)
    stopped = train("dqn", TEAMS, run_dir=tmp_path / "stopped", stop_at=320, **REPLAY_BY_TURNS)
    assert weights_of(resume(stopped.path).path) == weights_of(whole.path)


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        (f"{GAME.partition(':')[0]}:Nim", {}, "in an env whose agents act by turns: pass --set league.team_change_ev"),
        ("offbeat.envs.testing.worlds:Cameras", {"frame_stack": 2}, "and a frame_stack: pass"),
        (TEAMS, {"core": "gru"}, "and a burn_in, which --set burn_in=0 switches off: pass"),
    ],
)
def test_turns_of_learning_are_refused_with_a_replay_whose_samples_need_rows_of_an_earlier_turn(
    env, settings, message, tmp_path
):
    changed = {**REPLAY_BY_TURNS, "policies": "separate", **settings}
    with pytest.raises(ConfigError, match=f"team_change_every is 4, .* not supported with a replay {message}"):
        train("dqn", env, run_dir=tmp_path / "run", **changed)
    assert not (tmp_path / "run").exists()


def test_games_that_begin_with_random_steps_have_no_result(begun):
    """Nim has no draws; a game that ends in random steps would look like one."""
    nim = {**SETTINGS, "env": "offbeat.envs.testing.games:Nim", "decorrelate": True, "envs_per_actor": 16}
    parts, acting = begun(**nim)
    acting.wait(parts.pace.acted_before_learn(0))
    memory, games = parts.memory.league, 0
    assert memory is not None
    for ticket in parts.pace.tickets_of(0):
        results = memory.results(ticket)
        count = int(results.games[0])
        games += count
        assert (np.sort(results.outcomes[:count], axis=1) == [-1.0, 1.0]).all()
    assert games > 10


def league_of(parts: PacedParts) -> League:
    assert parts.league is not None
    return parts.league


def rows_in(observation: Any) -> set[tuple[float, ...]]:
    """Return the observations of a batch, each as its numbers."""
    return set(map(tuple, observation.astype(np.float32).reshape(-1, observation.shape[-1]).tolist()))


@each_case
def test_no_data_of_a_frozen_player_is_in_a_slot(begun, settings, monkeypatch):
    seen, marked = set(), np.float32(77)

    class Watched(ActingPolicy):
        """A frozen player, which notes what it sees and marks what it does."""

        def act(self, observation, random, state=None):
            seen.update(rows_in(observation["observation"]))
            acted = super().act(observation, random, state)
            return acted._replace(recorded={name: np.full_like(a, marked) for name, a in acted.recorded.items()})

    def load_watched(seats: Seats, player: Player, vector: Any) -> None:
        original(seats, player, vector)
        seats.frozen(player).__class__ = Watched

    original = Seats._load
    monkeypatch.setattr(Seats, "_load", load_watched)
    parts, acting = begun(**{**settings, "league": {**settings["league"], "latest_ratio": 0.0}})
    learned, recorded = 0, set()
    for step in range(12):
        acting.wait(parts.pace.acted_before_learn(step))
        for policy in parts.policies:
            assert isinstance(policy.slots, Unrolls)
            batch = policy.slots.arrays_of(step)
            recorded.update(rows_in(batch["observation"]))
            learned += int(batch["valid"][:-1].sum())
            assert not (batch["behavior_log_prob"] == marked).any()
        for policy in parts.policies:
            policy.learner.learn(step, 0.0)
        league_of(parts).advance(step, 0)
        acting.finish(step + 1)
    assert learned > 100
    assert seen
    if settings["env"] == TEAMS:  # all observations of carts are different
        assert len(seen) > 100
        assert not {row for row in seen & recorded if any(row)}


def test_each_decision_of_drawn_policies_is_in_the_slot_of_exactly_one_of_them(begun):
    league = {**DRAWN_SETTINGS["league"], "latest_ratio": 1.0}
    parts, acting = begun(**{**DRAWN_SETTINGS, "league": league, "unroll_length": 16})
    taken: dict[str, list[Any]] = {policy.name: [] for policy in parts.policies}
    for step in range(8):
        acting.wait(parts.pace.acted_before_learn(step))
        for policy in parts.policies:
            assert isinstance(policy.slots, Unrolls)
            taken[policy.name].append(policy.slots.arrays_of(step)["valid"][:-1].copy())
            policy.learner.learn(step, 0.0)
        league_of(parts).advance(step, 0)
        acting.finish(step + 1)
    red, blue = (np.concatenate(valid, axis=0) for valid in taken.values())
    assert not (red & blue).any()
    alive = red | blue
    assert alive.any(axis=0).all()
    decisions = red.reshape(-1, 3).sum(axis=0) / alive.reshape(-1, 3).sum(axis=0)  # of each of the three carts
    assert ((decisions > 0.2) & (decisions < 0.8)).all()
    assert league_of(parts).metrics()["league_games"] > 20


def test_the_last_row_of_a_slot_has_only_the_observation_of_a_frozen_player_erased(begun):
    parts, acting = begun(**{**SETTINGS, "league": {**LEAGUE["league"], "latest_ratio": 0.0}})
    fields, erased = ("action", "reward", "terminated", "truncated", "valid", "episode_length"), False
    for step in range(8):
        slots = [parts.policy.slots.open(ticket) for ticket in parts.pace.tickets_of(step)]
        for slot in slots:
            for name in fields:
                slot[name][-1] = 1
        acting.wait(parts.pace.acted_before_learn(step))
        for slot in slots:
            assert all((slot[name][-1] == 1).all() for name in fields)
            unseen = ~slot["valid"][:-1].any(axis=0)
            assert (slot["episode_length"][:-1, unseen] == NOT_ENDED).all()
            erased |= unseen.any()
        parts.policy.learner.learn(step, 0.0)
        league_of(parts).advance(step, 0)
        acting.finish(step + 1)
    assert erased


def test_worlds_take_turns_in_which_side_learns_and_draws_meet_snapshots_and_the_newest_version(begun):
    parts, acting = begun(**{**SETTINGS, "league": {**LEAGUE["league"], "opponents": "uniform"}})
    met: set[Player] = set()
    for step in range(16):
        acting.wait(parts.pace.acted_before_learn(step))
        for actor in acting._actors:
            assert actor._seats is not None
            for world, players in enumerate(actor._seats.players):
                assert players[world % 2].snapshot == LATEST
                met.update(players)
        for policy in parts.policies:
            policy.learner.learn(step, 0.0)
        league_of(parts).advance(step, 0)
        acting.finish(step + 1)
    numbers = {player.snapshot for player in met}
    assert LATEST in numbers
    assert numbers - {LATEST} <= set(range(4))
    assert len(numbers) > 2


def test_by_turns_only_one_policy_learns_in_a_learning_step(tmp_path):
    run = small_run(tmp_path / "run", runtime="serial", log_every=1, **TEAM_SETTINGS)
    lines = lines_of(run.path)
    learned = {name: [line[f"policies/{name}/agent_steps"] for line in lines] for name in ("red", "blue")}
    changes = {name: np.diff([0, *steps]) > 0 for name, steps in learned.items()}
    assert not (changes["red"] & changes["blue"]).any()
    assert changes["red"].any()
    assert changes["blue"].any()


@pytest.mark.parametrize("sides", [[], ["cart_0", "cart_*"], ["cart_[12]", "cart_0"]])
def test_a_policy_gets_a_snapshot_after_each_of_its_turns_whatever_the_order_of_the_sides(sides, tmp_path):
    league = {**TEAM_SETTINGS["league"], "sides": sides, "snapshot_every": 3, "team_change_every": 3}
    run = small_run(tmp_path / "run", runtime="serial", log_every=1, **{**TEAM_SETTINGS, "league": league})
    table, lines = LeagueTable.restore(league_state(run)["table"]), lines_of(run.path)
    for name in ("red", "blue"):
        learned = {
            int(line["learning_step"])
            for before, line in pairwise([dict.fromkeys(lines[0], 0), *lines])
            if line[f"policies/{name}/agent_steps"] > before[f"policies/{name}/agent_steps"]
        }
        ends_of_turns = [step for step in sorted(learned) if step % 3 == 0]
        assert [snapshot.learning_step for snapshot in table.snapshots[name]] == [0, *ends_of_turns]


SMUGGLING: dict[str, Any] = {**SETTINGS, "steps": 448, "env": "offbeat.envs.testing.smuggling:Smuggling"}


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    policies = {"smuggler": {"agents": "smuggler"}, "patrol": {"agents": "patrol"}}
    path = tmp_path_factory.mktemp("runs") / "untrained"
    return small_run(path, runtime="serial", **{**SMUGGLING, "steps": 64, "policies": policies})


def with_frozen_patrol(untrained: Run) -> dict[str, Any]:
    patrol = {"agents": "patrol", "train": False, "init_from": str(untrained.path)}
    return {**SMUGGLING, "policies": {"smuggler": {"agents": "smuggler"}, "patrol": patrol}}


def test_a_policy_that_does_not_learn_keeps_its_weights_and_is_rated_in_a_league(untrained, tmp_path):
    runs = [
        small_run(tmp_path / runtime, runtime=runtime, **with_frozen_patrol(untrained))
        for runtime in ("serial", "processes")
    ]
    assert weights_of(runs[0].path) == weights_of(runs[1].path)
    weights = [run.path / "checkpoints" / "latest" / "policies" for run in (untrained, runs[0])]
    assert same_file(weights, "patrol/weights.safetensors")
    assert not same_file(weights, "smuggler/weights.safetensors")

    table, last = LeagueTable.restore(league_state(runs[0])["table"]), lines_of(runs[0].path)[-1]
    assert len(table.snapshots["patrol"]) == 1 < len(table.snapshots["smuggler"])
    assert table.has_met(Player("smuggler"), Player("patrol"))
    assert table.has_met(Player("smuggler"), Player("patrol", 0))
    assert last["policies/patrol/elo"] == table.elo[Player("patrol")] != LeagueConfig().initial_elo
    assert last["policies/smuggler/agent_steps"] == last["agent_steps"] > last["policies/patrol/agent_steps"] == 0


def test_against_a_policy_that_does_not_learn_all_worlds_of_a_league_are_learned_from_on_the_other_side(
    begun, untrained
):
    parts, acting = begun(**with_frozen_patrol(untrained))
    acting.wait(parts.pace.acted_before_learn(0))
    assert any(name.startswith("policies/smuggler/unrolls/") for name in parts.arrays)
    assert not any(name.startswith("policies/patrol/unrolls/") for name in parts.arrays)
    for actor in acting._actors:
        assert actor._seats is not None
        assert all(Player("smuggler") in players for players in actor._seats.players)


def same_file(folders: list[Path], name: str) -> bool:
    return len({(folder / name).read_bytes() for folder in folders}) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "CartPole-v1"}, "a league needs a game of at least 2 sides, but CartPole-v1 has 1 agent"),
        ({"league": {"window": 0}}, "window is 0, but a whole number at least 1 is expected"),
        ({"league": {"widow": 1}}, "unknown key 'league.widow'"),
        (
            {"league": {"latest_ratio": 0.0}, "envs_per_actor": 1, "minibatch_size": 16},
            "there are 2 sides that learn and 1 worlds: pass --envs-per-actor 2",
        ),
        ({"league": {"team_change_every": 5}}, "only the policy default is trained, so there are no turns"),
        (
            {"env": TEAMS, "policies": RED_AND_BLUE, "passes": 3, "league": {"team_change_every": 4}},
            "batches are used in groups of 3 learning steps: pass a multiple of 3",
        ),
        ({"algorithm": "a2c", "runtime": "hogwild", "max_lag": None}, "whose workers have no common version"),
    ],
)
def test_a_league_that_cannot_be_played_is_refused(settings, message, tmp_path):
    given = {**{key: value for key, value in SETTINGS.items() if key not in ("lag", "actors")}, **settings}
    given = {key: value for key, value in given.items() if value is not None}
    given["runtime"] = given.get("runtime", "serial")
    if given["runtime"] == "hogwild":
        given.pop("max_lag", None)
    with pytest.raises(ConfigError, match=message):
        small_run(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", CASES)
def test_the_win_rate_of_a_policy_is_the_mean_of_those_against_the_snapshots_of_the_window_on_other_sides(case, serial):
    run = serial(case)
    table, last = LeagueTable.restore(league_state(run)["table"]), lines_of(run.path)[-1]
    for policy in table.snapshots:
        others = set(table.snapshots) - ({policy} if CASES[case] is TEAM_SETTINGS else set())
        counts = {other: len(table.snapshots[other]) for other in others}
        window = [
            Player(other, number) for other, count in counts.items() for number in range(max(0, count - 3), count)
        ]
        newest = Player(policy)
        rates = [table.win_rate(newest, each) for each in window if table.has_met(newest, each)]
        assert rates
        assert last[policy_key(policy, "win_rate")] == pytest.approx(sum(rates) / len(rates))


def test_the_odds_of_a_version_are_published_before_actors_may_use_it(tmp_path, monkeypatch):
    newest: list[int] = []
    advance, finish = League.advance, SerialActing.finish

    def noted_advance(league: League, *arguments: Any) -> None:
        advance(league, *arguments)
        newest.append(league.table.version)

    def noted_finish(acting: SerialActing, learned: int) -> None:
        assert newest[-1] == learned
        finish(acting, learned)

    monkeypatch.setattr(League, "advance", noted_advance)
    monkeypatch.setattr(SerialActing, "finish", noted_finish)
    small_run(tmp_path / "run", runtime="serial", **{**SETTINGS, "steps": 128})
    assert newest


def test_the_games_of_a_batch_that_is_used_again_are_counted_once():
    plan = LeaguePlan(LeagueConfig(window=1, snapshot_every=9), (Side(("p",), ("a",)), Side(("p",), ("b",))), ("p",))
    pace = OnPolicyPace(unrolls_per_batch=1, max_lag=0, passes=2)
    shape = LeagueShape(2, {"p": 3}, 1, 9, pace.versions, pace.in_flight, games=4)
    arrays = private_arena([*shape.slabs(), *weight_slabs(3, pace.versions)])
    weights, memory = Weights(arrays), LeagueMemory(shape, arrays)
    league = League(plan, pace, memory, {"p": weights})
    weights.commit(0)
    league.start()
    results = memory.results(0)
    results.games[0] = 2
    results.snapshots[:2] = LATEST, 0
    results.outcomes[:2] = 1, 0
    for step in range(2):
        weights.commit(step + 1)
        league.advance(step, env_steps=10)
        assert league.metrics()["league_games"] == 2


def test_an_agent_that_does_not_appear_does_not_lower_the_return_of_its_side(tmp_path):
    policies = {"red": {"agents": "late"}, "blue": {"agents": "*"}}
    settings = {**SETTINGS, "env": "tests.sample_envs.scored_games:EndsApart", "steps": 128, "policies": policies}
    run = small_run(tmp_path / "run", runtime="serial", **settings)
    assert lines_of(run.path)[-1]["policies/blue/elo"] > 1200


def test_an_outcome_that_is_reported_for_one_side_only_is_an_error_that_names_the_other_one(tmp_path):
    settings = {**SETTINGS, "env": "tests.sample_envs.scored_games:ScoredForOne", "league": {"outcome": "won"}}
    with pytest.raises(EnvFailed, match="but not for player_0: put won into the infos"):
        small_run(tmp_path / "run", runtime="serial", **settings)


@pytest.mark.parametrize("limit", [2, 3])
def test_a_game_that_a_limit_cuts_has_no_result_if_the_outcome_of_one_side_is_not_reported(limit, tmp_path):
    apart = {"sides": ["late", "*"], "outcome": "won", "snapshot_every": 1, "latest_ratio": 0.0}
    settings = {**SETTINGS, "env": "tests.sample_envs.scored_games:EndsApart", "league": apart, "steps": 512}
    run = small_run(tmp_path / "run", runtime="serial", max_episode_steps=limit, **settings)
    assert (lines_of(run.path)[-1]["league_games"] > 50) == (limit == 3)
