"""The part of the seam for those who wait for the end of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from hawser.job import State

ENDS_READ: Final = 1_000
"""Jobs that one call of `ended` is asked for."""


class JobEnd(msgspec.Struct, frozen=True, gc=False):
    """How a job ended."""

    state: State | None
    """None: the store does not have the job."""
    task: str = ""
    error: str | None = None
    """The last error of a dead job, else the reason that was given; of a cancelled job its reason."""
    result: bytes | None = None
    """JSON text."""


GONE: Final = JobEnd(None)


class EndReader(Protocol):
    """What those need who wait for results."""

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        """How these jobs ended, in order: with what they returned, or with the last error or reason. None stands for a job that
        is live. A job that the store does not have has no state."""
