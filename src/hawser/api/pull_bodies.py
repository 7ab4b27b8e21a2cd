"""What workers that pull over HTTP send and get: claims, settlements, extensions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from hawser.api.bodies import MAX_BATCH, MAX_QUEUES, MAX_WAIT, TEXT, ErrorText, Id, In, Lease, LeaseFor, Name, Out, Seconds


class ClaimIn(In):
    """Take jobs under a lease, waiting up to `wait` seconds for one."""

    queues: Annotated[list[Name], Meta(min_length=1, max_length=MAX_QUEUES, extra_json_schema={"uniqueItems": True})] = (
        msgspec.field(default_factory=lambda: ["default"])
    )
    """The first goes before the second, and so on."""
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 1
    lease_for: LeaseFor = 30.0
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = 0.0
    worker: Annotated[str, Meta(min_length=1, max_length=128, pattern=TEXT)] | UnsetType = UNSET
    """Shown to operators; the name of the API key when left out."""


class ClaimedOut(Out):
    """A job to run. Every later word about this run carries `id` and `lease`."""

    id: str
    task: str
    queue: str
    payload: Raw
    attempt: int
    lease: int


class ClaimsOut(Out):
    jobs: list[ClaimedOut]


class _Ended(In, tag_field="outcome"):
    """How a run ended: what an outcome has no use for is a slip, not to be dropped in silence."""

    id: Id
    lease: Lease


class DoneIn(_Ended, tag="done"):
    result: Raw | UnsetType = UNSET


class RetryIn(_Ended, tag="retry"):
    after: Seconds | UnsetType = UNSET
    """Seconds until the next attempt; the task's backoff when left out."""
    error: ErrorText | UnsetType = UNSET


class SnoozeIn(_Ended, tag="snooze"):
    after: Seconds
    """Seconds until the next attempt; this one is given back."""
    error: ErrorText | UnsetType = UNSET
    """Why."""


class DeadIn(_Ended, tag="dead"):
    error: ErrorText | UnsetType = UNSET


class ReleaseIn(_Ended, tag="release"):
    """Ready at once, the attempt given back."""


SettlementIn = DoneIn | RetryIn | SnoozeIn | DeadIn | ReleaseIn


class SettlementsIn(In):
    settlements: Annotated[list[SettlementIn], Meta(min_length=1, max_length=MAX_BATCH)]


class SettlementsOut(Out):
    """In the order sent. `lease_lost`: the run had no right to its job any more, and nothing changed."""

    results: list[Literal["settled", "lease_lost"]]


class LeaseIn(In):
    id: Id
    lease: Lease
    progress: Raw | UnsetType = UNSET
    """What the run says of how far it is; any JSON."""


class ExtensionsIn(In):
    """Leases to lengthen to `lease_for` seconds from now."""

    leases: Annotated[list[LeaseIn], Meta(min_length=1, max_length=MAX_BATCH)]
    lease_for: LeaseFor = 30.0


class ExtensionsOut(Out):
    """In the order sent. `cancel_asked`: held and extended, but an operator asked the run to end."""

    results: list[Literal["held", "lease_lost", "cancel_asked"]]
