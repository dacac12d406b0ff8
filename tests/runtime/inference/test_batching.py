"""Which requests an inference worker computes together, and when."""

from __future__ import annotations

from offbeat.runtime.inference.batching import ArrivalBatching, FixedBatching, Request, RequestBatch
from offbeat.workers.inference import InferenceGroups

GROUPS = InferenceGroups(actors=6, workers=2)
"""Worker 1 serves the actors 1, 3 and 5."""


def request(actor: int, group: int = 0, version: int = 7) -> Request:
    return Request(actor, group, 0, version)


def places(batch: RequestBatch | float) -> dict[int, int]:
    """Return the position of each actor."""
    assert isinstance(batch, RequestBatch)
    return {each.actor: position for each, position in batch.requests}


# --- fixed --------------------------------------------------------------------------------------------------


def test_a_fixed_batch_that_is_complete_is_due_at_once():
    batching = FixedBatching(GROUPS, 1)
    batching.computed(1.0)
    batch = batching.next([request(actor) for actor in (5, 1, 3)], 0.0)
    assert places(batch) == {1: 0, 3: 1, 5: 2}


def test_a_fixed_batch_waits_for_missing_actors_as_long_as_a_batch_takes_and_keeps_their_places_empty():
    batching = FixedBatching(GROUPS, 1)
    batching.computed(9.0)  # the machine was busy
    batching.computed(0.25)
    assert batching.next([request(5)], 10.0) == 0.25
    assert batching.next([request(5)], 10.125) == 0.125
    batch = batching.next([request(5)], 10.25)
    assert places(batch) == {5: 2}
    assert isinstance(batch, RequestBatch)
    assert batch.size == 3
    assert batching.next([request(5)], 11.0) == 0.25  # the wait for the next one starts again


def test_no_batch_waits_if_batches_take_less_than_the_shortest_sleep():
    batching = FixedBatching(GROUPS, 1)
    batching.computed(0.0005)
    assert places(batching.next([request(3)], 0.0)) == {3: 1}


def test_env_groups_are_not_mixed_and_the_one_that_has_waited_longest_comes_first():
    batching = FixedBatching(GROUPS, 1)
    batching.computed(1.0)
    assert batching.next([request(1, group=1)], 0.0) == 1.0
    both = [request(1, group=0), request(1, group=1)]
    assert batching.next(both, 0.5) == 0.5
    batch = batching.next(both, 1.0)
    assert isinstance(batch, RequestBatch)
    assert [each.group for each, _ in batch.requests] == [1]


def test_a_batch_has_one_version_of_the_weights_and_the_oldest_comes_first():
    batching = FixedBatching(GROUPS, 1)
    batching.computed(1.0)
    asked = [request(1, version=8), request(3, version=7), request(5, version=8)]
    first = batching.next(asked, 0.0)
    assert isinstance(first, RequestBatch)
    assert (first.version, places(first)) == (7, {3: 1})
    assert batching.next([asked[0], asked[2]], 0.25) == 0.75  # they have waited since they arrived
    rest = batching.next([asked[0], asked[2]], 1.0)
    assert isinstance(rest, RequestBatch)
    assert (rest.version, places(rest)) == (8, {1: 0, 5: 2})


# --- arrival ------------------------------------------------------------------------------------------------


def test_an_arrival_batch_starts_when_its_first_request_has_waited_for_the_timeout():
    batching = ArrivalBatching(positions=4, possible=4, timeout_s=0.5)
    assert batching.next([request(3)], 0.0) == 0.5
    assert batching.next([request(3), request(1)], 0.25) == 0.25
    batch = batching.next([request(3), request(1)], 0.5)
    assert places(batch) == {3: 0, 1: 1}  # in the order of arrival
    assert isinstance(batch, RequestBatch)
    assert batch.size == 2


def test_an_arrival_batch_starts_when_it_is_full_and_the_rest_comes_next():
    batching = ArrivalBatching(positions=2, possible=4, timeout_s=0.5)
    asked = [request(1, group=0), request(3, group=1), request(5, group=0)]
    batch = batching.next(asked, 0.0)
    assert isinstance(batch, RequestBatch)
    assert [each for each, _ in batch.requests] == asked[:2]
    assert batching.next(asked[2:], 0.125) == 0.375


def test_an_arrival_batch_starts_when_no_other_request_can_arrive():
    batching = ArrivalBatching(positions=4, possible=2, timeout_s=0.5)
    assert places(batching.next([request(1), request(3)], 0.0)) == {1: 0, 3: 1}


def test_a_request_that_an_actor_has_replaced_is_forgotten():
    batching = ArrivalBatching(positions=4, possible=4, timeout_s=0.5)
    batching.next([request(1), request(3)], 0.0)
    again = request(3)._replace(number=1)  # the actor was started again
    batch = batching.next([request(1), again], 0.5)
    assert isinstance(batch, RequestBatch)
    assert [each for each, _ in batch.requests] == [request(1), again]
