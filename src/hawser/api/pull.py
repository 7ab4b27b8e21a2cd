"""`/claims`, `/settlements`, `/extensions`: work for a worker in any language."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, cast

from msgspec import UNSET, Raw, UnsetType

from hawser.api.call import Answer, Call, NoQuery
from hawser.api.identity import Identity
from hawser.api.jobs import within
from hawser.api.problem import Problem, bad
from hawser.api.pull_bodies import (
    ClaimedOut,
    ClaimIn,
    ClaimsOut,
    DeadIn,
    DoneIn,
    ExtensionsIn,
    ExtensionsOut,
    ReleaseIn,
    RetryIn,
    SettlementIn,
    SettlementsIn,
    SettlementsOut,
    SnoozeIn,
)
from hawser.api.settle_metrics import count_settled
from hawser.errors import FieldError
from hawser.job import Claimed
from hawser.outcome import MAX_ERROR, MAX_RESULT, Dead, Done, Failed, Failure, Outcome, Released, Snoozed, cut
from hawser.policy import backoff_of
from hawser.store import LeaseRef, LeaseStatus, SettleAnswer, Settled, Settlement, Share
from hawser.telemetry.events import ClaimedBatch
from hawser.value.json_value import check_json

MAX_PROGRESS: Final = 8 * 1024

DUE_JOBS_LOOK_EVERY_S: Final = 1.0
"""Seconds after which a claim that waits looks by itself: a hint that got lost costs no more."""

_UNTOLD: Final = "the worker did not say why"


async def claim(call: Call[ClaimIn, NoQuery]) -> Answer:
    """Take due jobs under a lease; waits for one when asked to."""
    body = call.body
    if len(set(body.queues)) < len(body.queues):
        raise bad("queues", "a queue is named twice; leave one out")
    for queue in body.queues:
        if not call.identity.may_use(queue):
            raise Problem(
                403, f"this key may not claim from queue {queue!r}", FieldError("queues", "not among those of this key")
            )
    shares = [Share(queue) for queue in body.queues]
    worker = bound(call.identity, body.worker)
    end = time.monotonic() + min(body.wait, call.api.options.max_wait)
    while True:
        # It may have been revoked while the call waited.
        await call.api.gate.admit_again(call.identity, call.store)
        call.api.pull_workers.asks(worker, call.identity.name, body.queues, body.limit)
        asked = time.monotonic()
        jobs = await call.store.claim(shares, body.limit, worker, body.lease_for)
        took = time.monotonic() - asked
        left = end - time.monotonic()
        if jobs or left <= 0 or call.gone.is_set() or call.api.stopping.is_set():
            break
        await _until_due(call, min(left, DUE_JOBS_LOOK_EVERY_S))
    if jobs and call.gone.is_set():
        # The caller is gone: back at once, rather than when the lease is over and an attempt burned.
        await call.store.settle([Settlement(job.id, job.lease, Released()) for job in jobs])
        jobs = []
    if jobs:
        call.api.meter.claimed(ClaimedBatch(jobs, took))
    call.api.pull_workers.gets(worker, jobs, body.lease_for)
    return Answer(ClaimsOut(jobs=[_claimed(job) for job in jobs]))


def bound(identity: Identity, worker: str | UnsetType) -> str:
    """The name under which a run is claimed. It says whose run it is: a lease is a number that may be guessed.

    It stands in the store, so that every server knows, also after a restart."""
    name = identity.name.removesuffix(f":{identity.id}") if worker is UNSET else worker.replace("#", "-")
    return f"{name}#{identity.id}" if identity.id else name


async def _mine(call: Call[Any, NoQuery], leases: Sequence[LeaseRef]) -> list[bool]:
    """Which of these runs the caller has claimed; of the others it is told no more than that its lease is lost."""
    holders = [call.api.pull_workers.holder(ref.id, ref.lease) for ref in leases]
    if unknown := [index for index, holder in enumerate(holders) if holder is None]:
        found = await call.store.holders([leases[index] for index in unknown])
        for index, holder in zip(unknown, found, strict=True):
            holders[index] = holder
    return [holder is not None and holder.partition("#")[2] == call.identity.id for holder in holders]


async def _until_due(call: Call[ClaimIn, NoQuery], timeout: float) -> None:
    """Until a job may be due, the caller has hung up, or the server stops."""
    waits = [
        asyncio.ensure_future(each)
        for each in (call.store.wait(call.body.queues, timeout), call.gone.wait(), call.api.stopping.wait())
    ]
    try:
        await asyncio.wait(waits, timeout=timeout + 1, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _claimed(job: Claimed) -> ClaimedOut:
    return ClaimedOut(id=job.id, task=job.task, queue=job.queue, payload=Raw(job.body), attempt=job.attempt, lease=job.lease)


async def settle(call: Call[SettlementsIn, NoQuery]) -> Answer:
    """Write how runs ended, each fenced by its lease, each once."""
    settlements = []
    for index, one in enumerate(call.body.settlements):
        with within(f"settlements[{index}]"):
            settlements.append(Settlement(one.id, one.lease, await _outcome(call, one)))
    mine = await _mine(call, [LeaseRef(one.id, one.lease) for one in settlements])
    written = iter(await call.store.settle([one for one, own in zip(settlements, mine, strict=True) if own]) if any(mine) else ())
    answers = [next(written) if own else SettleAnswer(Settled.LOST) for own in mine]
    count_settled(call.api.meter, call.api.pull_workers, settlements, answers)
    # Repeated is settled, too: the first answer got lost on its way.
    results = ["lease_lost" if answer.said is Settled.LOST else "settled" for answer in answers]
    return Answer(SettlementsOut(results=cast("Any", results)))


async def _outcome(call: Call[SettlementsIn, NoQuery], one: SettlementIn) -> Outcome:
    match one:
        case DoneIn():
            return Done(_json("result", one.result, MAX_RESULT))
        case RetryIn():
            return Failed(Failure(_error(one.error)), await _backoff(call, one.id) if one.after is UNSET else one.after)
        case DeadIn():
            return Dead(Failure(_error(one.error)))
        case SnoozeIn():
            return Snoozed(one.after, None if one.error is UNSET else cut(one.error, MAX_ERROR))
        case ReleaseIn():
            return Released()


def _error(text: str | UnsetType) -> str:
    return cut(text, MAX_ERROR) if text is not UNSET and text else _UNTOLD


async def _backoff(call: Call[SettlementsIn, NoQuery], id: str) -> float:
    """The wait that the job's task, or else its queue, has for this attempt."""
    job = await call.store.get(id)
    if job is None:
        return 0.0
    task = call.app.tasks.get(job.task)
    policies = await call.store.policies()
    return backoff_of(task.options.backoff if task else None, policies.get(job.queue)).delay(job.attempt)


def _json(field: str, raw: Raw | UnsetType, limit: int) -> bytes | None:
    if raw is UNSET:
        return None
    body = bytes(raw)
    check_json(field, body, limit)
    return None if body == b"null" else body


async def extend(call: Call[ExtensionsIn, NoQuery]) -> Answer:
    """Lengthen leases, and note the progress they carry."""
    leases = []
    for index, one in enumerate(call.body.leases):
        with within(f"leases[{index}]"):
            leases.append(LeaseRef(one.id, one.lease, _json("progress", one.progress, MAX_PROGRESS)))
    mine = await _mine(call, leases)
    own = [lease for lease, claimed in zip(leases, mine, strict=True) if claimed]
    told = iter(await call.store.extend(call.identity.name, own, call.body.lease_for) if own else ())
    answers = [next(told) if claimed else LeaseStatus.LOST for claimed in mine]
    held = (lease.id for lease, answer in zip(leases, answers, strict=True) if answer is not LeaseStatus.LOST)
    call.api.pull_workers.extends(held, call.body.lease_for)
    return Answer(ExtensionsOut(results=cast("Any", [answer.value for answer in answers])))
