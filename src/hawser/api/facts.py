"""What the screens read of the store, once for all of them, and the facts that a diagnosis rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from hawser.api.call import Call
from hawser.api.diagnosis import Facts, TaskFacts
from hawser.api.figures import (
    QueueLine,
)
from hawser.client.explain import is_alive
from hawser.clock import at
from hawser.store import Beat, BreakerStatus, LimitUse, Pause, QueueStats, WorkerSeen
from hawser.store.rollup import EventCount, LaneDepth

RECENT: Final = 5
"""Minutes that count as now, in comparisons with the hour before."""


class StoreState(NamedTuple):
    """What every screen needs of the store, read once."""

    now: datetime
    queues: Mapping[str, QueueStats]
    pauses: Sequence[Pause]
    limits: Sequence[LimitUse]
    breakers: Sequence[BreakerStatus]
    workers: Sequence[WorkerSeen]
    lanes: Sequence[LaneDepth]
    counts: Sequence[EventCount]

    def serving(self, queue: str) -> list[Beat]:
        return [seen.beat for seen in self.workers if is_alive(seen, self.now) and seen.beat.serves(queue)]

    def lost(self, queue: str | None = None) -> list[Beat]:
        gone = [seen.beat for seen in self.workers if not is_alive(seen, self.now)]
        return [beat for beat in gone if queue is None or beat.serves(queue)]

    def paused(self, kind: str, name: str) -> Pause | None:
        return next((each for each in self.pauses if each.target.kind == kind and each.target.name == name), None)


async def read_state(call: Call[Any, Any], minutes: int) -> StoreState:
    store = call.store
    return StoreState(
        at(call.app.clock.now()),
        await store.queues(),
        await store.pauses(),
        await store.limits(),
        await store.breakers(),
        await store.workers(),
        await store.lanes(),
        await store.event_counts(minutes, ["enqueued", "done", "failed", "dead"]),
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
        in_before_s=sum(each.in_before_s for each in tasks),
        out_s=line.out_s,
        failed_s=line.failed_s,
        counted=round((line.out_s + line.failed_s) * RECENT * 60),
        tasks=tasks,
        first=_goes_first(seen, queue),
    )


def _concerns(use: LimitUse, queue: str, tasks: Collection[str]) -> bool:
    return use.target.name == queue if use.target.kind == "queue" else use.target.name in tasks


def _task_facts(seen: StoreState, queue: str) -> list[TaskFacts]:
    this = int(seen.now.timestamp() // 60)
    spans = max(1, max((this - each.minute for each in seen.counts), default=0) + 1 - RECENT)
    now, before, failed, waiting = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for each in seen.counts:
        if each.queue != queue:
            continue
        recent = this - each.minute < RECENT
        if each.event == "enqueued":
            (now if recent else before)[each.task] += each.count
        elif each.event == "failed" and recent:
            failed[each.task] += each.count
    for lane in seen.lanes:
        if lane.queue == queue:
            waiting[lane.task] += lane.waiting
    names = sorted({*now, *before, *failed, *waiting}, key=lambda name: (-waiting[name], -now[name], name))
    return [
        TaskFacts(
            task=name,
            waiting=waiting[name],
            in_s=now[name] / (RECENT * 60),
            in_before_s=before[name] / (spans * 60),
            failed_s=failed[name] / (RECENT * 60),
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
    ours = sorted((lane for lane in seen.lanes if lane.queue == queue and lane.oldest_age_s), key=lambda lane: -lane.oldest_age_s)
    if ours:
        above = [lane for lane in ours if lane.priority > ours[0].priority]
        if above:
            first.append((f"priority {max(lane.priority for lane in above)}", sum(lane.waiting for lane in above)))
    return sorted(first, key=lambda each: -each[1])
