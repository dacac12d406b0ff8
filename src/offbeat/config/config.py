"""The config of a run: frozen tables [run], [env], [runtime] and that of the algorithm, as config.toml has them.

Values come from the defaults, then the preset, then flags and `--set`. `core/fields.py` reads and checks each value.
`Config` checks combinations of values from several tables. All checks are made before any work starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from offbeat.config.devices import require_devices
from offbeat.config.env import UNSET, EnvConfig
from offbeat.config.inference import require_inference
from offbeat.config.league import LeagueConfig
from offbeat.config.policies import NO_POLICIES, Policies, names_of, require_names, require_weights, tables_of
from offbeat.config.policy_agents import Assignment, assigned, owners, separate
from offbeat.config.policy_settings import naming, settings_of_policy
from offbeat.config.ray import require_ray
from offbeat.config.run_config import LIMITS, RunConfig
from offbeat.config.runtime_config import RuntimeConfig, require_supported
from offbeat.config.runtimes import OPTIONAL_KEYS, runtime_entry
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.argument_notation import value_for_reader
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.files import replace_file
from offbeat.core.frozen_table import in_toml
from offbeat.core.process.threads import usable_cores
from offbeat.core.tasks import TaskSample, Trials

if TYPE_CHECKING:  # it loads NumPy
    from offbeat.core.memory_shape import MemoryShape

S = TypeVar("S", bound=AlgorithmSettings)


@dataclass(frozen=True)
class Config:
    """All settings of a run. `algorithm_settings` is the table of the algorithm, such as [ppo]."""

    run: RunConfig
    runtime: RuntimeConfig
    algorithm_settings: AlgorithmSettings
    env: EnvConfig = UNSET
    policies: Policies = NO_POLICIES
    """The tables [policies.NAME], in their order; empty: one policy for all agents, `DEFAULT_POLICY`."""
    league: LeagueConfig | None = None
    """The table [league]; None: no league."""
    assignment: Assignment | None = field(default=None, compare=False)
    """The caller's function from an agent's name to its policy, until `with_agents` makes tables of it."""

    def __post_init__(self) -> None:
        runtime = self.runtime
        require_supported(runtime)
        require_inference(runtime)
        require_ray(runtime)
        self._refuse_unsupported()
        self._require_hogwild_possible()
        self._require_shards_supported()
        require_devices(runtime)
        _require_equal_env_groups(runtime)
        self.algorithm_settings.check(runtime)
        self.algorithm_settings.check_env(self.env)
        self._check_policies()
        self._check_league()

    def _check_league(self) -> None:
        """Refuse a league in a runtime that does not support it."""
        runtime = self.runtime
        if self.league is not None and runtime.uses_inference:
            raise ConfigError(
                "inference is worker, but in a league each actor also acts with frozen opponents, whose networks "
                "inference workers do not have: pass --set inference=actor, or leave the league out"
            )
        if self.league is not None and (reason := runtime.entry.no_leagues):
            raise ConfigError(
                f"runtime is {runtime.runtime}, {reason}: pass another --runtime, or leave the league out"
            )

    def _check_policies(self) -> None:
        """Refuse policies that do not fit `policies` of [run] or the settings of the run."""
        require_names(self.policies)
        kind = self.run.policies
        if kind == "tables" and not self.policies and self.assignment is None:
            raise ConfigError(
                "policies is tables, but there is no table [policies.NAME]: pass --policies FILE.toml with such tables"
            )
        if kind == "shared" and self.policies:
            raise ConfigError(
                f"policies is shared, but there are tables of the policies {', '.join(self.policies)}: remove the "
                'tables, or write policies = "tables" in [run]'
            )
        require_weights(self.policies, self.run.init_from)
        for name, policy in self.policies.items():
            settings_of_policy(name, policy.settings, self.algorithm_settings, self.runtime)

    def _require_hogwild_possible(self) -> None:
        """Refuse a lock-free runtime if the algorithm cannot run in it."""
        entry = self.runtime.entry
        if entry.workers_learn and (reason := self.algorithm_settings.no_hogwild):
            raise ConfigError(
                f"runtime is {entry.name}, but {self.run.algorithm} cannot run lock-free: {reason}. Pass another "
                "--runtime, or another algorithm"
            )

    def _require_shards_supported(self) -> None:
        """Refuse shards with an algorithm that cannot cut its minibatches."""
        shards = self.runtime.shards
        if shards > 1 and not self.algorithm_settings.supports_shards:
            raise ConfigError(
                f"shards is {shards}, which is not supported by {self.run.algorithm}: leave it out, or set "
                f"supports_shards in {type(self.algorithm_settings).__qualname__} and define the algorithm's method "
                "`cut`"
            )

    def _refuse_unsupported(self) -> None:
        """Refuse settings of the runtime that the algorithm does not support."""
        runtime, defaults = self.runtime, RuntimeConfig()
        for key, instead in self.algorithm_settings.unsupported_runtime_keys.items():
            if getattr(runtime, key) != getattr(defaults, key):
                value = value_for_reader(getattr(runtime, key))
                raise ConfigError(f"{key} is {value}, which is not supported by {self.run.algorithm}: {instead}")

    @property
    def memory(self) -> MemoryShape:
        """The shape of the unroll memory or replay, and its pace; in a lock-free run, those of each worker."""
        if self.runtime.entry.workers_learn:
            return self.of_worker(0).memory
        return self.algorithm_settings.memory(self.runtime, (self.env.frame_stack or 1) - 1)

    def memory_of(self, columns: int) -> MemoryShape:
        """Return the memory of a policy with this number of columns in each actor; `memory` has one column per env."""
        return replace(self, runtime=replace(self.runtime, envs_per_actor=columns)).memory

    @property
    def trials(self) -> Trials | None:
        """How the policy is evaluated in new tasks; None if the algorithm has no tasks."""
        return self.algorithm_settings.trials(self.run.seed)

    @property
    def tasks(self) -> TaskSample | None:
        """The tasks that the run samples from its env; None if the algorithm has no tasks."""
        return None if self.trials is None else self.trials.tasks

    @property
    def workers(self) -> int:
        """Number of workers that learn; 1 if there is one learner."""
        if not self.runtime.entry.workers_learn:
            return 1
        return self.runtime.workers or usable_cores()

    @property
    def actors(self) -> int:
        """Number of actors; in a lock-free run, of workers."""
        return self.workers if self.runtime.entry.workers_learn else self.runtime.actors

    @property
    def envs(self) -> int:
        """Number of envs of the whole run."""
        return self.actors * self.runtime.envs_per_actor

    def of_worker(self, index: int) -> Config:
        """Return the config of one worker of a lock-free run: a serial run with its share of the run's totals.

        The worker's seed is used for its envs and samples. The first worker has the seed of the run, so a run with one
        worker gives the same bits as the serial runtime. All workers share the initial weights, which the seed of the
        run determines.
        """
        from offbeat.core.seeding import derive_seed  # not at the top: it loads NumPy

        serial = self.in_runtime("serial").runtime
        seed = self.run.seed if index == 0 else derive_seed(self.run.seed, "worker", index)
        return replace(
            self,
            run=replace(self.run, seed=seed),
            runtime=replace(serial, learner_threads=self.threads),
            algorithm_settings=self.algorithm_settings.of_worker(index, self.workers),
        )

    def of_learner(self, rank: int) -> Config:
        """Return the config of one learner of several: that of a run with one learner, on its device."""
        devices = (self.runtime.devices or ())[rank : rank + 1]
        runtime = replace(self.runtime, devices=devices, learner_threads=self.threads)
        return replace(self, runtime=runtime)

    def with_agents(self, names: Sequence[str]) -> Config:
        """Return the config for a world with these agents: its tables name a policy for each of them.

        Args:
            names: names of all agents of the world, in its order.

        Raises:
            ConfigError: an agent has no policy, or a policy has no agent.
        """
        policies = self.policies
        if self.assignment is not None:
            policies = assigned(self.assignment, names)
        elif self.run.policies == "separate" and not policies:
            policies = separate(names)
        owners(policies, names, several=self.draws_policies)
        return replace(self, policies=policies, assignment=None)

    @property
    def draws_policies(self) -> bool:
        """Whether the policy of an agent is drawn at the start of each episode."""
        return self.league is not None and self.league.draw_policies

    def trains(self, name: str) -> bool:
        """Return whether a policy of the run learns."""
        return name not in self.policies or self.policies[name].train

    def of_policy(self, name: str) -> Config:
        """Return the config of one policy: its values are in the algorithm's table, and `init_from` in [run].

        Raises:
            ConfigError: there is no such policy.
        """
        if name not in names_of(self.policies):
            raise unknown("policy", name, names_of(self.policies), "config.toml has its tables.")
        if not self.policies:
            return self
        policy = self.policies[name]
        return replace(
            self,
            run=replace(self.run, init_from=policy.init_from or self.run.init_from, policies="shared"),
            algorithm_settings=settings_of_policy(name, policy.settings, self.algorithm_settings, self.runtime),
            policies=NO_POLICIES,
        )

    def naming(self, name: str) -> AbstractContextManager[None]:
        """Name a policy in errors about its settings, if it has values of its own."""
        return naming(name, self.policies[name].settings if name in self.policies else {})

    @property
    def initial_runs(self) -> dict[str, str]:
        """The run directory that a policy's initial weights are taken from, by policy; only of those that have one."""
        own = {name: policy.init_from for name, policy in self.policies.items()} or dict.fromkeys(names_of(()))
        runs = {name: run or self.run.init_from for name, run in own.items()}
        return {name: run for name, run in runs.items() if run is not None}

    @property
    def threads(self) -> int:
        """Number of threads of the learner, or of each worker; if the algorithm divides its updates where it can, among
        how many threads.
        """
        alone = self.runtime.learners == 1 and not self.runtime.entry.workers_learn
        splits = self.algorithm_settings.splits_updates and alone
        return self.runtime.learner_threads or (min(2, usable_cores()) if splits else 1)

    @property
    def busy_cores(self) -> int | None:
        """How many cores the run can keep busy; None if it chooses its topology itself, from those that it has."""
        runtime = self.runtime
        if runtime.split == "measured":
            return None
        actors = runtime.actors if runtime.ray_address is None else 0  # else they are on a cluster, with its cores
        return runtime.entry.busy_cores(actors, self.workers * runtime.learners * self.threads)

    @property
    def blas_threads(self) -> int:
        """Threads that torch and BLAS may use in the learner, or in each worker, if the algorithm does not divide its
        updates among threads of its own.
        """
        return self.runtime.learner_threads or 1

    def tables(self) -> dict[str, dict[str, object]]:
        """Return the tables as config.toml has them."""
        tables = {
            "run": asdict(self.run),
            "env": asdict(self.env),
            "runtime": asdict(self.runtime),
            self.run.algorithm: asdict(self.algorithm_settings),
        }
        if self.policies:
            tables["policies"] = tables_of(self.policies)
        if self.league is not None:
            tables["league"] = asdict(self.league)
        return {name: in_toml(table) for name, table in tables.items()}

    def save(self, path: Path) -> None:
        """Write config.toml; an existing file is replaced atomically."""
        replace_file(path, self.as_toml())

    def as_toml(self) -> bytes:
        """Return the content of config.toml."""
        import tomli_w

        return tomli_w.dumps(self.tables()).encode()

    def with_run(self, **changes: Any) -> Config:
        """Return a copy with changed fields of [run]."""
        return replace(self, run=replace(self.run, **changes))

    def without_limits(self) -> Config:
        """Return a copy without limits of a part of the run."""
        return self.with_run(**dict.fromkeys(LIMITS))

    def in_runtime(self, runtime: str) -> Config:
        """Return a copy for another runtime. Settings that it does not support are set to None.

        Raises:
            ConfigError: the runtime is not registered.
        """
        entry = runtime_entry(runtime)
        optional: dict[str, Any] = {
            key: getattr(self.runtime, key) if key in entry.supports else None for key in OPTIONAL_KEYS
        }
        return replace(self, runtime=replace(self.runtime, runtime=entry.name, **optional))

    def settings_as(self, kind: type[S]) -> S:
        """Return the algorithm's settings, typed as an instance of `kind`.

        Raises:
            ConfigError: the settings are of another class.
        """
        settings = self.algorithm_settings
        if not isinstance(settings, kind):
            raise ConfigError(
                f"the settings of {self.run.algorithm} are {type(settings).__qualname__}, but a class that extends "
                f"{kind.__qualname__} is expected: write `config_class = MyConfig` in the algorithm"
            )
        return settings


def _require_equal_env_groups(runtime: RuntimeConfig) -> None:
    if runtime.envs_per_actor % runtime.env_groups:
        raise ConfigError(
            f"env_groups is {runtime.env_groups}, which does not divide envs_per_actor={runtime.envs_per_actor}: pass "
            f"--set env_groups=1{_or_another_divisor(runtime.envs_per_actor)}"
        )


def _or_another_divisor(number: int) -> str:
    """Return the divisors but 1 as the end of a sentence; '' if there are none."""
    divisors = ", ".join(str(divisor) for divisor in range(2, number + 1) if number % divisor == 0)
    return divisors and f", or another divisor ({divisors})"
