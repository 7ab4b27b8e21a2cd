"""What the screens read of the store, once for all of them, and the facts that a diagnosis rests on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from hawser.api.call import Call
from hawser.api.diagnosis import ENOUGH_ATTEMPTS, Facts, TaskFacts
from hawser.api.figures import (
    QueueLine,
)
from hawser.client.explain import is_alive
from hawser.clock import at, from_datetime
from hawser.store import EVERY_QUEUE, Beat, BreakerStatus, LimitUse, Pause, QueueStats, WorkerSeen
from hawser.store.rollup import EventCount, LaneDepth
from hawser.stores.tally import ENDED_WITH, rate_seconds

RECENT: Final = 5
"""Minutes that count as now, in comparisons with the hour before."""

LEAST_HISTORY_MINUTES: Final = 10
"""Minutes before them that must be covered for a comparison: fewer say nothing of what is usual."""


class Beats(NamedTuple):
    """Beats of workers, by the queues that they name. A store may have a thousand queues and hundreds of workers."""

    beats: Sequence[Beat]
    by_queue: Mapping[str, Sequence[Beat]]

    @classmethod
    def of(cls, beats: Sequence[Beat]) -> Beats:
        by_queue: defaultdict[str, list[Beat]] = defaultdict(list)
        for beat in beats:
            for queue in {EVERY_QUEUE} if EVERY_QUEUE in beat.queues else set(beat.queues):
                by_queue[queue].append(beat)
        return cls(beats, by_queue)

    def serving(self, queue: str) -> list[Beat]:
        return [*self.by_queue.get(queue, ()), *self.by_queue.get(EVERY_QUEUE, ())]


class StoreState(NamedTuple):
    """What every screen needs of the store, read once."""

    now: datetime
    queues: Mapping[str, QueueStats]
    pauses: Sequence[Pause]
    limits: Sequence[LimitUse]
    breakers: Sequence[BreakerStatus]
    workers: Sequence[WorkerSeen]
    alive: Beats
    gone: Beats
    """Of workers that fell silent, and did not end in order."""
    lanes: Mapping[str, Sequence[LaneDepth]]
    """By queue."""
    counts: Sequence[EventCount]
    by_queue: Mapping[str, Sequence[EventCount]]
    ended: Mapping[str, Mapping[int, int]]
    """By queue: jobs that ended within the last minutes, by their attempts."""
    oldest: int | None
    """The first minute that anything was counted in, of those that were read."""

    @property
    def this(self) -> int:
        return int(self.now.timestamp() // 60)

    @property
    def covered(self) -> int:
        """Minutes since the first count, with this one; at least one."""
        return 1 if self.oldest is None else max(1, self.this - self.oldest + 1)

    @property
    def recent_s(self) -> float:
        """Seconds that figures of the last minutes are of, as of the store's own rates."""
        return rate_seconds(from_datetime(self.now), self.oldest)

    def recent(self, queue: str, event: str) -> int:
        """How often it happened in the last minutes."""
        counts = self.by_queue.get(queue, ())
        return sum(each.count for each in counts if each.event == event and self.this - each.minute < RECENT)

    def serving(self, queue: str) -> list[Beat]:
        return self.alive.serving(queue)

    def lost(self, queue: str | None = None) -> Sequence[Beat]:
        return self.gone.beats if queue is None else self.gone.serving(queue)

    def paused(self, kind: str, name: str) -> Pause | None:
        return next((each for each in self.pauses if each.target.kind == kind and each.target.name == name), None)


async def read_state(call: Call[Any, Any], minutes: int, step: int = 1) -> StoreState:
    """With the counts of so many minutes, those that are over in steps."""
    store = call.store
    counts = await call.api.past.event_counts(store, minutes, ["enqueued", "done", "failed", "dead"], step)
    by_queue: defaultdict[str, list[EventCount]] = defaultdict(list)
    for each in counts:
        by_queue[each.queue].append(each)
    ended: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for each in await store.event_counts(RECENT, list(ENDED_WITH)):
        ended[each.queue][ENDED_WITH[each.event]] += each.count
    now, queues, pauses = at(call.app.clock.now()), await store.queues(), await store.pauses()
    limits, breakers, workers = await store.limits(), await store.breakers(), await store.workers()
    lanes: defaultdict[str, list[LaneDepth]] = defaultdict(list)
    for lane in await store.lanes():
        lanes[lane.queue].append(lane)
    return StoreState(
        now=now,
        queues=queues,
        pauses=pauses,
        limits=limits,
        breakers=breakers,
        workers=workers,
        alive=Beats.of([each.beat for each in workers if is_alive(each, now)]),
        gone=Beats.of([each.beat for each in workers if not is_alive(each, now)]),
        lanes=lanes,
        counts=counts,
        by_queue=by_queue,
        ended=ended,
        oldest=min((each.minute for each in counts), default=None),
    )


def facts_of(seen: StoreState, line: QueueLine) -> Facts:
    """What the checks need and every screen has; times are added where one queue is looked at."""
    queue = line.queue
    tasks = _task_facts(seen, queue)
    waiting = {each.task for each in tasks if each.waiting}
    return Facts(
        queue=queue,
        stats=seen.queues.get(queue) or QueueStats(),
        pause=seen.paused("queue", queue),
        task_pauses=[each for each in seen.pauses if each.target.kind == "task" and each.target.name in waiting],
        serving=seen.serving(queue),
        lost=seen.lost(queue),
        shut=[use for use in seen.limits if use.shut and _concerns(use, queue, waiting)],
        open=[each for each in seen.breakers if each.open and each.task in waiting],
        in_s=line.in_s,
        in_before_s=sum(each.in_before_s for each in tasks) if seen.covered >= RECENT + LEAST_HISTORY_MINUTES else None,
        out_s=line.out_s,
        failure_share=line.failure_share,
        retry_share=_retry_share(seen.ended.get(queue, {})),
        died=sum(each.count for each in seen.by_queue.get(queue, ()) if each.event == "dead" and seen.this - each.minute < 60),
        counted=seen.recent(queue, "done") + seen.recent(queue, "failed"),
        tasks=tasks,
        first=_goes_first(seen, queue),
    )


def _concerns(use: LimitUse, queue: str, tasks: Collection[str]) -> bool:
    return use.target.name == queue if use.target.kind == "queue" else use.target.name in tasks


def _retry_share(ended: Mapping[int, int]) -> float | None:
    """Second and later attempts among all of the jobs that ended; None when there were too few."""
    attempts = sum(each * count for each, count in ended.items())
    return 1 - sum(ended.values()) / attempts if attempts >= ENOUGH_ATTEMPTS else None


def _task_facts(seen: StoreState, queue: str) -> list[TaskFacts]:
    spans = max(1, seen.covered - RECENT)
    now, before, failed, waiting = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for each in seen.by_queue.get(queue, ()):
        recent = seen.this - each.minute < RECENT
        if each.event == "enqueued":
            (now if recent else before)[each.task] += each.count
        elif each.event == "failed" and recent:
            failed[each.task] += each.count
    for lane in seen.lanes.get(queue, ()):
        waiting[lane.task] += lane.waiting
    names = sorted({*now, *before, *failed, *waiting}, key=lambda name: (-waiting[name], -now[name], name))
    return [
        TaskFacts(
            task=name,
            waiting=waiting[name],
            in_s=now[name] / seen.recent_s,
            in_before_s=before[name] / (spans * 60),
            failed_s=failed[name] / seen.recent_s,
        )
        for name in names
    ]


def _goes_first(seen: StoreState, queue: str) -> list[tuple[str, int]]:
    """Higher priorities of the queue itself whose jobs are younger, and queues that all its workers name before it."""
    serving = seen.serving(queue)
    others = {name for beat in serving for name in beat.queues if name != queue}
    first = [
        (f"queue {name}", seen.queues[name].due)
        for name in sorted(others)
        if name in seen.queues
        and seen.queues[name].due
        and seen.queues[name].oldest_age_s < seen.queues.get(queue, QueueStats()).oldest_age_s / 2
    ]
    ours = sorted((lane for lane in seen.lanes.get(queue, ()) if lane.oldest_age_s), key=lambda lane: -lane.oldest_age_s)
    if ours:
        above = [lane for lane in ours if lane.priority > ours[0].priority]
        if above:
            first.append((f"priority {max(lane.priority for lane in above)}", sum(lane.waiting for lane in above)))
    return sorted(first, key=lambda each: -each[1])
