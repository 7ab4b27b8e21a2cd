"""Why a job is not running, told from what the store knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, assert_never

from hawser.batch import Batch, BatchState
from hawser.job import Job, State
from hawser.policy import QueuePolicy
from hawser.store import (
    WAIT_COUNTED,
    Beat,
    BreakerStatus,
    GroupWait,
    LimitUse,
    Pause,
    QueueStats,
    RecordedStep,
    Store,
    Waits,
    WorkerSeen,
)

ALIVE_FOR: Final = 30.0
"""Seconds since its last sign of life for which a worker counts as alive."""


async def why(store: Store, job: Job, now: datetime) -> str | None:
    """Why a job is not running, in one line; None when it runs or has ended."""
    return "; ".join(await holds(store, job, now)) or None


async def holds(store: Store, job: Job, now: datetime) -> list[str]:
    """What keeps a job from running, and until when it may start; nothing when it runs or has ended."""
    found = await _holds(store, job, now)
    if job.state is State.READY and job.expires_at is not None:
        found.append(f"{'expires' if job.expires_at > now else 'expired'} at {_instant(job.expires_at)}")
    return found


async def _holds(store: Store, job: Job, now: datetime) -> list[str]:
    """What keeps a job from running.

    Workers are asked for only when it is due, and the depth of its queue only when a worker would take it.
    """
    if job.state is not State.READY:
        return []
    pauses = [_paused(pause) for pause in await store.pauses() if _concerns(pause, job)]
    if job.held:
        waits = await store.waits(job.id)
        steps = await store.steps(job.id) if job.lease else []
        # A job that was cancelled at a wait, and requeued, may wait elsewhere now: no event lets one go on that waits for jobs.
        told = [_wait(step) for step in steps if step.kind == "wait" and (step.event is None) == (waits is not None)]
        return [*pauses, *told, *([] if waits is None else await _held(store, waits))]
    if job.run_at > now:
        return [*pauses, _early(job)]
    serving = [seen.beat for seen in await store.workers() if is_alive(seen, now) and seen.beat.serves(job.queue)]
    taking = [beat for beat in serving if not beat.draining]
    if not taking:
        return [*pauses, _unserved(job, serving)]
    if not any(beat.tasks is None or job.task in beat.tasks for beat in taking):
        return [*pauses, _unknown(job)]
    limited = [line for use in await store.limits() if use.shut and _concerns(use, job) for line in limit_lines(use)]
    open_ = [each for each in await store.breakers() if each.open and each.task == job.task]
    shut = limited + [breaker_line(each, await _last_probe(store, each)) for each in open_]
    group = await store.group_wait(job.id) if job.group is not None else None
    shut += [] if group is None else _shut_group(job, group)
    if limited and group is None:
        shut += _others(job, await store.stats(job.queue))
    if pauses or shut:
        return [*pauses, *shut]
    policy = (await store.policies()).get(job.queue)
    return _turn(job, serving, await store.stats(job.queue), policy, group)


def _shut_group(job: Job, wait: GroupWait) -> list[str]:
    """What keeps the whole group back: its limit, or the job that goes first."""
    name, limit, whose = f"group {job.group}", wait.limit, f"(limit per group of task {job.task})"
    if limit is None:
        return []
    lines = []
    if wait.first not in (None, job.id):
        how = "running" if wait.first_runs else "not ended yet"
        lines.append(f"{name} keeps its order: job {wait.first} goes first, {how} {whose}")
    elif limit.running is not None and wait.running >= limit.running:
        lines.append(f"{name} runs {wait.running:,} of {limit.running:,} {whose}")
    if wait.opens_at is not None and limit.parsed_rate is not None:
        period = _period(limit.parsed_rate.period)
        lines.append(
            f"{name} has started {wait.started:,} in the last {period}; the next may at {_instant(wait.opens_at)} {whose}"
        )
    return lines


async def _held(store: Store, waits: Waits) -> list[str]:
    """What it waits for; a dead job is one that an operator has to look at."""
    told = [
        f"{each.id} (dead: requeue or discard it)" if each.state is State.DEAD else f"{each.id} ({each.state})"
        for each in waits.upstream
        if each.batch is None
    ]
    named = [each for each in waits.upstream if each.batch is not None]
    found = [await store.batch(each.id) for each in named]
    lines = [batch_line(batch) for batch in found if batch is not None]
    if told or waits.left > len(waits.upstream):
        more = waits.left - len(waits.upstream)
        behind = f" and {more:,} more" if more > 0 else ""
        lines.insert(0, f"waits for {waits.left - len(named):,} of {waits.total:,} jobs: {', '.join(told)}{behind}")
    return lines


def batch_line(batch: Batch) -> str:
    """What a job waits for that waits for a batch."""
    match batch.state:
        case BatchState.OPEN:
            opened = f"batch {batch.name} is still open: its producer has not closed it"
            return f"{opened}; if it is gone: hawser batches close {batch.id}"
        case BatchState.RUNNING:
            return f"waits for batch {batch.name}: {batch.waiting + batch.running:,} of {batch.total:,} jobs have not ended"
        case BatchState.DEAD:
            return f"waits for batch {batch.name}: {batch.dead:,} of {batch.total:,} jobs are dead: requeue or discard them"
        case BatchState.DONE | BatchState.CANCELLED:
            return f"batch {batch.name} has ended, and is {batch.state}: a worker goes on with it"
        case _:
            assert_never(batch.state)


def _wait(step: RecordedStep) -> str:
    """What its handler waits for, since when, until when."""
    since = f"since {_instant(step.at)}"
    if step.event is None:
        return f"its handler waits for jobs of its own at step {step.name!r}, {since}"
    until = "without an end" if step.until is None else f"until {_instant(step.until)}"
    return f"its handler waits for the event {step.event!r}, {since}, {until}"


def is_alive(seen: WorkerSeen, now: datetime) -> bool:
    return (now - seen.seen_at).total_seconds() < ALIVE_FOR


def _concerns(control: Pause | LimitUse, job: Job) -> bool:
    return control.target.name == (job.queue if control.target.kind == "queue" else job.task)


def limit_lines(use: LimitUse) -> list[str]:
    """What a limit that is shut says: its cap, its rate, or both."""
    name, limit = f"{use.target.kind} {use.target.name}", use.limit
    lines = []
    if limit.running is not None and use.running >= limit.running:
        lines.append(f"{name} runs {use.running:,} of {limit.running:,} at once (limit of {name})")
    if use.opens_at is not None and limit.parsed_rate is not None:
        period = _period(limit.parsed_rate.period)
        lines.append(f"{name} has started {use.started:,} in the last {period}; the next may at {_instant(use.opens_at)}")
    return lines


async def _last_probe(store: Store, status: BreakerStatus) -> str | None:
    """How the last probe failed, in one line; None when there was none, or it has not ended."""
    job = None if status.probe is None else await store.get(status.probe.id)
    run = [] if job is None or status.probe is None else [each for each in job.attempts if each.lease == status.probe.lease]
    return run[0].error.splitlines()[0] if run and run[0].error else None


def breaker_line(status: BreakerStatus, last: str | None = None) -> str:
    """What an open breaker says. `last` is how its last probe failed."""
    since = f"the breaker of task {status.task} is open since {_instant(status.since)}"
    if status.by_hand:
        return f"{since}, by {status.by}, until a person closes it"
    share = 100 * status.failed / max(1, status.attempts)
    probe = "" if status.probe_at is None else f"; next probe at {_instant(status.probe_at)}"
    return f"{since} ({share:.0f} % of {status.attempts:,} attempts failed){probe}{'' if last is None else f', last: {last}'}"


def _period(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if seconds % length == 0:
            count = int(seconds // length)
            return unit if count == 1 else f"{count} {unit}s"
    raise AssertionError(seconds)


def _paused(pause: Pause) -> str:
    until = "" if pause.until is None else f" until {_instant(pause.until)}"
    reason = "" if pause.reason is None else f": {pause.reason}"
    return f"{pause.target.kind} {pause.target.name} is paused by {pause.by} since {_instant(pause.since)}{until}{reason}"


def _early(job: Job) -> str:
    """One that was put aside says why."""
    due = f"not due before {_instant(job.run_at)}"
    if job.reason is not None:
        return f"{due}, put aside: {job.reason}"
    if job.attempt:
        return f"{due}, for attempt {job.attempt + 1} of {job.max_attempts}"
    return due


def _unserved(job: Job, draining: Sequence[Beat]) -> str:
    if draining:
        return f"all workers that serve queue {job.queue} are draining: they take no more jobs"
    return f"no living worker serves queue {job.queue}"


def _unknown(job: Job) -> str:
    last = "" if job.reason is None else f"; {job.reason}"
    return f"no living worker that serves queue {job.queue} knows task {job.task}{last}"


def _turn(job: Job, serving: Sequence[Beat], stats: QueueStats, policy: QueuePolicy | None, group: GroupWait | None) -> list[str]:
    told = [_behind(job, stats) if group is None else _behind_groups(job, group)]
    taking = [beat for beat in serving if not beat.draining]
    if all(beat.running >= beat.slots for beat in taking):
        told.append(f"all {sum(beat.slots for beat in taking):,} slots of the workers that serve queue {job.queue} are busy")
    if policy is not None and policy.concurrency is not None:
        told.append(f"the policy of queue {job.queue} lets {policy.concurrency:,} run at once in a worker process")
    if job.reason is not None:
        told.append(f"was handed back before: {job.reason}")
    return told


def _behind(job: Job, stats: QueueStats) -> str:
    others = _others(job, stats)
    return f"waits for its turn: {others[0]}" if others else "due: a worker takes it at its next look"


def _others(job: Job, stats: QueueStats) -> list[str]:
    """How many jobs it shares its queue with, if any: some of them may go first."""
    others = stats.due - 1
    if others < 1:
        return []
    if others == 1:
        return [f"1 other job of queue {job.queue} is due"]
    return [f"{'' if stats.exact else 'at least '}{others:,} other jobs of queue {job.queue} are due"]


def _behind_groups(job: Job, wait: GroupWait) -> str:
    if not wait.groups_before and not wait.jobs_before:
        return "due: a worker takes it at its next look"
    groups = f"{_bounded(wait.groups_before)} {'group is' if wait.groups_before == 1 else 'groups are'} before {job.group}"
    jobs = f"{_bounded(wait.jobs_before)} {'job' if wait.jobs_before == 1 else 'jobs'} of {job.group} before it"
    return f"waits for its turn: {groups}, {jobs}"


def _bounded(count: int) -> str:
    return f"at least {count:,}" if count >= WAIT_COUNTED else f"{count:,}"


def _instant(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
