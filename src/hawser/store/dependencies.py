"""The part of the seam for jobs that wait for others."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import msgspec

from hawser.job import State

WAITS_TOLD: Final = 10
"""Jobs that are named of those that a held job waits for."""

GO_ON_WITHIN: Final = 1.0
"""Seconds within which a job is released whose last upstream has ended, when the process died that was to release it."""

BEHIND_READ: Final = 10_000
"""Jobs and batches that may wait for a batch, directly or over others, where a member that waits itself is to be added."""


class Upstream(NamedTuple):
    """A job or a batch that another job waits for."""

    id: str
    state: State
    batch: str | None = None
    """The name of the batch, when it is one."""


class Waits(msgspec.Struct, frozen=True):
    """What a held job waits for."""

    total: int
    """Jobs that it was made to wait for."""
    left: int
    """Those that it still waits for."""
    upstream: tuple[Upstream, ...]
    """Some of these, oldest first, at most `WAITS_TOLD`."""


class DependencyStore(Protocol):
    """What those need who ask what a job waits for."""

    async def go_on(self) -> bool:
        """Go on with jobs and batches that wait for what has ended or come, and with waits whose time is over, where the process
        died that was to do so. Any number of processes may call it, at any time: each job is released once. It answers whether it
        is to be called again within `GO_ON_WITHIN` seconds.
        """

    async def waits(self, id: str) -> Waits | None:
        """For how many jobs a held job waits, and some of them with their states; None for a job that waits for no other."""
