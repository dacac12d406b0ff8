"""Notices that Ray has ended on this machine, or that the head of its cluster does not answer.

Ray ends the process that uses it in both cases, without a word: when something is put into the object store after its
own process on this machine, the raylet, has ended; and a minute after the head has. A run that notices it before can
save a checkpoint.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from time import monotonic

from offbeat.core.errors import ConfigError, RunFailed

CONNECT_S = 30
"""Seconds to connect to the raylet."""
ASK_HEAD_EVERY_S = 5.0
"""Seconds between two questions to the head."""
HEAD_ANSWER_S = 1.0
"""Seconds in which the system of the head's machine must accept a connection, however busy the head is."""
TRIES = 4
"""Questions without an answer, one after the other, after which the head is lost."""


class ClusterWatch:
    """Watches the raylet of this process's node, and the head. `close` it."""

    def __init__(self, raylet: str, head: str, logs: str) -> None:
        """Connect to the raylet.

        Args:
            raylet: path of its socket.
            head: host:port of the head.
            logs: `Cluster.logs`.

        Raises:
            ConfigError: the raylet runs, but accepts no connection.
        """
        self._raylet = socket.socket(socket.AF_UNIX)
        """A connection over which nothing is sent; the system closes it when the raylet ends."""
        self._head, self._logs = head, logs
        self._asked_at, self._unanswered = monotonic(), 0
        self.lost = ""
        """What was lost, for messages; empty while nothing is lost."""
        # `settimeout` would not wait at all while the queue of the raylet is full.
        self._raylet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", CONNECT_S, 0))
        try:
            self._raylet.connect(raylet)
        except BlockingIOError:
            self._raylet.close()
            raise ConfigError(f"Ray's raylet on this machine accepted no connection in {CONNECT_S} s{logs}") from None
        except OSError:  # it has ended: what is read then is an error
            pass
        self._raylet.setblocking(False)

    def require(self) -> None:
        """Require that both are there. Takes a microsecond, and a round trip of the network at most every few seconds.

        Raises:
            RunFailed: one of them is lost.
        """
        self.require_raylet()
        if monotonic() - self._asked_at >= ASK_HEAD_EVERY_S:
            self._asked_at = monotonic()
            self._unanswered = 0 if _accepts(self._head) else self._unanswered + 1
            if self._unanswered >= TRIES:
                self.lost = f"the head of the Ray cluster at {self._head} does not answer: it has ended, or is cut off"
        self._raise_loss()

    def head_answers(self) -> bool:
        """Whether the head answers now: else a question to Ray would wait for it, until Ray ends this process."""
        return _accepts(self._head)

    def require_raylet(self) -> None:
        """Require that Ray runs on this machine; as `require`, in any thread, without a look at the head."""
        try:
            ended = self._raylet.recv(1) == b""
        except BlockingIOError:
            ended = False
        except OSError:
            ended = True
        if ended:
            self.lost = (
                "Ray has ended on this machine: its raylet was stopped or killed, perhaps because memory was short"
            )
        self._raise_loss()

    def _raise_loss(self) -> None:
        if self.lost:
            raise RunFailed(self.lost + self._logs)

    def close(self) -> None:
        """End the connection."""
        self._raylet.close()


def _accepts(address: str) -> bool:
    """Whether somebody accepts a connection at host:port."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        socket.create_connection((host.strip("[]"), int(port)), HEAD_ANSWER_S).close()
        return True
    return False
