"""Why a job is not running, told from what the store knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from hawser.job import Job, State
from hawser.policy import QueuePolicy
from hawser.store import Beat, BreakerStatus, LimitUse, Pause, QueueStats, Store, Waits, WorkerSeen

ALIVE_FOR: Final = 30.0
"""Seconds since its last sign of life for which a worker counts as alive."""


async def why(store: Store, job: Job, now: datetime) -> str | None:
    """Why a job is not running, in one line; None when it runs or has ended."""
    return "; ".join(await holds(store, job, now)) or None


async def holds(store: Store, job: Job, now: datetime) -> list[str]:
    """What keeps a job from running; nothing when it runs or has ended.

    Workers are asked for only when it is due, and the depth of its queue only when a worker would take it.
    """
    if job.state is not State.READY:
        return []
    pauses = [_paused(pause) for pause in await store.pauses() if _concerns(pause, job)]
    if job.held:
        waits = await store.waits(job.id)
        return [*pauses, *([] if waits is None else [_held(waits)])]
    if job.run_at > now:
        return [*pauses, _early(job)]
    serving = [seen.beat for seen in await store.workers() if is_alive(seen, now) and seen.beat.serves(job.queue)]
    taking = [beat for beat in serving if not beat.draining]
    if not taking:
        return [*pauses, _unserved(job, serving)]
    if not any(beat.tasks is None or job.task in beat.tasks for beat in taking):
        return [*pauses, _unknown(job)]
    shut = [line for use in await store.limits() if use.shut and _concerns(use, job) for line in _limited(use)]
    shut += [_broken(each) for each in await store.breakers() if each.open and each.task == job.task]
    if pauses or shut:
        return [*pauses, *shut]
    policy = (await store.policies()).get(job.queue)
    return _turn(job, serving, await store.stats(job.queue), policy)


def _held(waits: Waits) -> str:
    """What it waits for; a dead job is one that an operator has to look at."""
    told = (
        f"{each.id} (dead: requeue or discard it)" if each.state is State.DEAD else f"{each.id} ({each.state})"
        for each in waits.upstream
    )
    more = waits.left - len(waits.upstream)
    behind = f" and {more:,} more" if more > 0 else ""
    return f"waits for {waits.left:,} of {waits.total:,} jobs: {', '.join(told)}{behind}"


def is_alive(seen: WorkerSeen, now: datetime) -> bool:
    return (now - seen.seen_at).total_seconds() < ALIVE_FOR


def _concerns(control: Pause | LimitUse, job: Job) -> bool:
    return control.target.name == (job.queue if control.target.kind == "queue" else job.task)


def _limited(use: LimitUse) -> list[str]:
    """What a limit that is shut says: its cap, its rate, or both."""
    name, limit = f"{use.target.kind} {use.target.name}", use.limit
    lines = []
    if limit.running is not None and use.running >= limit.running:
        lines.append(f"{name} runs {use.running:,} of {limit.running:,} at once (limit of {name})")
    if use.opens_at is not None and limit.parsed_rate is not None:
        period = _period(limit.parsed_rate.period)
        lines.append(f"{name} has started {use.started:,} in the last {period}; the next may at {_instant(use.opens_at)}")
    return lines


def _broken(status: BreakerStatus) -> str:
    """What an open breaker says."""
    since = f"the breaker of task {status.task} is open since {_instant(status.since)}"
    if status.by_hand:
        return f"{since}, by {status.by}, until a person closes it"
    share = 100 * status.failed / max(1, status.attempts)
    probe = "" if status.probe_at is None else f"; next probe at {_instant(status.probe_at)}"
    return f"{since} ({share:.0f} % of {status.attempts:,} attempts failed){probe}"


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


def _turn(job: Job, serving: Sequence[Beat], stats: QueueStats, policy: QueuePolicy | None) -> list[str]:
    told = [_behind(job, stats)]
    taking = [beat for beat in serving if not beat.draining]
    if all(beat.running >= beat.slots for beat in taking):
        told.append(f"all {sum(beat.slots for beat in taking):,} slots of the workers that serve queue {job.queue} are busy")
    if policy is not None and policy.concurrency is not None:
        told.append(f"the policy of queue {job.queue} lets {policy.concurrency:,} run at once in a worker process")
    if job.reason is not None:
        told.append(f"was handed back before: {job.reason}")
    return told


def _behind(job: Job, stats: QueueStats) -> str:
    others = stats.due - 1
    if others < 1:
        return "due: a worker takes it at its next look"
    if others == 1:
        return f"waits for its turn: 1 other job of queue {job.queue} is due"
    return f"waits for its turn: {'' if stats.exact else 'at least '}{others:,} other jobs of queue {job.queue} are due"


def _instant(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
