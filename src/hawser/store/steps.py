"""The steps of a job: what its runs have achieved, kept beside the job, so that a later run does not do it again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

MAX_STEP_NAME: Final = 256
"""Characters of a step's name, its version included."""

MAX_STEP_VALUE: Final = 256 * 1024
"""Bytes of JSON that a step may come to: as many as a job's result."""

MAX_STEPS: Final = 10_000
"""Steps of one job: it bounds how often a job that fails after each new step is started."""


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that a run has made."""

    id: str
    """Of the job."""
    lease: int
    """Of the run."""
    name: str
    value: bytes
    """What it came to, as JSON text."""
    kind: str = "step"
    """`step` or `sleep`."""
    lasts: float | None = None
    """Of a sleep: for how many seconds from the record on."""


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it is kept."""

    name: str
    value_body: bytes
    kind: str = "step"
    at: datetime
    """When it was recorded."""
    lease: int
    """Of the run that recorded it."""
    until: datetime | None = None
    """Of a sleep: its end."""
    left: float = 0.0
    """Of a sleep: seconds that were left of it when the store was asked."""

    @property
    def value(self) -> Any:
        return msgspec.json.decode(self.value_body)


class StepStore(Protocol):
    """What handlers need that record their steps."""

    async def record_steps(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        """Keep what runs have achieved, each fenced by its lease number, each once under its name; the answers have what is kept
        under these names now.

        A step whose lease is not the current one is not kept, and its answer is None. One whose lease has run out is kept all the
        same, unless the run was reclaimed. The first record under a name stays; another one changes nothing. Attempts are
        counted from the last new record on: the run that made it is the first attempt again. The end of a sleep is a time of the
        store's clock, which the first record sets.
        """

    async def steps(self, id: str) -> list[RecordedStep]:
        """The steps of a job in the order in which they were recorded.

        They are kept as long as the job is, however it ended, and are there again when it was requeued. They go when it is
        removed: a new job with the same id has none.
        """
