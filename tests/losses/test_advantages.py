from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.reference.advantages import by_column, gae_column, td_column, vtrace_column
from tests.support.thorough import examples

from offbeat.losses.advantages import generalized_advantages, vtrace

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

fractions = st.sampled_from([0.0, 0.3, 0.9, 1.0])


class Rows(NamedTuple):
    """A batch's rows, [T, B] each, values [T + 1, B]."""

    rewards: NDArray[np.float64]
    values: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    no_decision: NDArray[np.bool_]

    def tensors(self) -> Tensors:
        rewards, values, terminated, truncated, valid, no_decision = map(torch.from_numpy, self)
        return rewards, values, terminated, truncated, valid, no_decision


def no_decision_rows(terminated: Any, truncated: Any, valid: Any) -> NDArray[np.bool_]:
    """Return the invalid rows that follow no end, for columns in which reset rows do. Row 0 is a reset row."""
    no_decision = ~valid
    no_decision[0] = False
    no_decision[1:] &= ~(terminated | truncated)[:-1]
    return np.asarray(no_decision)


@st.composite
def rows(draw: st.DrawFn, with_skips: bool = True) -> Rows:
    """Draw rows: a reset row follows each truncation and some terminations; others have a decision or none."""
    steps, columns = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    flags = np.zeros((3, steps, columns), bool)
    kinds = st.tuples(
        st.sampled_from(["", "", "terminated", "truncated", "both"]),
        st.sampled_from([True, True, False] if with_skips else [True]),
    )
    for b in range(columns):
        ended = reset = draw(st.booleans())
        for t in range(steps):
            end, valid = ("", False) if reset else draw(kinds)
            valid |= ended and not reset
            flags[:, t, b] = end in {"terminated", "both"}, end in {"truncated", "both"}, valid
            ended = bool(end)
            reset = end == "truncated" or (ended and draw(st.booleans()))
    rewards, values = random.normal(size=(steps, columns)), random.normal(size=(steps + 1, columns))
    return Rows(rewards, values, flags[0], flags[1], flags[2], no_decision_rows(*flags))


@st.composite
def rows_of_agents(draw: st.DrawFn) -> Rows:
    """Draw rows of agents that are absent for any number of rows, wait for their turn, and end in any row."""
    steps, columns = draw(st.integers(1, 14)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    flags = np.zeros((4, steps, columns), bool)
    kinds = st.tuples(st.sampled_from(["", "", "", "terminated", "truncated"]), st.sampled_from(["decides", "waits"]))
    for b in range(columns):
        present, cut = draw(st.booleans()), st.integers(0, 9)
        for t in range(steps):
            if not present:  # the last reset row is followed by an episode, which may start with a wait
                present = draw(st.sampled_from([True, False]))
                continue
            if t and draw(cut) == 0:  # an episode that was cut: a reset row that follows no end
                continue
            end, kind = draw(kinds)
            flags[:, t, b] = end == "terminated", end == "truncated", kind == "decides", kind == "waits"
            present = not end or (end == "terminated" and draw(st.booleans()))
    return Rows(random.normal(size=(steps, columns)), random.normal(size=(steps + 1, columns)), *flags)


def log_ratios(batch: Rows, seed: int) -> NDArray[np.float64]:
    """Ratios on both sides of 1; NaN where there was no decision, as a policy may well report there."""
    drawn = np.random.default_rng(seed).normal(scale=0.7, size=batch.rewards.shape)
    return np.where(batch.valid, drawn, np.nan)


@examples(300)
@given(rows(), fractions, fractions)
def test_gae_is_the_discounted_sum_of_td_errors_within_each_episode(batch: Rows, gamma, gae_lambda):
    result = generalized_advantages(*batch.tensors(), gamma=gamma, gae_lambda=gae_lambda)
    expected = by_column(gae_column, *batch, gamma=gamma, gae_lambda=gae_lambda)
    np.testing.assert_allclose(torch.stack(result), expected, atol=1e-12)


@examples(300)
@given(
    rows(),
    st.integers(0, 99),
    st.fixed_dictionaries(
        {
            "gamma": fractions,
            "gae_lambda": fractions,
            "rho_clip": st.sampled_from([0.5, 1.0, 2.0]),
            "c_clip": st.sampled_from([0.7, 1.0, 1.5]),
        }
    ),
)
def test_vtrace_equals_the_sum_of_the_paper_within_each_episode(batch: Rows, seed, chosen):
    log_ratio = log_ratios(batch, seed)
    result = vtrace(torch.from_numpy(log_ratio), *batch.tensors(), **chosen)
    expected = by_column(vtrace_column, log_ratio, *batch, **chosen)
    np.testing.assert_allclose(torch.stack(result), expected, atol=1e-12)


@examples(300)
@given(rows_of_agents(), st.integers(0, 99), fractions, fractions)
def test_targets_with_marked_rows_equal_the_sums_within_each_episode_for_absent_and_waiting_agents(
    batch: Rows, seed, gamma, gae_lambda
):
    log_ratio = log_ratios(batch, seed)
    settings: dict[str, Any] = {"gamma": gamma, "gae_lambda": gae_lambda}
    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in batch._asdict().items()}
    gae = generalized_advantages(**tensors, **settings)
    np.testing.assert_allclose(torch.stack(gae), by_column(gae_column, *batch, **settings), atol=1e-12)
    clips: dict[str, Any] = {"rho_clip": 1.0, "c_clip": 0.8}
    corrected = vtrace(torch.from_numpy(log_ratio), **tensors, **settings, **clips)
    expected = by_column(vtrace_column, log_ratio, *batch, **settings, **clips)
    np.testing.assert_allclose(torch.stack(corrected), expected, atol=1e-12)


@examples(100)
@given(rows(), fractions)
def test_on_policy_vtrace_equals_gae_for_any_lambda(batch: Rows, gamma):
    on_policy = torch.zeros(batch.rewards.shape, dtype=torch.float64)
    for gae_lambda in (0.0, 0.95, 1.0):
        expected = generalized_advantages(*batch.tensors(), gamma=gamma, gae_lambda=gae_lambda)
        torch.testing.assert_close(vtrace(on_policy, *batch.tensors(), gamma=gamma, gae_lambda=gae_lambda), expected)


@examples(100)
@given(rows(), fractions)
def test_lambda_zero_gives_the_one_step_targets(batch: Rows, gamma):
    result = generalized_advantages(*batch.tensors(), gamma=gamma, gae_lambda=0.0)
    np.testing.assert_allclose(result.value_targets, by_column(td_column, *batch, gamma=gamma), atol=1e-12)


@examples(100)
@given(rows(with_skips=False))
def test_gamma_zero_gives_the_reward_as_target(batch: Rows):
    targets = generalized_advantages(*batch.tensors(), gamma=0.0, gae_lambda=0.9).value_targets.numpy()
    np.testing.assert_allclose(targets[batch.valid], batch.rewards[batch.valid])


@examples(100)
@given(rows(), st.integers(0, 99))
def test_rows_without_a_decision_have_zero_advantage_and_reset_rows_their_own_value_as_target(batch: Rows, seed):
    resets = ~batch.valid & ~batch.no_decision
    log_ratio = torch.from_numpy(log_ratios(batch, seed))
    for result in (
        generalized_advantages(*batch.tensors(), gamma=0.9, gae_lambda=0.95),
        vtrace(log_ratio, *batch.tensors(), gamma=0.9),
    ):
        assert not result.advantages.numpy()[~batch.valid].any()
        np.testing.assert_array_equal(result.value_targets.numpy()[resets], batch.values[:-1][resets])


def column(
    rewards: Sequence[float] | NDArray[np.float64],
    values: Sequence[float] | NDArray[np.float64],
    terminated: Sequence[int] = (),
    truncated: Sequence[int] = (),
    invalid: Sequence[int] = (),
) -> Tensors:
    """One column from lists, with the numbers of the rows that are flagged."""
    flags = np.zeros((3, len(rewards), 1), bool)
    for flag, numbers in zip(flags, (terminated, truncated, invalid), strict=True):
        flag[list(numbers)] = True
    masks = flags[0], flags[1], ~flags[2]
    return Rows(np.array(rewards)[:, None], np.array(values)[:, None], *masks, no_decision_rows(*masks)).tensors()


def one_step_targets(batch: Tensors) -> list[float]:
    """Return the one-step targets of a column, with gamma 0.5."""
    targets: list[float] = generalized_advantages(*batch, 0.5, 0.0).value_targets[:, 0].tolist()
    return targets


def test_a_truncated_row_bootstraps_from_the_reset_row_and_a_terminated_one_from_nothing():
    rewards, values = [1.0, 0.0, 1.0], [2.0, 10.0, 3.0, 4.0]
    truncated = column(rewards, values, truncated=[0], invalid=[1])
    terminated = column(rewards, values, terminated=[0], truncated=[0], invalid=[1])
    assert one_step_targets(truncated) == [1.0 + 0.5 * 10.0, 10.0, 1.0 + 0.5 * 4.0]
    assert one_step_targets(terminated) == [1.0, 10.0, 1.0 + 0.5 * 4.0]


@pytest.mark.parametrize("end", [{"terminated": [0]}, {"truncated": [0]}])
def test_an_episode_is_not_affected_by_the_next_one(end):
    quiet = column([1.0, 0.0, 1.0], [2.0, 10.0, 3.0, 4.0], **end, invalid=[1])
    loud = column([1.0, 0.0, 1e6], [2.0, 10.0, -1e6, 1e6], **end, invalid=[1])
    on_policy = torch.zeros(3, 1)
    for function in (partial(generalized_advantages, gae_lambda=1.0), partial(vtrace, on_policy)):
        assert function(*quiet, gamma=0.5).advantages[0] == function(*loud, gamma=0.5).advantages[0]


def test_the_reward_of_a_no_decision_row_belongs_to_the_last_decision_without_a_discount():
    batch = column([1.0, 5.0, 7.0, 2.0], [3.0, 99.0, 99.0, 4.0, 6.0], invalid=[1, 2])
    last = 2.0 + 0.5 * 6.0 - 4.0
    first = 1.0 + 0.5 * (5.0 + 7.0 + 4.0) - 3.0
    assert one_step_targets(batch)[0] == 1.0 + 0.5 * (5.0 + 7.0 + 4.0)
    assert generalized_advantages(*batch, 0.5, 1.0).advantages[:, 0].tolist() == [
        first + 0.5 * last,
        0.0,
        0.0,
        last,
    ]


def test_an_invalid_first_row_is_treated_as_a_reset_row():
    batch = column([5.0, 1.0], [3.0, 2.0, 4.0], invalid=[0])
    assert generalized_advantages(*batch, 0.5, 1.0).value_targets[:, 0].tolist() == [3.0, 1.0 + 0.5 * 4.0]


def test_thousands_of_rows_agree_with_the_recursion():
    random = np.random.default_rng(0)
    batch = column(random.normal(size=2048), random.normal(size=2049))
    result = generalized_advantages(*batch, 0.99, 0.95).advantages[:, 0].numpy()
    rewards, values = batch[0][:, 0].numpy(), batch[1][:, 0].numpy()
    later = 0.0
    for t in reversed(range(2048)):
        later = rewards[t] + 0.99 * values[t + 1] - values[t] + 0.99 * 0.95 * later
        assert abs(result[t] - later) < 1e-10


def test_targets_have_no_gradient_and_no_argument_is_modified():
    batch = column([1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], terminated=[1], invalid=[0, 2])
    before = [array.clone() for array in batch]
    log_ratio = torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    values = batch[1].requires_grad_()
    results = (
        *generalized_advantages(*batch, 0.9, 0.9),
        *vtrace(log_ratio, *batch, 0.9),
    )
    assert not any(result.requires_grad for result in results)
    assert all(torch.equal(array, copy) for array, copy in zip(batch, before, strict=True))
    assert values.grad is None


@pytest.mark.parametrize(
    ("name", "replacement", "words"),
    [
        ("rewards", np.zeros((3, 1)), r"rewards is a ndarray, .*torch.as_tensor\(rewards\)"),
        ("valid", np.ones((3, 1), bool), r"valid is a ndarray, .*torch.as_tensor\(valid\)"),
        ("rewards", torch.zeros(3), r"rewards is \[3\].*\[T, B\]"),
        ("values", torch.zeros(3, 1), r"values is \[3, 1\].*needs values of \[4, 1\]"),
        ("terminated", torch.zeros(3, 2).bool(), r"terminated is \[3, 2\].*\[3, 1\]"),
        ("truncated", torch.zeros(3, 1), r"truncated is torch.float32.*truncated.bool\(\)"),
        ("valid", torch.ones(2, 1).bool(), r"valid is \[2, 1\].*\[3, 1\]"),
        ("no_decision", torch.zeros(3, 1), r"no_decision is torch.float32.*no_decision.bool\(\)"),
        ("log_ratio", torch.zeros(3), r"log_ratio is \[3\].*\[3, 1\]"),
    ],
)
def test_mismatched_types_shapes_and_masks_are_refused_with_their_names(name, replacement, words):
    batch = column([1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0])
    arguments: dict[str, Any] = dict(zip(Rows._fields, batch, strict=True)) | {"log_ratio": torch.zeros(3, 1)}
    arguments[name] = replacement
    with pytest.raises((TypeError, ValueError), match=words):
        vtrace(**arguments, gamma=0.9)
    del arguments["log_ratio"]
    if name != "log_ratio":
        with pytest.raises((TypeError, ValueError), match=words):
            generalized_advantages(**arguments, gamma=0.9, gae_lambda=0.9)
