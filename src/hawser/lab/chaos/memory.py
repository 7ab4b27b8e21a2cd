"""A worker that may have only so much memory: what it asks for beyond that it does not get."""

from __future__ import annotations

import sys
from typing import Final

from hawser.errors import ConfigError

LEAST_BYTES: Final = 64 * 2**20
"""Bytes of address space without which Python does not even start."""

_LIMIT: Final = """
import os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
os.execv(sys.argv[2], sys.argv[2:])
"""


def limited(most: int) -> list[str]:
    """What goes before a command: each process of it, and of those that it starts, gets so many bytes of address space."""
    if most < LEAST_BYTES:
        raise ConfigError(f"memory: {most} bytes are too few to start Python; give at least {LEAST_BYTES}")
    return [sys.executable, "-c", _LIMIT, str(most)]
