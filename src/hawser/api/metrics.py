"""`/metrics` and `/history`: figures for Prometheus, and for charts without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hawser.api.bodies import HistoryQuery, or_none
from hawser.api.call import Answer, Call, NoBody, NoQuery, Text
from hawser.api.problem import Problem
from hawser.api.views import HistoryOut, MinuteView, TimesView
from hawser.client.explain import is_alive
from hawser.clock import at
from hawser.errors import MissingExtra, StoreError
from hawser.store import QueueStats
from hawser.store.rollup import LaneDepth, Rollup, percentile
from hawser.telemetry import metric
from hawser.telemetry.exposition import MEDIA_TYPE, Gauge, expose
from hawser.telemetry.logs import dropped_lines
from hawser.telemetry.meter import Readings

_STATES: Final = ("ready", "scheduled", "retrying", "held", "running", "done", "dead", "cancelled")


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
        return Text(expose(readings, gauges), MEDIA_TYPE)
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
    return [*found, Gauge(metric.WORKERS, alive), Gauge(metric.AWAITING, await store.awaiting())]


def _of_queues(queues: dict[str, QueueStats]) -> Iterator[Gauge]:
    for queue, stats in queues.items():
        yield from (Gauge(metric.JOBS, getattr(stats, state), (queue, state)) for state in _STATES)
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
    query = call.query
    rollups = await call.store.rollups(query.minutes, or_none(query.queue), or_none(query.task))
    return Answer(HistoryOut(minutes=[_minute(rollup) for rollup in rollups]))


def _minute(rollup: Rollup) -> MinuteView:
    return MinuteView(minute=rollup.minute, counts=rollup.counts, wait=_times(rollup.wait), run=_times(rollup.run))


def _times(counts: Sequence[int]) -> TimesView:
    return TimesView(count=sum(counts), p50=percentile(counts, 0.5), p95=percentile(counts, 0.95), p99=percentile(counts, 0.99))
