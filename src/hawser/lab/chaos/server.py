"""What may happen to a server: killed, restarted, and with PostgreSQL a process of it killed. It always comes back."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable
from typing import Protocol

from hawser.lab import process_tree
from hawser.lab.chaos.plan import MakeFault
from hawser.lab.cluster import Cluster

_CLIENT = re.compile(rb"postgres: (?!.*walsender).*(\[local\]|[\d.:]+\(\d+\))")
"""How a process that serves a client calls itself: with the address of that client."""


class OwnServer(Protocol):
    """A server of our own, of any kind."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


Back = Callable[[float], object]
"""Told the monotonic time at which the server took connections again."""


def _unheard(_: float) -> None:
    """Report nothing."""


def kill_backend(cluster: Cluster) -> MakeFault:
    """kill -9 of the process behind one connection: the server then ends all others too, and recovers."""

    def fault(dice: random.Random) -> bool:
        backends = [pid for pid in cluster.children() if _CLIENT.match(process_tree.title(pid))]
        if backends:
            process_tree.send([dice.choice(backends)], signal.SIGKILL)
        return bool(backends)

    return fault


def kill_server(server: OwnServer, away: float = 0.0, back: Back = _unheard) -> MakeFault:
    """kill -9, of PostgreSQL's postmaster; so many seconds later the server is started, and recovers."""

    def fault(_: random.Random) -> None:
        server.kill()
        time.sleep(away)
        server.start()
        back(time.monotonic())

    return fault


def restart(server: OwnServer, away: float = 0.0, back: Back = _unheard) -> MakeFault:
    """A fast shutdown, which waits for no client, and a start."""

    def fault(_: random.Random) -> None:
        server.stop()
        time.sleep(away)
        server.start()
        back(time.monotonic())

    return fault
