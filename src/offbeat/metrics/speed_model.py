"""How fast a run can be, computed from the costs of acting and learning and from its topology.

The bottleneck report, the auto layout and `offbeat bench` all use this model. There are three kinds of runtimes (see
`config/runtimes.py`):

- in order: acting and learning follow each other, so their times add up;
- overlapped: actors act while the learner learns, so the slowest part sets the speed;
- lock-free: each worker acts and learns, so the number of workers or of cores sets the speed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offbeat.config.runtimes import RuntimeEntry

LAG_MARGIN = 1e-6
"""Relative differences of speeds below this are rounding errors."""


@dataclass(frozen=True)
class Topology:
    """The actors and the learner, or the workers, of a run, and the cores that they share."""

    runtime: RuntimeEntry
    actors: int
    """Number of actors; with lock-free learning, of workers, which act and learn."""
    learner_threads: int
    """Threads of each learner; with lock-free learning, of each worker."""
    cores: int
    """Cores that the run may use."""
    max_lag: int
    """How far actors may be ahead of the learner: in learning steps, with a replay in tickets."""
    lag_flag: str = "--max-lag"
    """The flag that sets `max_lag`."""
    inference_workers: int = 0
    """Number of inference workers; 0: actors compute the networks themselves."""
    env_groups: int = 1
    """Env groups of an actor."""
    learners: int = 1
    """Learners that share each update, on devices of their own."""
    passes: int = 1
    """K, learning steps that use each batch."""
    resident_batches: int = 1
    """N, batches that are used in turn, K times: a group."""

    @property
    def learning_threads(self) -> int:
        """Threads of all learners together."""
        return self.learners * self.learner_threads

    @property
    def has_too_many_workers(self) -> bool:
        """Whether the workers have more threads than there are cores."""
        return self.actors * self.learner_threads > self.cores

    @property
    def useful_workers(self) -> int:
        """The number of workers that the cores can run at the same time, at least 1."""
        return max(1, self.cores // self.learner_threads)


@dataclass(frozen=True)
class SpeedModel:
    """Limits on the speed of a run that follow from its costs and its topology.

    All costs are in microseconds per env step. Limits are in env steps per second. `gain_max` and `cores_used` depend
    on ratios of costs only, so any unit of time may be used for them.
    """

    topology: Topology
    acting: float
    """Time that one actor takes to act, env included."""
    learning: float
    """Time that the learner takes to learn, with all its threads; several learners, which share the work, take it at
    the same time."""
    acting_cpu: float
    """CPU time of acting, summed over threads, those of inference workers included."""
    learning_cpu: float
    """CPU time of learning, summed over threads."""
    inference: float = 0.0
    """Time that an inference worker takes to compute the networks; 0 without inference workers."""
    loading: float = 0.0
    """The part of `learning` that a thread of the learner does beside it (`load_ahead`); 0 without such a thread."""
    messages: float = 0.0
    """Time that the main process takes to hand out tickets and to receive their rows as messages; 0 where actors share
    its memory."""
    network: float = 0.0
    """Time in which the network connection of the main process sends weights or receives rows."""
    round_trip: float = 0.0
    """Time that an actor waits for messages and does not act; 0 where it gets its next ticket while it still acts."""

    @classmethod
    def from_wall_times(cls, topology: Topology, acting: float, learning: float) -> SpeedModel:
        """Return the model of a run whose CPU times are unknown: each thread counts as busy all the time."""
        return cls(topology, acting, learning, acting, topology.learning_threads * learning)

    def with_ideal_learner(self) -> SpeedModel:
        """Return the model with a learner whose threads never wait: they divide its CPU time evenly.

        The time that a lock-free worker takes to learn stays as it was measured.
        """
        if self.topology.runtime.workers_learn:
            return self
        return replace(self, learning=self.learning_cpu / self.topology.learning_threads)

    # --- env steps per second ---

    @property
    def one_core_sps(self) -> float:
        """Upper bound on the env steps per second on one core, for any schedule."""
        return _per_second(self._total_cpu)

    @property
    def machine_sps(self) -> float:
        """Upper bound on the env steps per second on all cores, for any schedule."""
        return _per_second(self._total_cpu / self.topology.cores)

    @property
    def serial_sps(self) -> float:
        """Env steps per second if one actor and the learner take turns."""
        return _per_second(self._in_turn)

    @property
    def bounds(self) -> dict[str, float]:
        """Upper bounds on the env steps per second, by the name of the part that sets each.

        Overlapped: 'machine' (all cores), 'actors', 'learner', with inference workers 'inference', and with actors on
        other machines 'messages' and 'network'. In order: 'actors' and 'learner', each as if it were the only one to
        take time. Lock-free: 'cores' and 'workers'.
        """
        return {name: _per_second(time) for name, time in self._busy_times().items()}

    @property
    def bound_by(self) -> str:
        """The name of the smallest bound; 'lag' where the runtime could overlap, but max_lag does not allow enough."""
        if self._max_lag_forbids_overlap or self.attainable_sps < (1 - LAG_MARGIN) * self.limit_sps:
            return "lag"
        bounds = self.bounds
        return min(bounds, key=bounds.__getitem__)

    @property
    def limit_sps(self) -> float:
        """Upper bound on the env steps per second of the topology. With too small a max_lag it cannot be reached."""
        return self.serial_sps if self.topology.runtime.runs_in_order else min(self.bounds.values())

    @property
    def attainable_sps(self) -> float:
        """Expected env steps per second: the limit, unless max_lag = D does not allow enough overlap.

        With D = 0, all actors and then the learner take turns. Otherwise a group of N batches has N K learning steps.
        Its first batch may start D of these steps before the group, and each other batch one step later. In the steps
        between the last first use of a group and this moment, no actor may act. With x, the time of all actors per env
        step, and y, that of the learner, an env step takes at least

        - x / N + y (N K - D) / (N K): the first batch of a group, and the steps until the next group may start;
        - x + y (N K - N + 1 - D) / (N K): all batches of a group in turn, and the steps in which no actor may act.
        """
        topology = self.topology
        if not topology.runtime.overlaps:
            return self.limit_sps
        parts = self._overlapped(topology.actors, self.acting_cpu)
        all_actors = max(time for name, time in parts.items() if name != "learner")
        if self._max_lag_forbids_overlap:
            return min(self.limit_sps, _per_second(all_actors + self.learning))
        batches, steps = topology.resident_batches, topology.resident_batches * topology.passes
        first = all_actors / batches + self._learner * (steps - topology.max_lag) / steps
        whole = all_actors + self._learner * max(0, steps - batches + 1 - topology.max_lag) / steps
        return min(self.limit_sps, _per_second(max(first, whole)))

    @property
    def actors_fed(self) -> float:
        """How many actors one learner can feed: more of them would wait for it, for messages or for the network."""
        busy = {name: time for name, time in self._overlapped(1, 0.0).items() if name not in ("machine", "actors")}
        return self._actor / max(*busy.values(), 1e-9)

    # --- ratios ---

    @property
    def gain_max(self) -> float:
        """How many times faster than serial a run can be at most, from 1 to the number of cores.

        Several learners share the work, and each takes T_learn, so serial takes T_act + learners T_learn. An actor does
        one thing at a time, learning steps follow each other, and a core runs one thread at a time. So with `threads`
        threads of all learners together::

            gain_max = (T_act + learners T_learn) / max(T_act / actors, T_learn, (T_act + threads T_learn) / cores)

        In order, this is the gain of a change to an overlapped runtime with one actor per core. Lock-free workers never
        wait for each other, so they gain up to their number, or to the number that fits on the cores.

        It is an upper limit, not a prediction: waking up, publishing, shared caches and memory bandwidth cost time too.
        """
        topology = self.topology
        if topology.runtime.workers_learn:
            return max(1.0, min(topology.actors, topology.cores / topology.learner_threads))
        actors = topology.cores if topology.runtime.runs_in_order else topology.actors
        slowest = max(self._overlapped(actors, self._core_time).values())
        return max(1.0, self._in_turn / slowest) if slowest > 0 else 1.0

    def cores_used(self, wall_time: float) -> float:
        """Return how many cores were in use on average, if the costs are totals of a period of `wall_time`.

        A result above the number of cores means that threads waited for a core. For lock-free workers the result is at
        most the number of cores, because evaluations in parallel may make `wall_time` too short.
        """
        used = self._core_time / wall_time if wall_time > 0 else 0.0
        return min(self.topology.cores, used) if self.topology.runtime.workers_learn else used

    # --- terms of these properties ---

    @property
    def _total_cpu(self) -> float:
        return self.acting_cpu + self.learning_cpu

    @property
    def _core_time(self) -> float:
        """Total time of all threads; each thread of the learner counts as busy for as long as learning takes."""
        return self.acting + self.inference + self.topology.learning_threads * self.learning

    @property
    def _in_turn(self) -> float:
        """Time of acting and learning if nothing overlaps, and one learner does the work of all."""
        return self.acting + self.inference + self.topology.learners * self.learning

    @property
    def _learner(self) -> float:
        """Time of the learner, or of the thread that loads beside it if that takes longer."""
        return max(self.loading, self.learning - self.loading)

    @property
    def _waiting(self) -> float:
        """Time that an actor waits for a batch of its inference worker; with several env groups it steps one meanwhile.

        The batch has the columns of all actors of the worker.
        """
        topology = self.topology
        if not topology.inference_workers or topology.env_groups > 1:
            return 0.0
        return self.inference * topology.actors / topology.inference_workers

    @property
    def _actor(self) -> float:
        """Time of an actor: it acts, and waits for inference and for messages."""
        return self.acting + self._waiting + self.round_trip

    @property
    def _max_lag_forbids_overlap(self) -> bool:
        return self.topology.runtime.overlaps and self.topology.max_lag == 0

    def _busy_times(self) -> dict[str, float]:
        """Time per env step for which each part is busy, by the name of its bound."""
        topology = self.topology
        if topology.runtime.runs_in_order:
            return {"learner": self.learning, "actors": self.acting}
        if topology.runtime.workers_learn:
            return {
                "cores": self._total_cpu / topology.cores,
                "workers": (self.acting + self.learning) / topology.actors,
            }
        return self._overlapped(topology.actors, self._total_cpu)

    def _overlapped(self, actors: int, core_time: float) -> dict[str, float]:
        return {
            "machine": core_time / self.topology.cores,
            "actors": self._actor / actors,
            "learner": self._learner,
            **({"inference": self.inference / workers} if (workers := self.topology.inference_workers) else {}),
            **{name: time for name, time in (("messages", self.messages), ("network", self.network)) if time},
        }


def _per_second(microseconds: float) -> float:
    return 1e6 / max(microseconds, 1e-9)
