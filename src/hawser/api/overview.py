"""`/overview`, `/queues/{queue}/why`, `/tasks/stats`: what the dashboard shows first. Each is found out once for all who look."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from hawser.api.call import Answer, Call, NoBody
from hawser.api.control import named
from hawser.api.diagnosis import ENOUGH_ATTEMPTS, Facts, Level, diagnose
from hawser.api.facts import RECENT, StoreState, facts_of, read_state
from hawser.api.figures import (
    NextTick,
    OverviewOut,
    OverviewQuery,
    QueueLine,
    StatusView,
    TaskLine,
    TaskStatsOut,
    TaskStatsQuery,
    WhyOut,
    WhyTask,
    WindowQuery,
    WorkersView,
)
from hawser.api.groups import group_view
from hawser.api.marks import of_workers
from hawser.api.series import Span, at_ends, series_of, span_of, step_of, sum_times, times_by_task, waiting_of
from hawser.api.views import StatsView, pause_view, stats_fields
from hawser.clock import at
from hawser.store import QueueStats, Store
from hawser.store.rollup import EventCount, Rollup, percentile

SPARK: Final = 30
"""Points of a small chart in a table."""

SHOWN_GROUPS: Final = 6
SHOWN_TICKS: Final = 6
SHOWN_IN_QUEUE: Final = 10
SHOWN_SLOWER: Final = 3
"""Tasks of a queue whose times are looked up for its own screen, and for a sentence."""

SHOWN_TASKS: Final = 200
"""The busiest ones."""

_WORST: Final[dict[Level, int]] = {"bad": 0, "warning": 1, "good": 2, "idle": 3}


async def overview(call: Call[NoBody, OverviewQuery]) -> Answer:
    """Everything at a glance: a sentence, figures, queues, charts, why jobs died, what comes next."""
    span, most = span_of(call.query, at(call.app.clock.now())), call.query.queues
    found = await call.api.screens.get(("overview", span), lambda: _overview(call, span))
    return Answer(found if most is UNSET else replace(found, queues=found.queues[:most]))


async def why(call: Call[NoBody, WindowQuery]) -> Answer:
    """Why a queue is behind, or what would put it behind: each possible reason with its figures."""
    queue, span = named("queue", call.path["queue"]), span_of(call.query, at(call.app.clock.now()))
    return Answer(await call.api.screens.get(("why", queue, span), lambda: _why(call, queue, span)))


async def task_stats(call: Call[NoBody, TaskStatsQuery]) -> Answer:
    """Tasks in figures over a window: how many, how long, how often they fail."""
    minutes = call.query.minutes
    return Answer(await call.api.screens.get(("tasks", minutes), lambda: _task_stats(call, minutes)))


async def _overview(call: Call[Any, Any], span: Span) -> OverviewOut:
    seen = await read_state(call, 60 + RECENT)
    totals = await call.app.astats()
    lines = sorted((_line(seen, queue) for queue in seen.queues), key=lambda each: (-each.behind_s, -each.waiting, each.queue))
    since = span.begin(seen.now)
    found = await call.store.dead_groups(None, None, 100)
    rollups = await call.api.past.rollups(call.store, span.minutes)
    shown = span.of(rollups)
    step = step_of(len(shown))
    series = series_of(shown, step, seen.now)
    waited = waiting_of(rollups, totals.ready + totals.scheduled + totals.retrying)
    series.waiting = at_ends(waited[: len(shown)], step)
    deploy = await call.api.marks.newest_deploy(call.store)
    recent = [group_view(group, deploy) for group in found.groups if group.sample.finished_at >= since]
    return OverviewOut(
        at=seen.now,
        minutes=span.minutes,
        status=await _status(call, seen, lines),
        totals=StatsView(**stats_fields(totals)),
        durability=call.store.durability,
        workers=_workers(seen),
        queues=lines,
        series=series,
        dead_in_window=sum(series.dead),
        groups=recent[:SHOWN_GROUPS],
        schedules=await _next_ticks(call.store),
        marks=span.marks([*of_workers(seen, since), *await call.api.marks.since(call.store, since)]),
    )


def _line(seen: StoreState, queue: str) -> QueueLine:
    stats = seen.queues.get(queue) or QueueStats()
    serving = seen.serving(queue)
    in_s = stats.rates.get("enqueued", 0.0)
    out_s = sum(stats.rates.get(event, 0.0) for event in ("done", "dead", "cancelled"))
    failed = seen.recent(queue, "failed")
    ended = failed + seen.recent(queue, "done")
    return QueueLine(
        queue=queue,
        waiting=stats.due,
        scheduled=stats.scheduled,
        retrying=stats.retrying,
        held=stats.held,
        running=stats.running,
        dead=stats.dead,
        behind_s=stats.oldest_age_s if stats.due else 0.0,
        in_s=in_s,
        out_s=out_s,
        failed_s=stats.rates.get("failed", 0.0),
        failure_share=failed / ended if ended >= ENOUGH_ATTEMPTS else None,
        eta_s=stats.due / (out_s - in_s) if stats.due and out_s > in_s else None,
        slots=sum(beat.slots for beat in serving),
        busy=sum(min(beat.running, beat.slots) for beat in serving),
        workers=len(serving),
        pause=pause_view(seen.paused("queue", queue)),
        spark=_spark(seen, SPARK, (each for each in seen.by_queue.get(queue, ()) if each.event == "done")),
        exact=stats.exact,
    )


def _spark(seen: StoreState, minutes: int, counts: Iterable[EventCount]) -> list[int]:
    """The window in `SPARK` steps, up to the last minute that is over."""
    last = seen.this - 1
    found = [0] * SPARK
    for each in counts:
        age = last - each.minute
        if 0 <= age < minutes:
            found[SPARK - 1 - age * SPARK // minutes] += each.count
    return found


def _workers(seen: StoreState) -> WorkersView:
    alive = seen.alive.beats
    return WorkersView(
        alive=len(alive),
        lost=len(seen.lost()),
        draining=sum(beat.draining for beat in alive),
        slots=sum(beat.slots for beat in alive),
        busy=sum(min(beat.running, beat.slots) for beat in alive),
        stuck=sum(beat.stuck for beat in alive),
    )


async def _status(call: Call[Any, Any], seen: StoreState, lines: Sequence[QueueLine]) -> StatusView:
    """The worst queue in a sentence, the same as on its own screen; what else is wrong behind it."""
    found = [(line, diagnose(facts_of(seen, line))) for line in lines]
    found.sort(key=lambda each: (_WORST[each[1].level], -each[0].behind_s))
    wrong = [(line.queue, diagnosis) for line, diagnosis in found if diagnosis.level in ("bad", "warning")]
    if wrong:
        queue, diagnosis = wrong[0]
        facts = facts_of(seen, next(line for line in lines if line.queue == queue))
        if facts.behind:
            rollups = await call.api.past.rollups(call.store, 60 + RECENT, queue)
            diagnosis = diagnose(await _timed(call, facts, rollups, SHOWN_SLOWER))
        return StatusView(
            level=diagnosis.level, text=diagnosis.headline, queue=queue, more=[each.headline for _, each in wrong[1:4]]
        )
    lost = seen.lost()
    if lost:
        text = f"{len(lost):,} worker{'' if len(lost) == 1 else 's'} lost: not heard of for half a minute"
        return StatusView(level="warning", text=text, queue=None, more=[])
    in_s, out_s = sum(line.in_s for line in lines), sum(line.out_s for line in lines)
    if not in_s and not out_s:
        text = "Nothing to do: no job came in within five minutes" if lines else "No job has been enqueued yet"
        return StatusView(level="idle", text=text, queue=None, more=[])
    text = f"All queues keep up: {_words(in_s)} come in, {_words(out_s)} go out"
    return StatusView(level="good", text=text, queue=None, more=[])


def _words(per_second: float) -> str:
    return f"{per_second:,.1f} jobs/s" if per_second >= 1 else f"{per_second * 60:,.1f} jobs/min"


async def _next_ticks(store: Store) -> list[NextTick]:
    return [
        NextTick(schedule=each.name, task=each.task, next_tick=each.next_tick, words=each.words, state=each.state)
        for each in await store.next_schedules(SHOWN_TICKS)
    ]


async def _why(call: Call[Any, Any], queue: str, span: Span) -> WhyOut:
    store = call.store
    seen = await read_state(call, 60 + RECENT)
    line = _line(seen, queue)
    rollups = await call.api.past.rollups(store, max(span.minutes, 60 + RECENT), queue)
    facts = await _timed(call, facts_of(seen, line), rollups, SHOWN_IN_QUEUE)
    diagnosis = diagnose(facts)
    since, shown = span.begin(seen.now), span.of(rollups)
    return WhyOut(
        queue=line,
        level=diagnosis.level,
        headline=diagnosis.headline,
        checks=diagnosis.checks,
        tasks=[
            WhyTask(**{name: getattr(each, name) for name in WhyTask.__struct_fields__}) for each in facts.tasks[:SHOWN_IN_QUEUE]
        ],
        series=series_of(shown, step_of(len(shown)), seen.now),
        marks=span.marks(
            [
                *of_workers(seen, since),
                *(
                    mark
                    for mark in await call.api.marks.since(store, since)
                    if mark.target.startswith(("jobs", "version:", f"queue:{queue}"))
                ),
            ]
        ),
    )


async def _timed(call: Call[Any, Any], facts: Facts, rollups: Sequence[Rollup], most: int) -> Facts:
    """With how long jobs take now and took the hour before: of the queue, and of so many of its tasks."""
    runs, before = sum_times(rollups[-RECENT:], "run"), sum_times(rollups[:-RECENT][-60:], "run")
    now = times_by_task(await call.store.times(RECENT, facts.queue))
    both = await call.api.past.times(call.store, 60 + RECENT)
    all_ = times_by_task([each for each in both if each.queue == facts.queue])

    def compared(task: str) -> dict[str, float | None]:
        recent, whole = now[task, "run"], all_[task, "run"]
        earlier = [max(0, all_of - late) for all_of, late in zip(whole, recent, strict=True)]
        return {"run_p95": percentile(recent, 0.95), "run_p95_before": percentile(earlier, 0.95)}

    tasks = [replace(each, **compared(each.task)) if index < most else each for index, each in enumerate(facts.tasks)]
    return replace(facts, tasks=tasks, run_p95=percentile(runs, 0.95), run_p95_before=percentile(before, 0.95))


async def _task_stats(call: Call[Any, Any], minutes: int) -> TaskStatsOut:
    seen = await read_state(call, minutes, step_of(minutes))
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    queues: defaultdict[str, set[str]] = defaultdict(set)
    by_task: defaultdict[str, list[EventCount]] = defaultdict(list)
    for each in seen.counts:
        counts[each.task][each.event] += each.count
        queues[each.task].add(each.queue)
        by_task[each.task].append(each)
    for lane in (lane for lanes in seen.lanes.values() for lane in lanes):
        counts[lane.task]["waiting"] += lane.waiting
        queues[lane.task].add(lane.queue)
    known = call.app.tasks
    names = sorted({*counts, *known}, key=lambda name: (-sum(counts[name].values()), name))
    lines = []
    times = times_by_task(await call.api.past.times(call.store, minutes))
    for name in names[:SHOWN_TASKS]:
        wait, run = times[name, "wait"], times[name, "run"]
        sums = counts[name]
        ended = sums["done"] + sums["failed"]
        lines.append(
            TaskLine(
                task=name,
                queues=sorted(queues[name]) or ([known[name].template.queue] if name in known else []),
                waiting=sums["waiting"],
                enqueued=sums["enqueued"],
                done=sums["done"],
                failed=sums["failed"],
                dead=sums["dead"],
                failure_share=sums["failed"] / ended if ended else None,
                wait_p50=percentile(wait, 0.5),
                wait_p95=percentile(wait, 0.95),
                run_p50=percentile(run, 0.5),
                run_p95=percentile(run, 0.95),
                run_p99=percentile(run, 0.99),
                spark=_spark(seen, minutes, (each for each in by_task[name] if each.event == "done")),
                pause=pause_view(seen.paused("task", name)),
                known=name in known,
            )
        )
    return TaskStatsOut(tasks=lines, complete=len(names) <= SHOWN_TASKS)
