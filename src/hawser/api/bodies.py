"""What comes in and goes out, as types: bodies are read by them, and the OpenAPI document is made from them.

What `new_job` judges is only described here, so that its words, and all faults at once, reach the caller.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from hawser.api.problem import bad
from hawser.clock import MAX_DELAY
from hawser.job import MAX_ATTEMPTS, MAX_GROUP, MAX_TAGS, MAX_TIMEOUT, State, Waiting
from hawser.limit import RATE_PATTERN
from hawser.outcome import MAX_ERROR
from hawser.store import MAX_LEASE, MAX_WEIGHT
from hawser.value.indexed import MAX_ENTRY
from hawser.value.job_time import SHORTEST_S

T = TypeVar("T")

MAX_BATCH: Final = 1_000
"""Jobs, leases or settlements in one request."""

MAX_QUEUES: Final = 100
MAX_WAIT: Final = 60.0
"""Seconds that a claim may wait for a job."""

MAX_HTTP_PAGE: Final = 500
MAX_REASON: Final = 500
MAX_RATE: Final = 10_000.0
NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}$"
ID: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

GROUP_ID: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}:[0-9a-f]{16}$"

TEXT: Final = r"^[^\x00]*$"
YEARS: Final = "^(197[1-9]|19[89]|[2-8]|9[0-8]|99[0-8]|999[0-8])"
"""1971 to 9998: what is still a date in every time zone."""


def said(**schema: Any) -> Meta:
    """Described in the document, judged elsewhere."""
    return Meta(extra_json_schema=schema)


Name = Annotated[str, Meta(pattern=NAME)]
Tag = Annotated[str, said(minLength=1, maxLength=64, pattern=TEXT)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_DELAY)]
LeaseFor = Annotated[float, Meta(gt=0, le=MAX_LEASE)]
Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON, pattern=TEXT)]
Instant = Annotated[datetime, Meta(tz=True, extra_json_schema={"pattern": YEARS})]
Id = Annotated[str, Meta(pattern=ID)]
GroupId = Annotated[str, Meta(pattern=GROUP_ID)]
Lease = Annotated[int, Meta(ge=0, le=2**62)]
Brief = Annotated[int, Meta(ge=0, le=1)]
"""1: without payloads and results, and with the beginning of long errors."""
Argument = Annotated[str, Meta(max_length=MAX_ENTRY, pattern="^[^=]+=")]
"""NAME=VALUE: an argument that tasks declare as indexed. `arg.NAME=VALUE` in a query is the same."""
ErrorText = Annotated[str, Meta(max_length=64 * MAX_ERROR)]
"""What went wrong. Long ones are cut."""


class In(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body or a query. Unknown fields are refused."""


class Dated(In):
    """A body or a query with instants."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, datetime) and not 1970 < value.year < 9999:
                raise bad(name, f"the year {value.year} is out of range; use 1971 to 9998")


def or_none(value: T | UnsetType) -> T | None:
    """What was given. A query knows no null, so its fields are set or not, and never None."""
    return None if value is UNSET else value


class Out(msgspec.Struct, kw_only=True):
    """A part of an answer."""


# Enqueue.


class JobIn(In):
    """A job to enqueue. What is left out is the task's own setting."""

    id: Annotated[str, said(pattern=ID)] | UnsetType = UNSET
    """For lost answers: a UUIDv7 made by the caller. Sent again it makes no second job for as long as the job is kept."""
    task: Annotated[str, said(pattern=NAME)] | UnsetType = UNSET
    type: Annotated[str, said(pattern=NAME)] | UnsetType = UNSET
    """Another word for `task`."""
    payload: Raw | UnsetType = UNSET
    """The task's arguments by name: one JSON object."""
    queue: Annotated[str, said(pattern=NAME)] | UnsetType = UNSET
    priority: Annotated[int, said(minimum=0, maximum=9)] | UnsetType = UNSET
    run_at: Annotated[datetime, said(format="date-time", pattern=YEARS)] | UnsetType = UNSET
    """With a time zone; instead of `delay`."""
    delay: Annotated[float, said(minimum=0, maximum=MAX_DELAY)] | UnsetType = UNSET
    expires: Annotated[float, said(minimum=SHORTEST_S, maximum=MAX_DELAY)] | UnsetType = UNSET
    """Seconds from now after which it is not started any more: it is cancelled, with the reason `expired`."""
    max_attempts: Annotated[int, said(minimum=1, maximum=MAX_ATTEMPTS)] | UnsetType = UNSET
    timeout: Annotated[float, said(exclusiveMinimum=0, maximum=MAX_TIMEOUT)] | UnsetType = UNSET
    key: Annotated[str, said(minLength=1, maxLength=512, pattern=TEXT)] | UnsetType = UNSET
    """For business duplicates: no second job of this task with this key in this queue while the first is live."""
    key_ttl: Annotated[float, said(minimum=0, maximum=MAX_DELAY)] | Literal["forever", "start"] | UnsetType = UNSET
    """Seconds for which the key is held at least; `forever`: as long as the job is kept; `start`: until it has started."""
    debounce: Annotated[float, said(minimum=SHORTEST_S, maximum=MAX_DELAY)] | UnsetType = UNSET
    """Due when no other call with the key has come for so many seconds; each replaces the payload of the one before."""
    at_most: Annotated[float, said(minimum=SHORTEST_S, maximum=MAX_DELAY)] | UnsetType = UNSET
    tags: Annotated[list[Tag], said(maxItems=MAX_TAGS)] | UnsetType = UNSET
    group: Annotated[str, said(minLength=1, maxLength=MAX_GROUP, pattern=TEXT)] | UnsetType = UNSET
    """Whose job it is, such as a customer's: the groups of a queue take turns. Else what the task says."""
    parent_id: Annotated[str, said(pattern=ID)] | UnsetType = UNSET
    """The job that this one belongs to: shown with both, and found by it."""
    after: Annotated[list[Annotated[str, said(pattern=ID)]], said(max_length=MAX_BATCH)] | UnsetType = UNSET
    """Jobs and batches that it waits for, by id: it is due when all of them are done."""
    batch: Annotated[str, said(pattern=ID)] | UnsetType = UNSET
    """The batch that it counts in, by id: one that is open or runs."""


class BatchIn(In):
    """Jobs to enqueue, all or none."""

    jobs: Annotated[list[JobIn], Meta(min_length=1, max_length=MAX_BATCH)]
    rate: Annotated[str, said(pattern=RATE_PATTERN)] | UnsetType = UNSET
    """Spread their due times: each is due one step of this rate, such as `50/s`, behind the one before it."""


class EnqueuedOfMany(Out):
    """The job that stands for what was sent; `created` is false when it was there before: by its id, its request or its key."""

    id: str
    created: bool
    replaced: bool  # the payload has taken the place of an earlier call's, in a job that is debounced


class EnqueuedOut(EnqueuedOfMany):
    state: State


class BatchOut(Out):
    """In the order of the jobs sent."""

    jobs: list[EnqueuedOfMany]


# Look.

_STATE_PATTERN: Final = f"({'|'.join((*State, *Waiting))})"

States = Annotated[str, Meta(max_length=80, extra_json_schema={"pattern": f"^{_STATE_PATTERN}(,{_STATE_PATTERN})*$"})]
"""One, or several with commas between them. Scheduled, retrying and held are ways to look at ready."""


class SearchQuery(Dated):
    """What jobs and dead jobs are found by, in lists and in exports."""

    queue: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    key: Annotated[str, Meta(max_length=512)] | UnsetType = UNSET
    tag: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    batch: Id | UnsetType = UNSET
    argument: Argument | UnsetType = UNSET
    since: Instant | UnsetType = UNSET
    until: Instant | UnsetType = UNSET


class WhichQuery(SearchQuery):
    """Which jobs; all given ones must hold."""

    state: States | UnsetType = UNSET
    parent_id: Id | UnsetType = UNSET
    schedule: Name | UnsetType = UNSET
    group: Annotated[str, Meta(max_length=MAX_GROUP)] | UnsetType = UNSET
    worker: Annotated[str, Meta(min_length=1, max_length=128)] | UnsetType = UNSET
    """Whose run it is, or was last. Of running jobs it finds all; of others those among the newest that are looked at."""
    attempt_min: Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS)] | UnsetType = UNSET
    """Started at least so often."""


class FilterQuery(WhichQuery):
    """Which jobs, newest first. Go on with `after` set to the page's `next` until that is null."""

    after: Id | UnsetType = UNSET
    newer: Id | UnsetType = UNSET
    """Only those that are newer than this one: what came since a page was read."""
    sort: Literal["started"] | UnsetType = UNSET
    """Of running jobs, those that run for longest; one page."""
    limit: Annotated[int, Meta(ge=1, le=MAX_HTTP_PAGE)] = 100
    brief: Brief = 0


class DeadQuery(SearchQuery):
    """Which dead jobs, newest first; pages as in `/jobs`."""

    after: Id | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_HTTP_PAGE)] = 100
    brief: Brief = 0
    group: GroupId | UnsetType = UNSET


class GroupsQuery(In):
    queue: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_HTTP_PAGE)] = MAX_HTTP_PAGE


class JobQuery(In):
    wait: Annotated[int, Meta(ge=0, le=int(MAX_WAIT))] = 0
    """Seconds to wait for the job's end before it is shown as it is then."""


class QueueQuery(In):
    queue: Name | UnsetType = UNSET
    """All queues when left out."""


class HistoryQuery(Dated):
    """The last `minutes`, or from `since` until `until`. Figures are kept for a day; what is older is left out, and said so."""

    minutes: Annotated[int, Meta(ge=1, le=7 * 24 * 60)] = 60
    """How many, the present one included."""
    since: Instant | UnsetType = UNSET
    """In place of `minutes`."""
    until: Instant | UnsetType = UNSET
    step: Annotated[int, Meta(ge=1, le=24 * 60)] = 1
    """Minutes that are told together."""
    queue: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET


class AuditQuery(Dated):
    """Newest first. Go on with `after` set to the page's `next` until that is null."""

    after: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_HTTP_PAGE)] = 100
    action: Annotated[str, Meta(min_length=1, max_length=64, pattern=TEXT)] | UnsetType = UNSET
    """As the records name it: cancel, requeue, pause, …"""
    by: Annotated[str, Meta(min_length=1, max_length=256, pattern=TEXT)] | UnsetType = UNSET
    """Who did it: as the records name it, or what stands before a colon there, as the name of a key does."""
    target: Annotated[str, Meta(min_length=1, max_length=512, pattern=TEXT)] | UnsetType = UNSET
    """To what: a job's id, also of those that a record of several names, `queue:NAME`, `task:NAME`, …"""
    since: Instant | UnsetType = UNSET


# Act.


class ReasonIn(In):
    """Why; goes into the audit record."""

    reason: Reason | None = None


class ChangeIn(Dated):
    """What to change of a waiting job; what is left out stays."""

    queue: Annotated[str, said(pattern=NAME)] | UnsetType = UNSET
    priority: Annotated[int, said(minimum=0, maximum=9)] | UnsetType = UNSET
    run_at: Instant | UnsetType = UNSET
    """With a time zone; instead of `delay`."""
    delay: Annotated[float, said(minimum=0, maximum=MAX_DELAY)] | UnsetType = UNSET
    """Seconds from now; 0 is due at once."""
    reason: Reason | None = None


class ReasonQuery(In):
    """Why; goes into the audit record."""

    reason: Reason | UnsetType = UNSET


class ConfirmIn(In):
    """Why, and the confirmation that a task marked `confirm_replay` asks for."""

    reason: Reason | None = None
    confirm: bool = False


class ReplayIn(In):
    """Other arguments for a job that takes a dead one's place."""

    payload: Annotated[Raw, said(type="object")]
    reason: Reason | None = None
    confirm: bool = False


class WeightIn(In):
    """How many places a turn a group is offered; 1 is what every group has."""

    weight: Annotated[int, said(minimum=1, maximum=MAX_WEIGHT)]
    reason: Reason | None = None


class WeightView(Out):
    group: str
    weight: int


class WeightsOut(Out):
    """The groups of a queue whose weight is not 1."""

    groups: list[WeightView]


class PauseIn(Dated):
    """Why, and until when; without `until` it stays until resumed."""

    reason: Reason | None = None
    until: Instant | None = None


class ActedOut(Out):
    """`asked`: the job is running, and its worker was asked to stop it."""

    id: str
    acted: Literal["done", "asked"]


class WorkerReclaimed(Out):
    """How many runs of the worker were taken back."""

    worker: str
    reclaimed: int


class Replayed(Out):
    """The new job, whose parent is the dead one."""

    id: str
    parent_id: str


class Controlled(Out):
    """`changed` is false when it was so already."""

    changed: bool
