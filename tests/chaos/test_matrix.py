"""Every algorithm and every feature meets every mishap; all cells of the matrix in all of them: `make exactness`.

The check `same_bits` is made in tests/runtime/test_exactness.py.
"""

from __future__ import annotations

import pytest
from tests.sample_envs.faulty_envs import ENVS, WORLDS
from tests.support.checks import CHECKS
from tests.support.matrix import ALGORITHMS, FEATURES, IN_CI, Case, cases
from tests.support.self_checking_rows import FEATURE_CHECKS
from tests.support.thorough import thorough

from offbeat.config.registry import ALGORITHMS as KNOWN
from offbeat.core.errors import ConfigError

FIRST = {
    ("actor_killed", "a2c-vector"),
    ("actor_killed", "dqn-recurrent"),
    ("run_killed", "ppo-masks"),
    ("interrupted", "impala-image"),
    ("env_raises", "td3-box"),
    ("run_killed", "crossq-box"),
    ("actor_killed", "ppo-league"),
    ("run_killed", "sac-policies"),
    ("actor_killed", "pearl-tasks"),
}
"""The mishaps that `make test` takes."""
CELLS = [(check, case) for check, of_check in IN_CI.items() if check != "same_bits" for case in of_check]


def is_first(check: str, case: Case) -> bool:
    return (check, str(case)) in FIRST


@pytest.mark.parametrize(
    ("check", "case"),
    [*filter(lambda cell: is_first(*cell), CELLS), *thorough(*(cell for cell in CELLS if not is_first(*cell)))],
    ids=str,
)
def test_a_run_is_complete_and_can_be_resumed_after_a_fault(tmp_path, check, case):
    CHECKS[check](case, tmp_path)


def test_the_short_tests_have_a_fault_for_every_algorithm():
    cells = {(check, str(case)): case for check, case in CELLS}
    assert {cells[key].algorithm for key in FIRST} == set(ALGORITHMS)
    assert {check for check, _ in FIRST} == set(CHECKS) - {"same_bits"}


def test_the_matrix_has_every_algorithm_and_every_feature():
    assert set(ALGORITHMS) == set(KNOWN)
    assert FEATURES.keys() == FEATURE_CHECKS.keys()
    assert {feature.env for feature in FEATURES.values()} == {*ENVS, *WORLDS}


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_runs_with_every_algorithm(check):
    assert {case.algorithm for case in IN_CI[check]} == set(ALGORITHMS)
    assert set(IN_CI[check]) <= set(cases())


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_is_in_more_than_half_of_the_checks(feature):
    checks = [check for check, of_check in IN_CI.items() if any(case.feature == feature for case in of_check)]
    assert "same_bits" in checks
    assert len(checks) > len(CHECKS) / 2


@pytest.mark.parametrize(
    ("algorithm", "feature", "says"),
    [(algorithm, feature, says) for feature, asked in FEATURES.items() for algorithm, says in asked.refused.items()],
)
def test_an_unsupported_cell_is_refused_with_the_reason(tmp_path, algorithm, feature, says):
    """Once it is not, it leaves `refused`, and the matrix has a cell more."""
    with pytest.raises(ConfigError, match=says):
        Case(algorithm, feature).train(tmp_path / "run")
