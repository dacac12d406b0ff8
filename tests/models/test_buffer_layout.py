from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.sac import sac_specs
from tests.support.models import actor_critic, policy_spec, policy_specs
from tests.support.thorough import examples

from offbeat.core.errors import ConfigError
from offbeat.core.previous_inputs import previous_leaves
from offbeat.models.buffer_layout import ALIGNMENT, BufferLayout
from offbeat.models.flat import FlatParameters
from offbeat.models.published import parameter_shapes, published_layout
from offbeat.models.spec_file import read_spec

shapes = st.lists(st.lists(st.integers(1, 9), max_size=3).map(tuple), min_size=1, max_size=8)


def named(arrays: list[tuple[int, ...]]) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"array{i}", shape) for i, shape in enumerate(arrays)]


@examples(100)
@given(shapes)
def test_arrays_are_aligned_in_order_and_do_not_overlap(arrays):
    layout = BufferLayout.of(named(arrays))
    end = 0
    for entry, shape in zip(layout.entries, arrays, strict=True):
        assert entry.offset % ALIGNMENT == 0
        assert entry.offset - end in range(ALIGNMENT), "no overlap, no needless gap"
        assert entry.shape == shape
        end = entry.stop
    assert layout.size % ALIGNMENT == 0
    assert layout.size - end in range(ALIGNMENT)


@examples(60)
@given(shapes)
def test_the_views_cover_the_buffer_except_for_alignment_gaps(arrays):
    layout = BufferLayout.of(named(arrays))
    buffer, tensor = np.zeros(layout.size, np.float32), torch.zeros(layout.size)
    for number, (view, torch_view) in enumerate(
        zip(layout.views(buffer).values(), layout.views(tensor).values(), strict=True), start=1
    ):
        view[...] = number
        torch_view.fill_(number)
    for number, entry in enumerate(layout.entries, start=1):
        assert (buffer[entry.offset : entry.stop] == number).all()
    assert np.count_nonzero(buffer) == sum(int(np.prod(shape)) for shape in arrays)
    np.testing.assert_array_equal(buffer, tensor)


@examples(40)
@given(policy_specs(), st.booleans())
def test_published_parameters_have_the_layout_of_the_start_of_the_flat_buffer(spec, shared):
    flat = FlatParameters(actor_critic(spec, shared=shared)).layout.entries
    published = published_layout(spec).entries
    trained = len(parameter_shapes(spec))
    assert published[:trained] == flat[:trained]
    statistics = ["observation_mean", "observation_scale"] if spec.normalize else []
    assert [entry.name for entry in published[trained:]] == statistics
    assert all(entry.name.startswith("critic") for entry in flat[trained:])


@examples(60)
@given(policy_specs() | sac_specs())
def test_a_policy_spec_is_unchanged_by_json(spec):
    assert read_spec(json.loads(json.dumps(spec.to_json()))) == spec


def test_the_dtype_of_env_actions_is_unchanged_by_json():
    spec = policy_spec("switches")
    assert read_spec(json.loads(json.dumps(spec.to_json()))).action.env_dtype == "int8"


def test_a_spec_saved_without_a_uniform_start_has_none():
    data = policy_spec("discrete").to_json()
    del data["uniform_start"]
    assert read_spec(data) == policy_spec("discrete")


@pytest.mark.parametrize("action", ["discrete", "box", "tree"])
def test_a_spec_from_a_file_has_the_previous_inputs_of_its_own_actions(action):
    spec = policy_spec(action)
    leaves = previous_leaves(spec.action, action=True, reward=True)
    spec = replace(spec, observation=(*spec.observation, *leaves))
    assert read_spec(spec.to_json()) == spec
    for number, leaf in enumerate(leaves, 1):
        wrong = replace(leaf, shape=(*leaf.shape, 1))
        data = replace(spec, observation=(*spec.observation[:number], wrong, *spec.observation[number + 1 :])).to_json()
        with pytest.raises(ConfigError, match=f"{leaf.name} is not the previous action or reward of a policy with its"):
            read_spec(data)


@examples(40)
@given(sac_specs())
def test_the_flag_of_uniform_actions_is_the_last_entry(spec):
    names = [entry.name for entry in published_layout(spec).entries]
    statistics = ["observation_mean", "observation_scale"] if spec.normalize else []
    assert names == [*(name for name, _ in parameter_shapes(spec)), *statistics, "uniform"]
    assert published_layout(spec).entries[-1].shape == (1,)


@pytest.mark.parametrize(("squashed", "uniform"), [(False, False), (True, False), (False, True)])
def test_log_probabilities_are_recorded_unless_an_action_may_be_uniform(squashed, uniform):
    spec = replace(policy_spec("box", squashed=squashed), uniform_start=uniform)
    assert spec.records_log_prob is not uniform
