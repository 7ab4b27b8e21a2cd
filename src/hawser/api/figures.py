"""What the screens of the dashboard show, as types: the overview, tasks in figures, and why a queue is behind."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from hawser.api.bodies import Dated, In, Instant, Out
from hawser.api.views import GroupView, PauseView, StatsView
from hawser.store import Durability

Minutes = Annotated[int, Meta(ge=5, le=24 * 60)]
"""How far back, the present minute included; figures per minute are kept for a day."""


class WindowQuery(Dated):
    """Which time the charts are of, and what is told beside them of that time: the last `minutes`, or from `since` until `until`.
    How things stand is told of now."""

    minutes: Minutes = 60
    since: Instant | UnsetType = UNSET
    """In place of `minutes`; figures are kept for a day."""
    until: Instant | UnsetType = UNSET


class OverviewQuery(WindowQuery):
    """Of a store with very many queues the overview is large; whoever shows a few need not ask for all."""

    queues: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """How many queues are listed at most, those that are furthest behind; all unless it is given."""


class Series(Out):
    """What happened in each step, oldest first, as columns. Percentiles are seconds, null without any."""

    start: datetime
    at: datetime
    """The time by the server's clock. A step that ends later is not over, and has its counts so far."""
    step: int
    """Minutes of a step."""
    enqueued: list[int]
    done: list[int]
    failed: list[int]
    dead: list[int]
    wait_p50: list[float | None]
    wait_p95: list[float | None]
    wait_p99: list[float | None]
    run_p50: list[float | None]
    run_p95: list[float | None]
    run_p99: list[float | None]
    waiting: list[int] | None = None
    """About how many waited at the end of each step, reckoned back from now; null where it is not told."""


class StatusView(Out):
    """How things stand, in a sentence. `queue` is the one that the sentence is about."""

    level: Literal["good", "warning", "bad", "idle"]
    text: str
    queue: str | None
    more: list[str]
    """What else is wrong."""


class QueueLine(Out):
    """A queue in a table. Rates are per second, over the last five minutes; in a younger store since its first job."""

    queue: str
    waiting: int
    """Due, tried before or not."""
    scheduled: int
    retrying: int
    held: int
    """Waiting for other jobs."""
    running: int
    dead: int
    behind_s: float
    """How long the job that is due for longest has been due."""
    in_s: float
    out_s: float
    failed_s: float
    failure_share: float | None
    """Failed attempts of all that ended within five minutes; null when fewer than ten did."""
    eta_s: float | None
    """Seconds until nothing waits, as things go; null when more comes in than goes out, or nothing waits."""
    slots: int
    busy: int
    """Of the living workers that serve it; they may serve other queues, too."""
    workers: int
    pause: PauseView | None
    spark: list[int]
    """Jobs that ended well in each of the last 30 minutes that are over."""
    exact: bool
    """False when `waiting` is a lower bound."""


class WorkersView(Out):
    """The workers in figures."""

    alive: int
    lost: int
    """Not heard of for half a minute, and not ended in order."""
    draining: int
    slots: int
    busy: int
    stuck: int


class NextTick(Out):
    schedule: str
    task: str
    next_tick: datetime | None
    words: str
    state: str


class Mark(Out):
    """Something that happened, for the charts: what an operator did, a version of the app that began to work (`deploy`), one of
    Hawser (`upgrade`), a worker that was `lost`. An operation on many jobs is one mark."""

    at: datetime
    action: str
    target: str


class OverviewOut(Out):
    """The first screen: computed at most twice a second, however many look."""

    at: datetime
    minutes: int
    status: StatusView
    totals: StatsView
    durability: Durability
    workers: WorkersView
    queues: list[QueueLine]
    """The one that is furthest behind first."""
    series: Series
    dead_in_window: int
    groups: list[GroupView]
    """The groups of dead jobs that grew in this window, the largest first."""
    schedules: list[NextTick]
    marks: list[Mark]


class TaskLine(Out):
    """A task in figures, over the window."""

    task: str
    queues: list[str]
    waiting: int
    enqueued: int
    done: int
    failed: int
    """Attempts that failed."""
    dead: int
    failure_share: float | None
    """Failed attempts of all that ended; null without any."""
    wait_p50: float | None
    wait_p95: float | None
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None
    spark: list[int]
    """Jobs that ended well, in 30 steps of the window without the minute that is not over."""
    pause: PauseView | None
    known: bool
    """The app of this server has it."""


class TaskStatsQuery(In):
    """The tasks with the most events first."""

    minutes: Minutes = 60


class TaskStatsOut(Out):
    tasks: list[TaskLine]
    complete: bool
    """False when there are more tasks than are listed."""


Verdict = Literal["problem", "notice", "fine"]


class CheckView(Out):
    """One possible reason why a queue is behind."""

    check: str
    verdict: Verdict
    text: str
    """What was found, with its figures."""
    advice: str | None
    """What to do about it."""


class WhyTask(Out):
    """A task of the queue: its share of what comes in and of what waits."""

    task: str
    waiting: int
    in_s: float
    in_before_s: float
    failed_s: float
    run_p95: float | None
    run_p95_before: float | None


class WhyOut(Out):
    """Why a queue is behind. The headline is the first problem among the checks."""

    queue: QueueLine
    level: Literal["good", "warning", "bad", "idle"]
    headline: str
    checks: list[CheckView]
    tasks: list[WhyTask]
    series: Series
    marks: list[Mark]


class TimesView(Out):
    """How long jobs waited, or ran, in one minute: seconds, estimated within buckets; null without any."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None


class MinuteView(Out):
    minute: datetime
    counts: dict[str, int]
    """Enqueued, claimed, done, failed, dead, …"""
    wait: TimesView
    run: TimesView


class HistoryOut(Out):
    """Oldest first; minutes in which nothing happened, too. With a step each stands for so many minutes from its own on."""

    minutes: list[MinuteView]
    at: datetime
    """The time by the server's clock. What ends later is not over, and has its counts so far."""
    step: int
    complete: bool
    """False when figures of a part of the time are no longer kept."""
