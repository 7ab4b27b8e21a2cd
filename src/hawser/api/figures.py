"""What the screens of the dashboard show, as types: the overview, tasks in figures, and why a queue is behind."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from hawser.api.bodies import In, Out
from hawser.api.views import GroupView, PauseView, StatsView
from hawser.store import Durability

Minutes = Annotated[int, Meta(ge=5, le=24 * 60)]
"""How far back, the present minute included; figures per minute are kept for a day."""


class WindowQuery(In):
    minutes: Minutes = 60


class Series(Out):
    """What happened in each step, oldest first, as columns. Percentiles are seconds, null without any."""

    start: datetime
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


class StatusView(Out):
    """How things stand, in a sentence. `queue` is the one that the sentence is about."""

    level: Literal["good", "warning", "bad", "idle"]
    text: str
    queue: str | None
    more: list[str]
    """What else is wrong."""


class QueueLine(Out):
    """A queue in a table. Rates are per second, over the last five minutes."""

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
    eta_s: float | None
    """Seconds until nothing waits, as things go; null when more comes in than goes out, or nothing waits."""
    slots: int
    busy: int
    """Of the living workers that serve it; they may serve other queues, too."""
    workers: int
    pause: PauseView | None
    spark: list[int]
    """Jobs that ended well in each of the last 30 minutes."""
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
    """Something that an operator did, for the charts."""

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
    """Jobs that ended well, in 30 steps of the window."""
    pause: PauseView | None
    known: bool
    """The app of this server has it."""


class TaskStatsQuery(WindowQuery):
    """The tasks with the most events first."""


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
