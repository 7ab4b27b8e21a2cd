"""`/metrics` and `/history`: figures for Prometheus, and for charts without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import UNSET

from hawser.api.bodies import HistoryQuery, or_none
from hawser.api.call import Answer, Call, NoBody, NoQuery, Text
from hawser.api.figures import HistoryOut, MinuteView, TimesView
from hawser.api.problem import Problem
from hawser.api.series import HISTORY_MINUTES, sum_times
from hawser.client.explain import is_alive
from hawser.clock import at, from_datetime
from hawser.errors import MissingExtra, StoreError
from hawser.store import QueueStats
from hawser.store.rollup import LaneDepth, Rollup, percentile
from hawser.telemetry import metric
from hawser.telemetry.exposition import METRICS_MEDIA_TYPE, Gauge, expose
from hawser.telemetry.logs import dropped_lines
from hawser.telemetry.meter import Readings

MINUTE: Final = 60_000_000
_STATE_NAMES: Final = ("ready", "scheduled", "retrying", "held", "running", "done", "dead", "cancelled")


async def metrics(call: Call[NoBody, NoQuery]) -> Text:
    """Metrics of this server and of its store, in the text format of Prometheus."""
    try:
        await call.api.totals.read(call.store)
        gauges = [Gauge(metric.UP, await _takes_writes(call)), *await _gauges(call)]
    except StoreError:
        gauges = [Gauge(metric.UP, 0)]
    readings = Readings()
    readings.merge(call.api.readings)
    call.api.totals.add_to(readings)
    readings.count(metric.LOG_LINES, (), dropped_lines())
    try:
        return Text(expose(readings, gauges), METRICS_MEDIA_TYPE)
    except MissingExtra as error:
        raise Problem(503, str(error)) from None


async def _takes_writes(call: Call[NoBody, NoQuery]) -> bool:
    try:
        await call.api.readiness.check(call.store)
    except (StoreError, TimeoutError):
        return False
    return True


async def _gauges(call: Call[NoBody, NoQuery]) -> list[Gauge]:
    store = call.store
    found = [*_of_queues(await store.queues()), *_of_lanes(await store.lanes())]
    found += [Gauge(metric.PAUSED, 1, (pause.target.kind, pause.target.name)) for pause in await store.pauses()]
    found += [Gauge(metric.BREAKER_OPEN, int(status.open), (status.task,)) for status in await store.breakers()]
    found += [Gauge(metric.BATCHES, count, (state,)) for state, count in (await store.live_batches()).items()]
    for use in await store.limits():
        labels = use.target.kind, use.target.name
        if use.limit.per_group:
            found.append(Gauge(metric.LIMIT_SHUT_GROUPS, use.shut_groups, (use.target.name,)))
        found += [Gauge(metric.LIMIT_RUNNING, use.running, labels), Gauge(metric.LIMIT_SHUT, int(use.shut), labels)]
    now = at(call.app.clock.now())
    alive = sum(is_alive(seen, now) for seen in await store.workers())
    found += [Gauge(metric.AWAITING, await store.awaiting()), Gauge(metric.FAILOVERS, await store.failovers())]
    return [*found, Gauge(metric.WORKERS, alive)]


def _of_queues(queues: dict[str, QueueStats]) -> Iterator[Gauge]:
    for queue, stats in queues.items():
        yield from (Gauge(metric.JOBS, getattr(stats, state), (queue, state)) for state in _STATE_NAMES)
        yield from (Gauge(metric.EVENTS, rate, (queue, event)) for event, rate in stats.rates.items())


def _of_lanes(lanes: Sequence[LaneDepth]) -> Iterator[Gauge]:
    oldest: dict[tuple[str, str], float] = {}
    for lane in lanes:
        yield Gauge(metric.WAITING, lane.waiting, (lane.queue, lane.task, str(lane.priority)))
        where = (lane.queue, str(lane.priority))
        oldest[where] = max(oldest.get(where, 0.0), lane.oldest_age_s)
    yield from (Gauge(metric.OLDEST, age, where) for where, age in oldest.items())


async def history(call: Call[NoBody, HistoryQuery]) -> Answer:
    """What happened in each of the last minutes; percentiles are of waits and runs in seconds."""
    query, minutes = call.query, call.query.minutes
    if query.since is not UNSET:
        minutes = max(1, int(call.app.clock.now() // MINUTE - from_datetime(query.since) // MINUTE) + 1)
    rollups = await call.api.past.rollups(call.store, min(minutes, HISTORY_MINUTES), or_none(query.queue), or_none(query.task))
    if query.until is not UNSET:
        rollups = [each for each in rollups if each.minute < query.until]
    parts = [rollups[first : first + query.step] for first in range(0, len(rollups), query.step)]
    return Answer(
        HistoryOut(
            minutes=[_together(part) for part in parts],
            at=at(call.app.clock.now()),
            step=query.step,
            complete=minutes <= HISTORY_MINUTES,
        )
    )


def _together(part: Sequence[Rollup]) -> MinuteView:
    counts: Counter[str] = Counter()
    for rollup in part:
        counts.update(rollup.counts)
    wait, run = _times(sum_times(part, "wait")), _times(sum_times(part, "run"))
    return MinuteView(minute=part[0].minute, counts=dict(counts), wait=wait, run=run)


def _times(counts: Sequence[int]) -> TimesView:
    return TimesView(count=sum(counts), p50=percentile(counts, 0.5), p95=percentile(counts, 0.95), p99=percentile(counts, 0.99))
