from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.pace_simulation import Event, Simulation
from tests.support.thorough import examples

from offbeat.core.errors import ConfigError
from offbeat.core.pace import OnPolicyPace, ReplayPace

many = examples(500)
seeds = st.integers(0, 2**32 - 1)
GROUPS = 7
"""Groups of learning steps that are simulated: more than can be in flight."""


# --- on-policy ----------------------------------------------------------------------------------------------

once = st.builds(OnPolicyPace, unrolls_per_batch=st.integers(1, 5), max_lag=st.integers(0, 4))
resident = st.builds(
    OnPolicyPace,
    unrolls_per_batch=st.integers(1, 3),
    max_lag=st.integers(0, 9),
    resident_batches=st.integers(1, 4),
    passes=st.integers(2, 4),
)
on_policy = once | resident


def scheduled_batches(pace: OnPolicyPace, steps: int) -> list[int]:
    """The batch of each learning step, by the schedule in words: groups of N batches, taken in turn K times."""
    n, k = pace.resident_batches, pace.passes
    groups = range(steps // (n * k) + 1)
    return [group * n + i for group in groups for _ in range(k) for i in range(n)][:steps]


def simulate_on_policy(pace: OnPolicyPace, actors: int, seed: int, steps: int = GROUPS) -> Simulation:
    """Up to `steps` groups of learning steps; actors may be fewer or more than the slots."""
    stop = steps * pace.resident_batches * pace.unrolls_per_batch
    return Simulation(
        lambda ticket, _, learned: pace.may_act(ticket, learned),
        lambda acted, learned: (
            (learned < steps * pace.group_steps or stop > 10**6) and acted >= pace.acted_before_learn(learned)
        ),
        actors,
        stop,
        Random(seed),
    )


def batch_tickets(pace: OnPolicyPace, step: int) -> set[int]:
    batch = scheduled_batches(pace, step + 1)[step]
    return {batch * pace.unrolls_per_batch + i for i in range(pace.unrolls_per_batch)}


def first_use_of(pace: OnPolicyPace, ticket: int) -> int:
    """The first learning step of a ticket, by the schedule in words."""
    batch = ticket // pace.unrolls_per_batch
    return scheduled_batches(pace, (batch // pace.resident_batches + 1) * pace.group_steps).index(batch)


def reading_and_writing(pace: OnPolicyPace, events: list[Event]) -> Iterator[tuple[Event, set[int], set[int]]]:
    """After each event: the tickets whose slots still hold data to be learned, and those being written."""
    kept: set[int] = set()
    writing: set[int] = set()
    for event in events:
        if event.kind == "begin":
            writing |= {event.number}
        elif event.kind == "commit":
            writing, kept = writing - {event.number}, kept | {event.number}
        elif event.kind == "finish" and is_last_use(pace, event.number):
            kept = kept - batch_tickets(pace, event.number)
        yield event, kept, writing


def is_last_use(pace: OnPolicyPace, step: int) -> bool:
    batches = scheduled_batches(pace, step + 1 + pace.group_steps)
    return batches[step] not in batches[step + 1 :]


@many
@given(on_policy, st.integers(1, 30), seeds)
def test_the_pace_has_no_deadlock(pace, actors, seed):
    run = simulate_on_policy(pace, actors, seed)
    run.run()
    assert run.acted == GROUPS * pace.resident_batches * pace.unrolls_per_batch
    assert run.learned == GROUPS * pace.group_steps


@many
@given(on_policy, st.integers(1, 30), seeds)
def test_the_newest_weights_are_at_most_max_lag_steps_old_at_first_use(pace, actors, seed):
    for event in simulate_on_policy(pace, actors, seed).run():
        if event.kind == "begin":
            assert 0 <= first_use_of(pace, event.number) - event.learned <= pace.max_lag


@many
@given(on_policy, st.integers(1, 30), seeds)
def test_exact_weights_are_still_stored_and_are_max_lag_steps_old(pace, actors, seed):
    for event in simulate_on_policy(pace, actors, seed).run():
        if event.kind == "begin":
            first_use = first_use_of(pace, event.number)
            version = pace.learned_before_act(event.number)
            assert first_use - version == min(first_use, pace.max_lag)
            assert event.learned - pace.versions < version <= event.learned


@many
@given(on_policy, st.integers(1, 30), seeds)
def test_a_learning_step_starts_only_when_all_its_tickets_and_earlier_ones_are_committed(pace, actors, seed):
    committed: set[int] = set()
    for event in simulate_on_policy(pace, actors, seed).run():
        if event.kind == "commit":
            committed |= {event.number}
        elif event.kind == "learn":
            assert set(pace.tickets_of(event.number)) == batch_tickets(pace, event.number)
            assert committed >= set(range(max(batch_tickets(pace, event.number)) + 1))


@many
@given(on_policy, st.integers(1, 30), seeds)
def test_no_slot_is_overwritten_before_its_rows_have_been_learned_from(pace, actors, seed):
    for _, kept, writing in reading_and_writing(pace, simulate_on_policy(pace, actors, seed).run()):
        slots = [pace.slot(ticket) for ticket in [*kept, *writing]]
        assert len(set(slots)) == len(slots)
        assert all(0 <= slot < pace.in_flight for slot in slots)


@many
@given(once, st.integers(1, 30), seeds)
def test_without_lag_acting_and_learning_take_turns(pace, actors, seed):
    pace = OnPolicyPace(pace.unrolls_per_batch, max_lag=0)
    learning = False
    for event, _, writing in reading_and_writing(pace, simulate_on_policy(pace, actors, seed).run()):
        learning = {"learn": True, "finish": False}.get(event.kind, learning)
        assert not (learning and writing)
        if event.kind == "begin":
            assert event.learned == event.number // pace.unrolls_per_batch


@pytest.mark.parametrize("max_lag", [0, 1, 3])
@pytest.mark.parametrize("unrolls", [1, 3])
def test_fast_actors_reach_the_maximum_lag_and_use_every_slot(unrolls, max_lag):
    pace = OnPolicyPace(unrolls, max_lag)
    run = simulate_on_policy(pace, pace.in_flight, seed=0)
    run.speeds = [1e9] * pace.in_flight + [1e-9]
    events = run.run()
    begun = [event for event in events if event.kind == "begin"]
    assert max(event.number // unrolls - event.learned for event in begun) == max_lag
    assert max(len(kept | writing) for _, kept, writing in reading_and_writing(pace, events)) == pace.in_flight


@pytest.mark.parametrize("max_lag", [0, 1, 3])
def test_a_slow_actor_with_exact_lag_needs_the_oldest_stored_version(max_lag):
    pace = OnPolicyPace(2, max_lag)
    run = simulate_on_policy(pace, actors=1, seed=0)
    run.speeds = [1e-9, 1e9]
    begun = [event for event in run.run() if event.kind == "begin"]
    assert max(event.learned - pace.learned_before_act(event.number) for event in begun) == pace.versions - 1


@many
@given(on_policy, st.integers(1, 30), seeds, st.integers(0, 60))
def test_a_pause_stops_acting_and_learning_exactly_at_its_ticket(pace, actors, seed, moves):
    run = simulate_on_policy(pace, actors, seed, steps=10**6)
    for _ in range(moves):
        run.move()
    run.stop = held = pace.pause_ticket(run.learned)
    begun = [event.number for event in run.run() if event.kind == "begin"]
    assert sorted(begun) == list(range(held))
    assert run.acted == held == pace.next_ticket(run.learned)
    assert not run.learning
    assert not set(range(held)) - {ticket for step in range(run.learned) for ticket in batch_tickets(pace, step)}


@given(on_policy, st.integers(0, 50))
def test_tickets_that_have_been_used_and_batches_that_stay_follow_from_the_schedule(pace, learned):
    batches = scheduled_batches(pace, learned + pace.group_steps)
    used, later = set(batches[:learned]), set(batches[learned:])
    assert pace.next_ticket(learned) == len(used) * pace.unrolls_per_batch
    assert set(pace.resident(learned)) == used & later
    assert pace.is_first_use(learned) == (batches[learned] not in used)


@given(on_policy)
def test_as_many_slots_as_are_needed_and_no_more(pace):
    run = simulate_on_policy(pace, pace.in_flight, seed=0)
    run.speeds = [1e9] * pace.in_flight + [1e-9]
    most_new, most = 0, 0
    for event, kept, writing in reading_and_writing(pace, run.run()):
        live, used = kept | writing, pace.next_ticket(event.learned + (event.kind == "finish"))
        most = max(most, len(live))
        most_new = max(most_new, len([ticket for ticket in live if ticket >= used]))
    assert most_new == pace.most_ahead
    assert most <= pace.in_flight < most + pace.unrolls_per_batch * pace.resident_batches


def test_the_number_of_slots_is_computed_at_once_for_any_lag():
    assert OnPolicyPace(1, max_lag=10**12).in_flight == 10**12 + 1
    assert OnPolicyPace(2, max_lag=0, resident_batches=10**12, passes=2).in_flight == 2 * 10**12


@given(on_policy, st.integers(0, 50))
def test_the_pause_ticket_is_the_first_that_the_pace_cannot_have_allowed(pace, learned):
    held = pace.pause_ticket(learned)
    assert not pace.may_act(held, learned)
    assert pace.may_act(held - 1, learned)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1), r"unrolls_per_batch is 0.*at least 1.*--set unrolls_per_batch=1"),
        ((-3, 1), r"unrolls_per_batch is -3"),
        ((1, -1), r"max_lag is -1.*--max-lag 0"),
        ((1, 0, 2, 1), r"resident_batches is 2, but passes is 1, .*--set passes=2 or more, or leave"),
    ],
)
def test_invalid_on_policy_settings_are_refused_with_the_remedy(arguments, words):
    with pytest.raises(ConfigError, match=words) as refusal:
        OnPolicyPace(*arguments)
    assert refusal.value.exit_code == 2


# --- replay -------------------------------------------------------------------------------------------------

ratios = st.sampled_from([Fraction(text) for text in ("1", "1/4", "0.37", "1/64", "3", "7/3", "0.05")])
replay = st.builds(ReplayPace, utd_ratio=ratios, warmup=st.integers(1, 40), max_ahead=st.integers(0, 8))
transitions = st.lists(st.integers(0, 12), min_size=1, max_size=30)


def simulate_replay(pace: ReplayPace, counts: list[int], actors: int, seed: int) -> Simulation:
    """Ticket k inserts counts[k] valid transitions, and learning step k takes it in."""
    return Simulation(
        lambda ticket, _acted, learned: pace.may_act(ticket, learned),
        lambda acted, learned: learned < len(counts) and acted >= pace.acted_before_learn(learned),
        actors,
        len(counts),
        Random(seed),
    )


def owed(pace: ReplayPace, counts: list[int], prefix: int) -> int:
    """floor(r (M - W)) for the M valid transitions of a prefix, as the contract has it."""
    return max(0, floor(pace.utd_ratio * (sum(counts[:prefix]) - pace.warmup)))


@many
@given(replay, transitions)
def test_each_learning_step_makes_the_updates_that_the_ratio_requires(pace, counts):
    made, valid = 0, 0
    for step, count in enumerate(counts):
        valid += count
        due = pace.due(valid) - made
        assert due >= 0
        made += due
        assert made == owed(pace, counts, step + 1)


@many
@given(replay, transitions, st.integers(1, 12), seeds)
def test_the_learner_never_makes_more_updates_than_the_ratio_allows(pace, counts, actors, seed):
    for event in simulate_replay(pace, counts, actors, seed).run():
        if event.kind == "finish":
            made = owed(pace, counts, event.number + 1)  # by the end of this step
            assert made <= owed(pace, counts, event.acted)


@pytest.mark.parametrize("max_ahead", [0, 1, 5])
def test_fast_actors_are_max_ahead_tickets_ahead(max_ahead):
    pace = ReplayPace(Fraction(1), warmup=3, max_ahead=max_ahead)
    run = simulate_replay(pace, [1] * 30, actors=max_ahead + 1, seed=0)
    run.speeds = [1e-9, *[1e9] * max_ahead, 1e9]
    begun = [event for event in run.run() if event.kind == "begin"]
    assert max(event.number - event.learned for event in begun) == max_ahead


@given(ratios, st.integers(1, 10**6), st.integers(0, 10**12))
def test_due_is_the_exact_floor_at_any_size(ratio, warmup, valid):
    expected = floor(ratio * (valid - warmup)) if valid > warmup else 0
    assert ReplayPace(ratio, warmup, 0).due(valid) == expected


def test_due_does_not_round_down_as_a_float_would():
    assert floor(0.29 * 100) == 28
    assert ReplayPace(Fraction("0.29"), warmup=1, max_ahead=0).due(1 + 100) == 29


@given(replay)
def test_the_first_update_is_due_one_updates_worth_of_steps_after_the_warmup(pace):
    per_update = -(-pace.utd_ratio.denominator // pace.utd_ratio.numerator)
    assert pace.due(pace.warmup + per_update - 1) == 0
    assert pace.due(pace.warmup + per_update) >= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((Fraction(0), 1, 0), r"utd_ratio is 0.*positive.*--set utd_ratio=1"),
        ((Fraction(-1, 4), 1, 0), r"utd_ratio is -1/4"),
        ((Fraction(1), 1, -1), r"max_ahead is -1.*--set max_ahead=0"),
        (
            (Fraction(1), 99, 0, 100),
            r"warmup is 99.*needs 100.*--set warmup=100 or more, or a smaller sample.*smaller batch_size",
        ),
        ((Fraction(1), 0, 0), r"warmup is 0.*needs 1.*--set warmup=1"),
    ],
)
def test_invalid_replay_settings_are_refused_with_the_remedy(arguments, words):
    with pytest.raises(ConfigError, match=words) as refusal:
        ReplayPace(*arguments)
    assert refusal.value.exit_code == 2


def test_settings_at_the_limits_are_accepted():
    assert OnPolicyPace(unrolls_per_batch=1, max_lag=0).in_flight == 1
    assert ReplayPace(Fraction(1), warmup=100, max_ahead=0, sample_needs=100).due(101) == 1


@many
@given(replay, st.integers(0, 60), st.integers(0, 60))
def test_a_replay_pace_gates_like_an_on_policy_pace_with_one_ticket_per_batch(pace, ticket, learned):
    """What is proven of gate, slots and versions for the one pace holds for the other."""
    twin = OnPolicyPace(unrolls_per_batch=1, max_lag=pace.max_ahead)
    assert pace.tickets_of(learned) == twin.tickets_of(learned)
    assert pace.learned_before_act(ticket) == twin.learned_before_act(ticket)
    assert pace.acted_before_learn(learned) == twin.acted_before_learn(learned)
    assert pace.may_act(ticket, learned) == twin.may_act(ticket, learned)
    assert pace.pause_ticket(learned) == twin.pause_ticket(learned)
    assert (pace.in_flight, pace.versions) == (twin.in_flight, twin.versions)
