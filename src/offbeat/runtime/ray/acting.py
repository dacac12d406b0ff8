"""The ray runtime: actors on a Ray cluster, which exchange messages with the learner in the main process.

The actors do the same as in the other runtimes; only their link differs. The dispatcher gives them the tickets that the
pace allows and writes their rows into the learner's slots; the supervisor restarts those that were lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from offbeat.config.ray import runtime_env_of
from offbeat.metrics.text import counted
from offbeat.metrics.timings import MESSAGE_WAIT
from offbeat.runtime.children.child import search_path
from offbeat.runtime.children.launch import sent_code
from offbeat.runtime.children.supervisor import Supervisor
from offbeat.runtime.gated import GatedActing
from offbeat.runtime.loop.paced import PacedRuntime
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.training_loop import TrainingLoop
from offbeat.runtime.message_traffic import MessageTraffic, Network
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import ActorSnapshot, Plan
from offbeat.runtime.ray.cluster import Cluster, resources_text
from offbeat.runtime.ray.connecting import LEAST_STORE, LOCAL, connect
from offbeat.runtime.ray.dispatcher import Dispatcher
from offbeat.runtime.ray.last_words import LastWords
from offbeat.runtime.ray.messages import RemoteLaunch, RowMessage
from offbeat.runtime.ray.network import network_of
from offbeat.runtime.ray.place_notice import PlaceNotice
from offbeat.runtime.ray.placement import custom_resources_of, options_of, resources_of
from offbeat.runtime.ray.proxy import CONCURRENCY_GROUP, PLACE_S, ActorProxy
from offbeat.runtime.reporting import Reporting


class RayActing(GatedActing):
    """Actors on a Ray cluster, which a supervisor restarts."""

    def __init__(self, parts: PacedParts, learned: int, reporting: Reporting) -> None:
        plan, runtime = parts.plan, parts.plan.runtime
        self._code = sent_code(plan)  # first: it may raise
        self._resources, self._options = resources_of(runtime), options_of(runtime)
        self._runtime_env = runtime_env_of(runtime)
        self._cluster = _connect(plan, self._resources, self._runtime_env)
        with ExitStack() as made:
            made.callback(self._cluster.close)
            lacks_gpus = self._cluster.is_local and "GPU" in self._resources
            self._cluster.require(self._resources, "an actor", _LOCAL_REMEDY if lacks_gpus else _REMEDY)
            super().__init__(parts, learned, acting_bells=1)
            made.callback(self.gate.discard)
            (bell,), own_bell = self.gate.acting_bells, self.gate.own_bell
            require_store = self._cluster.watch.require_raylet
            self._dispatcher = Dispatcher(
                plan, parts.memory, self.board, bell, own_bell, require_store, self._cluster.logs
            )
            made.pop_all()
        self._supervisor: Supervisor[ActorProxy] = Supervisor(
            self._start, self.board, runtime, reporting, role="actor", work="ticket", changes_result=True
        )
        self._notify = reporting.notify
        self._place_notice, self._refused = PlaceNotice(), 0

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    def start(self, snapshots: Sequence[ActorSnapshot]) -> None:
        self._dispatcher.start()
        self._first_snapshots = dict(enumerate(snapshots))
        self._supervisor.start(len(snapshots), self.watch)

    def _start(self, index: int, attempt: int) -> ActorProxy:
        import ray

        from offbeat.runtime.ray.remote_actor import RemoteActor

        origin, snapshot = self._episodes(index, attempt)
        launch = RemoteLaunch(
            index=index,
            attempt=attempt,
            folder=None if "working_dir" in self._runtime_env else str(Path.cwd()),
            path=tuple(search_path()),
            code=self._code,
            plan=self.plan,
            origin=origin,
            snapshot=snapshot,
            progress=self.memory.progress,
        )
        remote: Any = ray.remote
        actor = remote(concurrency_groups={CONCURRENCY_GROUP: 1})(RemoteActor)
        proxy = ActorProxy(
            index,
            partial(actor.options(**self._options).remote, launch),
            self._cluster,
            self.board.deadlines[index],
            self.plan.runtime.stall_timeout_s,
            self._dispatcher.on_answer,
            self._dispatcher.remove,
        )
        self._dispatcher.add(proxy)
        return proxy

    def watch(self) -> None:
        self._cluster.watch.require()
        self._dispatcher.watch()
        self._supervisor.watch()
        self._notify_if_waiting()

    def _notify_if_waiting(self) -> None:
        """Notify the user of actors whose processes do not run yet, and of commits that were refused.

        Ray does not say whether such an actor has a node.
        """
        if (refused := self._dispatcher.refused) > self._refused:
            self._refused = refused
            self._notify(f"{refused} tickets of replaced actors came too late: they were refused, and acted again")
        if waiting := self._place_notice.due(self._supervisor.processes):
            self._notify(
                f"{waiting} of {counted(self.board.workers, 'actor')} not running yet: starting, or waiting for a node "
                f"with {resources_text(self._resources)} free. The cluster has "
                f"{'; '.join(map(str, self._cluster.nodes()))}. The run waits {PLACE_S / 60:g} minutes"
            )

    def traffic(self) -> MessageTraffic:
        waited_s = sum(seconds[MESSAGE_WAIT] for seconds in self.spent())
        return self._dispatcher.traffic()._replace(waited_s=waited_s)

    def network(self) -> Network:
        return network_of(self._cluster)

    def metrics(self) -> Mapping[str, float]:
        return self._dispatcher.metrics()

    def snapshots(self) -> list[ActorSnapshot]:
        pause = int(self.board.pause[0])

        def watch_and_ask() -> None:
            self.watch()
            for proxy in self._supervisor.processes:
                proxy.ask_snapshot(pause)

        watch_and_ask()
        return self._supervisor.snapshots(pause, watch_and_ask)

    @property
    def waits_for_place(self) -> bool:
        return not all(proxy.placed for proxy in self._supervisor.processes)

    def close(self) -> None:
        with ExitStack() as closing:  # also if a step fails
            closing.callback(self._discard_gate)
            closing.callback(self._cluster.close)
            closing.callback(self._dispatcher.end)
            if not self._cluster.watch.lost:  # else Ray ends the actors
                closing.callback(self._supervisor.close)
            self.gate.close()
            for proxy in self._supervisor.processes:
                proxy.close()

    def _discard_gate(self) -> None:
        if self._dispatcher.has_ended:  # a thread that hangs may still ring a bell
            self.gate.discard()


_REMEDY = "pass a smaller ray_cpus, ray_gpus or ray_resources, or add such a node"
_LOCAL_REMEDY = "pass a smaller ray_gpus or leave it out, or pass the ray_address of a cluster with such a node"
"""For a Ray that was started on this machine: it has all that the actors need, except for GPUs."""


def _connect(plan: Plan, resources: Mapping[str, float], runtime_env: Mapping[str, Any]) -> Cluster:
    """Connect to the cluster of a run, or start Ray on this machine."""
    runtime = plan.runtime
    store = runtime.ray_object_store_mb
    return connect(
        LOCAL if runtime.ray_address is None else runtime.ray_address,
        local_cpus=runtime.actors * resources.get("CPU", 0.0),
        local_resources={name: runtime.actors * amount for name, amount in custom_resources_of(runtime).items()},
        object_store_memory=_needed_store(plan) if store is None else store * 10**6,
        runtime_env=runtime_env,
    )


def _needed_store(plan: Plan) -> int:
    """Return the bytes of the object store that the messages of a run need: twice those in flight, and the weights."""
    rows = sum(_slot_bytes(RowMessage(policy)) for policy in plan.policies if policy.trained)
    weights = sum(4 * policy.layout.size for policy in plan.policies)
    return LEAST_STORE + 2 * (plan.pace.in_flight * rows + (plan.pace.versions + 1) * weights)


def _slot_bytes(rows: RowMessage) -> int:
    return sum(array.nbytes for array in rows.new_slot().values())


class RayRuntime(PacedRuntime):
    """The runtime, whose process can be ended by Ray."""

    def loop(self, parts: PacedParts, learned: int, services: RunServices, closing: ExitStack) -> TrainingLoop:
        closing.callback(LastWords(services.directory).end)
        return super().loop(parts, learned, services, closing)


RUNTIME = RayRuntime(RayActing)
