"""The base class of all algorithms' settings: the properties and methods that a run needs from any of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from offbeat.config.env import EnvConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.tasks import Trials

if TYPE_CHECKING:  # they load NumPy
    from offbeat.core.memory_shape import MemoryShape
    from offbeat.core.types import EnvSpec
    from offbeat.core.visits import Visits


@dataclass(frozen=True)
class AlgorithmSettings:
    """The base class of an algorithm's table. Subclasses are frozen dataclasses."""

    learns_from: ClassVar[Literal["unrolls", "replay"]]
    """The kind of memory that the algorithm learns from."""
    splits_updates: ClassVar[bool] = False
    """Whether the algorithm itself divides an update among threads, for the policies for which it can
    (`Algorithm.threads`); BLAS then has one thread."""
    lag_flag: ClassVar[str] = "--max-lag"
    """The flag or key that allows actors to be further ahead."""
    topology_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of this table that a resume may not change, because the saved memory and counts depend on them."""
    network_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of this table that a resume may not change, because the saved network and its statistics were made with
    them."""
    runtime_defaults: ClassVar[Mapping[str, object]] = {}
    """Keys of [runtime] for which the algorithm has a default of its own -> that default."""
    unsupported_runtime_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of [runtime] that the algorithm does not support -> what to pass instead."""
    unsupported_own_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of this table, inherited from another algorithm's, that this one does not support -> why; '' without a
    reason."""
    default_texts: ClassVar[Mapping[str, str]] = {}
    """Keys of this table whose default depends on other settings -> what it is, for the list of settings."""
    supports_shards: ClassVar[bool] = False
    """Whether the algorithm can cut its minibatches into shards, by its method `cut`."""
    no_hogwild: ClassVar[str] = ""
    """The reason why the algorithm cannot learn in lock-free workers; '' if it can."""

    @classmethod
    def with_defaults(
        cls,
        table: Mapping[str, object],
        given: Collection[str],  # noqa: ARG003
        runtime: RuntimeConfig,  # noqa: ARG003
    ) -> dict[str, object]:
        """Return the table with the defaults that depend on the given keys and on the runtime; unchanged by default.

        Args:
            table: the algorithm's table: the preset's values, overridden by the given ones.
            given: the keys that the user has given, of all tables.
            runtime: the runtime and its layout.
        """
        return dict(table)

    @property
    def compiled_modules(self) -> tuple[str, ...]:
        """Modules of the algorithm that are compiled when they are imported for the first time on a machine."""
        return ()

    def memory(self, runtime: RuntimeConfig, history: int = 0) -> MemoryShape:
        """Return the shape of the unroll memory or the replay, with its pace.

        Args:
            runtime: the runtime and its layout.
            history: rows before a sampled row that its frame stack can reach back to.

        Raises:
            ConfigError: the settings contradict each other.
        """
        raise NotImplementedError

    def policy_spec(self, env: EnvSpec) -> object:
        """Return the policy for an env with these settings: a `PolicySpec`.

        Raises:
            ConfigError: the settings do not support the env's actions.
        """
        raise NotImplementedError

    def check(self, runtime: RuntimeConfig) -> None:
        """Refuse settings that contradict each other.

        Raises:
            ConfigError: with the numbers and the remedy.
        """

    def check_env(self, env: EnvConfig) -> None:
        """Refuse settings of [env] that do not suit the algorithm.

        Raises:
            ConfigError: with the remedy.
        """

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:  # noqa: ARG002
        """Return the keys of this table that have no effect in this env and runtime beside its other settings.

        A new run warns of those that do not have their default, and of those of `warned_at_default`. They are not
        refused: a preset or a search may set them beside a setting that makes them useless.

        Returns:
            Key -> why, and what to do, to follow 'which has no effect'.
        """
        return {}

    def warned_at_default(self, env: EnvSpec) -> Collection[str]:  # noqa: ARG002
        """Return the keys of which a new run warns also at their default, if they have no effect in this env.

        They are those whose default one would rely on there.
        """
        return ()

    def trials(self, seed: int) -> Trials | None:  # noqa: ARG002
        """Return the tasks of a run with this seed, and how it is evaluated in new ones; None if it has no tasks."""
        return None

    def visits(self, actors: int) -> Visits | None:  # noqa: ARG002
        """Return how the tickets of an algorithm with tasks are divided into visits; None if it has no tasks."""
        return None

    def check_columns(self, runtime: RuntimeConfig, columns: int) -> None:
        """Refuse settings that do not suit the number of columns that an actor has for the policy.

        It is called once the env is known, because each agent of an env is a column.

        Raises:
            ConfigError: with the numbers and the remedy.
        """

    def most_shards(self, runtime: RuntimeConfig, columns: int) -> tuple[int, str]:
        """Return the largest number of shards of a minibatch, and its arithmetic for an error message.

        Args:
            runtime: the layout.
            columns: columns that an actor has for the policy.
        """
        raise NotImplementedError

    def scale_of_values(self) -> Mapping[str, float]:
        """Return the keys of this table, with their values, that say in which units the networks estimate returns.

        Initial weights from a run with others are refused: arrays of the same shapes would have another meaning.
        """
        return {}

    def reason_against_change(self, key: str) -> str:
        """Return the reason why a resume cannot change a key of this table; '' if it can."""
        if key in self.network_keys:
            return "the saved network and its statistics were made with it"
        return "the saved memory and counts depend on it" if key in self.topology_keys else ""

    def reason_against_value(self, key: str, old: object, new: object) -> str:  # noqa: ARG002
        """Return the reason why a resume cannot change a key of this table from `old` to `new`; '' if it can.

        It is asked only about keys for which `reason_against_change` has no reason. The reason is about the saved
        arrays: initial weights from a run with another value are refused for it too.

        Args:
            key: the key.
            old: the value so far, as config.toml has it: 'none' for None.
            new: the new value, in the same form.
        """
        return ""

    def of_worker(self, index: int, workers: int) -> Self:  # noqa: ARG002
        """Return the settings of one worker of a lock-free run: by default, the same as those of the run."""
        return self

    def next_update(self, counted: int = 0) -> int:  # noqa: ARG002
        """Return after how many transitions the next update is made, if the run has counted `counted` of them.

        0: after each batch, so every run makes updates.
        """
        return 0

    def remedy_without_updates(self, *, resumed: bool) -> str:  # noqa: ARG002
        """Return what to pass so that a run that would make no update makes some; called where `next_update` is not 0.

        Args:
            resumed: whether the run is resumed, so that some settings cannot change.
        """
        return "pass more --steps"
