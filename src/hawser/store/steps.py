"""The steps of a job: what its runs have achieved, kept beside the job, so that a later run does not do it again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from hawser.store.api_key import Actor
from hawser.store.operator import Acted

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


OPEN_KINDS: Final = frozenset(("wait", "woken"))
"""Kinds of steps that came to nothing yet: the job waits, or may go on."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has come to a wait of its handler."""

    id: str
    lease: int
    name: str
    """Of the step that waits."""
    event: str | None = None
    """What it waits for; None: for jobs."""
    value: bytes | None = None
    """What the jobs came to, when all of them are done."""


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it is kept."""

    name: str
    value_body: bytes
    """What it came to. Of a step that waits for jobs: their ids."""
    kind: str = "step"
    """`step` or `sleep`. A wait is `wait` while it lasts, `woken` when its job may go on, then `event`, `timeout` or `gather`."""
    at: datetime
    """When it was recorded. Of a wait: since when, also when it came to something."""
    lease: int
    """Of the run that recorded it."""
    until: datetime | None = None
    """The end of a sleep, or of a wait: as long as it lasts, when its time is over; then, when it ended."""
    left: float = 0.0
    """Seconds that were left of that when the store was asked."""
    event: str | None = None
    """What is waited for, or was."""

    @property
    def open(self) -> bool:
        """Whether it came to nothing yet."""
        return self.kind in OPEN_KINDS

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

    async def arrive(self, arrival: Arrival) -> RecordedStep | None:
        """What a wait of a run came to, recorded under the fence; an answer that is open says that the run has to be held.

        When the lease is not the current one nothing is recorded, and the answer is None. A wait for an event comes to what the
        event says, if that came before the time was over. When the time is over it comes to a time-out. A wait for jobs comes to
        what the arrival says. What a wait came to stays: every later run gets the same. It has the start of the wait and its end:
        when the event came, when the time was over, or when a run went on with what the jobs came to; not before the start.
        Attempts are counted from that on, as from any new record.
        """

    async def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        """Run a dead or cancelled job again, as requeue does, and forget what was recorded after one of its steps, in one write
        with its audit record. Without a name all its steps are forgotten. When it does not have that step nothing changes, and
        the answer is `NOT_FOUND`.
        """

    async def steps(self, id: str) -> list[RecordedStep]:
        """The steps of a job in the order in which they were recorded. Those at which it waits are among them.

        They are kept as long as the job is, however it ended, and are there again when it was requeued. They go when it is
        removed: a new job with the same id has none.
        """
