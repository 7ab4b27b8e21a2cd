"""Worker processes: their names, and their end in words."""

from __future__ import annotations

import os
import signal
import socket


def new_name() -> str:
    """A worker's name: new at every start, so that a record of an earlier worker is never taken for its own."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


def how(code: int) -> str:
    """The end of a process in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"
