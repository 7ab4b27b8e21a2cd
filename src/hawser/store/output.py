"""The output of a job: what its runs write while they run, chunk by chunk, for those who watch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

MAX_CHUNK: Final = 64 * 1024
"""Bytes of JSON of one chunk."""

MAX_OUTPUT: Final = 1024 * 1024
"""Bytes of JSON of all chunks of a job, of all its runs together."""

MAX_CHUNKS: Final = 10_000
"""Chunks of a job, of all its runs together."""

OUTPUT_READ: Final = 1_000
"""Chunks that are read at a time."""


class NewOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Chunks that a run has written, in their order."""

    id: str
    """Of the job."""
    lease: int
    """Of the run."""
    attempt: int
    """Of the run, as its claim said it."""
    first: int
    """How many chunks of the same run come before these."""
    chunks: tuple[bytes, ...]
    """Each as JSON text."""


class OutputKept(msgspec.Struct, frozen=True):
    """How much output of a job is kept."""

    chunks: int
    """Of all runs."""
    size: int
    """Bytes of all runs."""
    of_run: int
    """Chunks of the run that asked."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of a job's output, as it is kept."""

    number: int
    """Its place in the output of the job, from 1."""
    body: bytes
    """What was written, as JSON text."""
    at: datetime
    """When it was kept."""
    lease: int
    """Of the run that wrote it: another one than that of the chunk before means that another run went on."""
    attempt: int
    """Of that run."""

    @property
    def value(self) -> Any:
        return msgspec.json.decode(self.body)


class OutputStore(Protocol):
    """What runs need that write output, and those who read it."""

    async def write_output(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        """Keep what runs have written, in order, behind what their jobs have; the answers say how much is kept.

        When the lease is not the current one nothing is kept, and the answer is None. Chunks of a run that are kept already are
        not kept twice. A chunk with which the job would have more than `MAX_OUTPUT` bytes or `MAX_CHUNKS` chunks is left out, and
        so is what the run writes behind it.
        """

    async def output(self, id: str, after: int = 0, limit: int = OUTPUT_READ) -> list[Chunk]:
        """Chunks of a job behind that number, in order, at most so many.

        Output is kept as long as the job is, however it ended, and what a later run writes stands behind it. It goes when the job
        is removed: a new job with the same id has none.
        """
