from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offbeat.core.types import Array, Leaf, Tree
from offbeat.models.stacks import Stacks

IMAGE, OTHER = Leaf("observation/image", (2, 3), "uint8"), Leaf("observation/speed", (1,), "float32")


def slow_stack(episode: list[Array], stack: int) -> Array:
    """The last frames of an episode; its first one as often as there are not so many."""
    return np.stack([episode[max(0, len(episode) - stack + i)] for i in range(stack)])


@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_stacks_have_the_last_frames_of_an_episode_padded_with_its_first_frame(stack, columns, seed):
    random = np.random.default_rng(seed)
    image = Leaf(IMAGE.name, IMAGE.shape, IMAGE.dtype, stack=stack)
    stacks = Stacks([image, OTHER], columns)
    episodes: list[list[Array]] = [[] for _ in range(columns)]
    groups = [slice(0, columns // 2), slice(columns // 2, columns)]
    for step in range(20):
        frames = random.integers(256, size=(columns, *image.shape), dtype=np.uint8)
        speed = random.normal(size=(columns, 1)).astype(np.float32)
        begins = np.full(columns, step == 0) | (random.random(columns) < 0.3)
        for column in range(columns):
            episodes[column] = [frames[column]] if begins[column] else [*episodes[column], frames[column]]
        for group in groups:
            now: Tree = {image.name: frames[group], OTHER.name: speed[group]}
            stacks.push(now, begins[group], group)
            seen = stacks.with_stacks(now, group)
            assert seen[OTHER.name] is now[OTHER.name]
            expected = [slow_stack(episode, stack) for episode in episodes[group]]
            assert np.array_equal(seen[image.name], np.reshape(expected, (len(expected), *image.stacked_shape)))
        np.testing.assert_array_equal(stacks.age, [min(len(episode), stack) - 1 for episode in episodes])
        if step == 10:
            kept = stacks.state()
            stacks.reset({image.name: 255 - frames})  # the state must not change meanwhile
            stacks = Stacks([image, OTHER], columns)
            stacks.restore(kept)
        older = np.stack([slow_stack(episode, stack)[:-1] for episode in episodes], axis=1)
        np.testing.assert_array_equal(stacks.older_frames(image.name), older)


def test_without_stacked_leaves_observations_are_unchanged():
    stacks, now = Stacks([IMAGE, OTHER], 2), {IMAGE.name: np.zeros((2, 2, 3), np.uint8)}
    stacks.reset(now)
    assert stacks.with_stacks(now) == now
    assert stacks.names == []
