"""What the messages to and from actors on a cluster cost, for `offbeat bench`."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self, runtime_checkable


class MessageTraffic(NamedTuple):
    """What the messages to and from actors on a cluster have taken so far."""

    env_steps: float = 0
    """Env steps of the rows that the learner's process has received."""
    row_bytes: float = 0.0
    """Bytes of rows that the learner's process has received."""
    weight_bytes: float = 0.0
    """Bytes of weights that all nodes together have fetched."""
    thread_s: float = 0.0
    """CPU seconds of the thread that hands out tickets and receives their rows."""
    waited_s: float = 0.0
    """Seconds in which actors had nothing to do because a message was on its way, summed over actors."""

    def since(self, earlier: Self) -> MessageTraffic:
        """Return what was added after `earlier`."""
        return MessageTraffic(*(now - before for now, before in zip(self, earlier, strict=True)))


class Network(NamedTuple):
    """The machines of a cluster, and what connects them."""

    cores: float
    """Cores of this machine and CPUs of all other nodes."""
    bytes_per_s: float | None
    """Bytes per second from another node to this one; None if there is no other node that answers."""


@runtime_checkable
class SendsMessages(Protocol):
    """An `Acting` whose actors exchange messages with the learner's process. Others write into its memory."""

    def traffic(self) -> MessageTraffic:
        """Return what the messages have taken so far."""
        ...

    def network(self) -> Network:
        """Measure the network; this takes a few seconds."""
        ...
