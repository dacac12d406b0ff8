"""The collective of torch.distributed, with Gloo and a process for each learner."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from tests.support.runs import CommandResult, Started

from offbeat.core.errors import RunFailed
from offbeat.memory.arena import private_arena
from offbeat.metrics.timings import Timings
from offbeat.runtime.learners import distributed
from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
from offbeat.runtime.learners.distributed import DistributedCollective, host_store, uses_nccl

LEARNER = """
import os, sys
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch
import torch.distributed as dist
from offbeat.metrics.timings import Timings
from offbeat.memory.arena import private_arena
from offbeat.runtime.learners import distributed
from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
from offbeat.runtime.learners.distributed import DistributedCollective, host_store, join_store
distributed.LOST_S = 0.1
rank, learners, shards, lost = map(int, sys.argv[1:5])
port_file = sys.argv[5]
if rank == 0:
    store = host_store(learners)
    open(port_file + ".new", "w").write(str(store.port))
    os.rename(port_file + ".new", port_file)
else:
    while not os.path.exists(port_file):
        pass
    store = join_store(int(open(port_file).read()), learners)
board = LearnersBoard(private_arena(learners_board_slabs(learners)), learners)
side = DistributedCollective(board, rank, shards, "gloo", store, "cpu", lambda: None, Timings(), timeout_s=60.0)
for number, dtype in enumerate([torch.float32, torch.float64, torch.int64, torch.bool, torch.float32]):
    random = torch.Generator().manual_seed(number)
    rows = torch.randint(-9, 9, (shards, 7 * number), generator=random).to(dtype)
    if rank == lost and number == 3:
        os._exit(9)
    gathered = side.gather(rows[side.own.start : side.own.stop])
    assert gathered.dtype == dtype and torch.equal(gathered, rows)
assert dist.is_initialized()
side.close()
assert not dist.is_initialized()
print("all rows are equal")
"""
NOBODY = -1


def exchanged(learners: int, shards: int, lost: int, folder: Path) -> list[CommandResult]:
    """Let learners exchange rows, each in a process; `lost`: the rank of one that ends in the middle."""
    started = []
    with ExitStack() as ends:
        for rank in range(learners):
            own = folder / str(rank)
            own.mkdir()
            one = Started([str(part) for part in (rank, learners, shards, lost, folder / "port")], own, code=LEARNER)
            ends.callback(one.process.kill)
            started.append(one)
        return [one.end() for one in started]


@pytest.mark.parametrize(("learners", "shards"), [(2, 3), (3, 3)])
def test_each_learner_gathers_the_rows_of_all_shards(learners, shards, tmp_path):
    for said in exchanged(learners, shards, NOBODY, tmp_path):
        assert said.out == "all rows are equal\n", said.err


def test_an_exchange_with_a_learner_that_is_lost_fails_and_says_so(tmp_path):
    first, last = exchanged(2, 2, 1, tmp_path)
    assert last.code == 9
    assert "learner 0 could not exchange rows with the others (gloo)" in first.err


ONE_FINISHES_EARLY = """
import os, signal, sys
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
from functools import partial
import torch
from offbeat.core.errors import RunFailed
from offbeat.memory.arena import SharedArena
from offbeat.metrics.timings import Timings
from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
from offbeat.runtime.learners.distributed import DistributedCollective, host_store, join_store
from offbeat.runtime.learners.processes import require_same_exchanges
board = LearnersBoard(SharedArena(learners_board_slabs(2)).arrays, 2)
board.requested[0] = 1
store = host_store(2)
other, made = os.fork(), int(sys.argv[1])
rank = 0 if other else 1
check = partial(require_same_exchanges, board) if rank == 0 else lambda: None
store = store if rank == 0 else join_store(store.port, 2)
side = DistributedCollective(board, rank, 2, "gloo", store, "cpu", check, Timings(), timeout_s=10.0)
try:
    for _ in range(made + 1 - rank):
        side.gather(torch.zeros(1, 4))
    board.next[rank][0] = 1
    signal.pause()
except RunFailed as error:
    print(error, flush=True)
finally:
    os.kill(other or os.getpid(), signal.SIGKILL)
os._exit(0)
"""


@pytest.mark.parametrize("made", [0, 2])
def test_a_learner_that_waits_for_one_that_has_made_fewer_exchanges_ends_with_the_reason(made, tmp_path):
    said = Started([str(made)], tmp_path, code=ONE_FINISHES_EARLY).end()
    assert f"a different number of times by the end of learning step 0 ({made + 1}, {made})" in said.out, said.err


def test_a_process_group_that_the_program_sets_up_later_is_neither_used_nor_closed(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(distributed, "LOST_S", 0.0)
    board = LearnersBoard(private_arena(learners_board_slabs(1)), 1)
    side = DistributedCollective(board, 0, 1, "gloo", host_store(1), "cpu", lambda: None, Timings(), timeout_s=10.0)
    dist.init_process_group("gloo", store=host_store(1), rank=0, world_size=1)
    try:
        with pytest.raises(RunFailed, match=r"learner 0 could not exchange rows .* default process group twice"):
            side.gather(torch.zeros(1, 4))
        side.close()
        assert dist.is_initialized()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def test_a_learner_that_cannot_start_the_thread_of_its_connection_says_which_limit_to_raise():
    board = LearnersBoard(private_arena(learners_board_slabs(2)), 2)
    store: Any = object()
    side = DistributedCollective(board, 1, 2, "gloo", store, "cpu", lambda: None, Timings(), timeout_s=1.0)
    at_the_limit = patch.object(Thread, "start", side_effect=RuntimeError("can't start new thread"))
    with at_the_limit, pytest.raises(RunFailed, match=r"'offbeat connection of learner 1' cannot be .*ulimit -u"):
        side.gather(torch.zeros(1, 4))
    side.close()


def test_nccl_is_used_for_different_gpus_only(monkeypatch):
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert uses_nccl(("cuda:0", "cuda:1"))
    assert not uses_nccl(("cuda:0", "cuda:0"))
    assert not uses_nccl(("cpu", "cpu"))
    assert not uses_nccl(("cuda:0",))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)  # the program has a group of its own
    assert not uses_nccl(("cuda:0", "cuda:1"))
