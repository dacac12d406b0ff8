"""What actors and inference workers share: the requests with their answers, and a board of counters.

An actor writes the inputs of a request, then its version, then its number, and rings the bell of its worker. The worker
writes the results, then the number, and rings the bell of the actor. A request is not changed until it is answered, so
a worker that is started again can answer it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offbeat.core.memory_shape import Slab
from offbeat.core.policy_names import policy_key
from offbeat.core.types import Array, Tree
from offbeat.models.network_arrays import input_arrays, result_arrays
from offbeat.runtime.board import LINE, Board, board_slabs
from offbeat.workers.inference import rows_of

if TYPE_CHECKING:
    from offbeat.runtime.plan import Plan, PolicyPlan

NUMBER, VERSION = 0, 1
"""Places in the line of a request: its number, and the version of the weights."""


def inference_slabs(plan: Plan) -> list[Slab]:
    """Return the arrays that actors and inference workers share."""
    actors, groups, workers = plan.runtime.actors, plan.runtime.env_groups, plan.inference_groups.workers
    lines = [
        ("board/starts", (workers, LINE), "int64"),
        *(("board/served", (workers, LINE), "int64"), ("board/busy", (workers, LINE), "float64")),
        *((f"board/{name}", (actors, groups, LINE), "int64") for name in ("asked", "answered")),
    ]
    arrays = [
        (_array_of(policy, kind, array.name), (actors, groups, _rows(plan, policy), *array.shape), array.dtype)
        for policy in plan.policies
        for kind, arrays in (("inputs", input_arrays(policy.spec)), ("results", result_arrays(policy.spec)))
        for array in arrays
    ]
    return [*board_slabs(workers), *lines, *arrays]


def _array_of(policy: PolicyPlan, kind: str, name: str) -> str:
    return policy_key(policy.name, f"{kind}/{name}")


def _rows(plan: Plan, policy: PolicyPlan) -> int:
    """Return the rows of a policy in a request."""
    return rows_of(policy.env_spec.columns, plan.runtime.env_groups)


class InferenceBoard(Board):
    """The board of the inference workers, and the requests."""

    def __init__(self, arrays: Tree, plan: Plan) -> None:
        """Use the arrays of an arena with `inference_slabs` of this plan."""
        super().__init__(arrays, plan.inference_groups.workers)
        self.starts = arrays["board/starts"]
        """[workers, LINE]: how often each worker was started. Written by the parent."""
        self.served = arrays["board/served"]
        """[workers, LINE]: first the number of requests that each worker has answered. Written by the worker."""
        self.busy = arrays["board/busy"]
        """[workers, LINE]: first the seconds that each worker has computed. Written by the worker."""
        self.asked = arrays["board/asked"]
        """[actors, env groups, LINE]: number and version of the last request. Written by the actor."""
        self.answered = arrays["board/answered"]
        """[actors, env groups, LINE]: first the number of the last answer. Written by the worker."""
        self.inputs = self._of_policies(arrays, plan, "inputs")
        """The inputs of each policy, by name, [actors, env groups, n, *shape]: see `network_arrays`."""
        self.results = self._of_policies(arrays, plan, "results")
        """The results of each policy, in the same way."""

    @staticmethod
    def _of_policies(arrays: Tree, plan: Plan, kind: str) -> Sequence[Mapping[str, Array]]:
        prefixes = [_array_of(policy, kind, "") for policy in plan.policies]
        return [
            {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            for prefix in prefixes
        ]
