"""Actions on all jobs that match a filter: first a dry run that counts, then the same again with its token."""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from hawser.api.bodies import MAX_RATE
from hawser.api.bulk_bodies import BulkIn, ChangeAllIn, RetryAllIn
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.operation_view import Counted, OperationsOut, operation_view
from hawser.api.problem import Problem, bad
from hawser.api.selection import changed, checked_filter
from hawser.client.spreading import checked_spread
from hawser.job import State
from hawser.store import BULK_KEPT, BulkOperation, BulkPlan, Change, Filter, Store
from hawser.store.bulk import BulkAction
from hawser.store.rollup import TaskDepth
from hawser.value.ids import new_id

COUNTED: Final = 10_000
"""Jobs that a dry run counts before it says "at least so many"."""

_BULK_PAGE: Final = 500
_AT_ONCE_WITHIN_S: Final = 5.0
"""Seconds that the answer waits for the end; longer operations are asked for."""


class Seen(NamedTuple):
    """What a dry run saw: the real call acts on nothing newer, and on no more."""

    newest: str
    jobs: int
    exact: bool


async def requeue(call: Call[BulkIn, NoQuery]) -> Answer:
    """Run all dead jobs that match again, at a rate; a dry run first."""
    return await _bulk(call, "requeue", State.DEAD)


async def discard(call: Call[BulkIn, NoQuery]) -> Answer:
    """Turn all dead jobs that match into cancelled ones, at a rate; a dry run first."""
    return await _bulk(call, "discard", State.DEAD)


async def cancel(call: Call[BulkIn, NoQuery]) -> Answer:
    """Cancel all waiting jobs that match, at a rate; a dry run first."""
    return await _bulk(call, "cancel", State.READY)


async def retry(call: Call[RetryAllIn, NoQuery]) -> Answer:
    """Run all dead or all cancelled jobs that match again, at a rate; a dry run first."""
    return await _bulk(call, "requeue", State(call.body.state))


async def change(call: Call[ChangeAllIn, NoQuery]) -> Answer:
    """Give all waiting jobs that match another queue or priority, at a rate; a dry run first."""
    return await _bulk(call, "change", State.READY, changed(call, needed=not call.body.dry_run))


async def operations(call: Call[NoBody, NoQuery]) -> Answer:
    """The bulk operations of the store: those under way and those that ended, newest first."""
    return Answer(OperationsOut(operations=[operation_view(each) for each in await call.store.bulks()]))


async def operation(call: Call[NoBody, NoQuery]) -> Answer:
    """One bulk operation, and how far it is, whichever server runs it."""
    return Answer(operation_view(_found(await call.store.bulk(call.path["id"]))))


async def stop_operation(call: Call[NoBody, NoQuery]) -> Answer:
    """Stop a bulk operation, whichever server runs it; what it has done stays done."""
    stopped = _found(await call.store.stop_bulk(call.path["id"], call.actor()))
    call.api.operations.wake(stopped.id)
    return Answer(operation_view(stopped))


def _found(operation: BulkOperation | None) -> BulkOperation:
    if operation is None:
        days = f"{BULK_KEPT / 86_400:.0f}"
        raise Problem(404, f"there is no such operation; those that ended are kept for {days} days: count again with a dry run")
    return operation


async def _bulk(call: Call[Any, NoQuery], action: BulkAction, state: State, change: Change | None = None) -> Answer:
    body: BulkIn = call.body
    if not 0 < body.rate <= MAX_RATE:
        raise bad("rate", f"{body.rate:g} is not a number of jobs a second above 0 and up to {MAX_RATE:,.0f}")
    if body.spread is not None:
        checked_spread(body.spread)
    filter = checked_filter(call, {"state": state, **msgspec.structs.asdict(body.filter)})
    if body.dry_run:
        seen = await _count(call.store, filter)
        return Answer(Counted(count=seen.jobs, exact=seen.exact, token=_token(action, filter, seen)))
    if body.token is None:
        raise bad("token", "missing; call with dry_run true first, and send the token that it answers")
    seen = _seen(body.token, action, filter)
    if body.spread is not None and action != "requeue":
        raise bad("spread", "only a requeue can be spread; leave it out, and give a rate")
    if body.spread is not None and not (seen.exact and seen.jobs <= COUNTED):
        raise bad("spread", f"more than {COUNTED:,} jobs match, so their times are not known; narrow the filter, or give a rate")
    if body.stop_if is not None and (action != "requeue" or body.spread is not None):
        raise bad("stop_if", "only a requeue at a rate can stop by itself; leave it out")
    plan = BulkPlan(
        action=action,
        filter=filter,
        newest=seen.newest,
        most=seen.jobs if seen.exact else None,
        limit=body.limit,
        rate=body.rate,
        spread=body.spread,
        stop_if=body.stop_if,
        confirm=body.confirm,
        change=change or Change(),
        by=call.actor().by,
        reason=body.reason,
    )
    started = await call.store.start_bulk(new_id(), plan, call.api.operations.owner)
    running = call.api.operations.run(call.store, started)
    await running.ended_within(_AT_ONCE_WITHIN_S)
    return Answer(operation_view(running.operation), 200 if running.over else 202)


async def _count(store: Store, filter: Filter) -> Seen:
    """Jobs that nothing but their queue, task and state tells apart are known by counters; others are looked at."""
    if filter == Filter(state=filter.state, queue=filter.queue, task=filter.task):
        page, depths = await store.find(filter, None, 1), await store.task_depths()
        if not page.jobs and page.next is None:
            return Seen("", 0, exact=True)
        if page.jobs and depths is not None:
            return Seen(page.jobs[0].id, sum(each.count for each in depths if _is_of(each, filter)), exact=True)
    newest, count, after = "", 0, None
    while True:
        page = await store.find(filter, after, _BULK_PAGE)
        if page.jobs and not newest:
            newest = page.jobs[0].id
        count += len(page.jobs)
        after = page.next
        if after is None:
            return Seen(newest, count, exact=True)
        if count >= COUNTED:
            return Seen(newest, count, exact=False)


def _is_of(depth: TaskDepth, filter: Filter) -> bool:
    return depth.state == filter.state and filter.queue in (None, depth.queue) and filter.task in (None, depth.task)


def _token(action: BulkAction, filter: Filter, seen: Seen) -> str:
    """No secret: it guards against a slip, and every server of the store understands it."""
    said = msgspec.json.encode((action, filter, seen))
    return f"{seen.newest or 'none'}.{seen.jobs}.{'=' if seen.exact else '+'}.{hashlib.sha256(said).hexdigest()[:16]}"


def _seen(token: str, action: BulkAction, filter: Filter) -> Seen:
    newest, _, rest = token.partition(".")
    count, _, rest = rest.partition(".")
    if count.isdigit() and len(count) < 10:
        seen = Seen("" if newest == "none" else newest, int(count), exact=rest.startswith("="))
        if _token(action, filter, seen) == token:
            return seen
    raise Problem(409, "the token is not of a dry run of this action with this filter; count again with dry_run true")
