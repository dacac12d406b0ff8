"""What a run asks of an algorithm's settings, whatever the algorithm: the base of every class of settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from offbeat.config.runtime_config import RuntimeConfig

if TYPE_CHECKING:  # they load NumPy
    from offbeat.core.memory_shape import MemoryShape
    from offbeat.core.types import EnvSpec


@dataclass(frozen=True)
class AlgorithmSettings:
    """The base of an algorithm's table. A class of settings is a frozen dataclass that extends it."""

    learns_from: ClassVar[Literal["unrolls", "replay"]]
    splits_updates: ClassVar[bool] = False
    """Whether an update is shared out between threads by the algorithm itself; BLAS then has one thread."""
    lag_flag: ClassVar[str] = "--max-lag"
    """What is typed to let actors be further ahead."""
    topology_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of this table that a resume may not change."""
    unsupported_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of [runtime] that it does not support -> what to pass in their place."""
    not_lock_free: ClassVar[str] = ""
    """Why it cannot learn in lock-free workers; '' where it can."""

    @classmethod
    def suited(cls, table: Mapping[str, object], given: Collection[str], runtime: RuntimeConfig) -> dict[str, object]:  # noqa: ARG003
        """Return the values that suit what the user has given and the runtime; by default all of them.

        Args:
            table: the algorithm's table: what the preset says, and over it what the user has given.
            given: the keys that the user has given, of all tables.
            runtime: how acting and learning are laid out.
        """
        return dict(table)

    def memory(self, runtime: RuntimeConfig, history: int = 0) -> MemoryShape:
        """Return the shape of what a run remembers, and the pace on it.

        Args:
            runtime: how acting is laid out.
            history: rows before a sampled one that its stack of frames may reach back to.

        Raises:
            ConfigError: the settings cannot work together.
        """
        raise NotImplementedError

    def policy_spec(self, env: EnvSpec) -> object:
        """Return the policy that these settings make for an env: a `PolicySpec`.

        Raises:
            ConfigError: the env's actions do not suit these settings.
        """
        raise NotImplementedError

    def check(self, runtime: RuntimeConfig) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ConfigError: with the arithmetic and the remedy.
        """

    def of_worker(self, index: int, workers: int) -> Self:  # noqa: ARG002
        """Return the settings of one worker of a lock-free run: by default nothing in them is shared out."""
        return self

    def warnings(self, steps: int) -> str:  # noqa: ARG002
        """Say what a run of so many env steps will not do, though one may expect it; '' for nothing."""
        return ""
