"""Actions on all jobs that match a filter: first a dry run that counts, then the same again with its token."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from hawser.api.bodies import BulkIn, FilterIn
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.operation import Operation
from hawser.api.problem import Problem, bad
from hawser.api.views import Counted, OperationsOut, OperationView
from hawser.job import Job, State
from hawser.store import Acted, Filter, Signature, Store
from hawser.task import asks_for_confirmation

COUNTED: Final = 10_000
"""Jobs that a dry run counts before it says "at least so many"."""

_PAGE: Final = 500
_AT_ONCE: Final = 5.0
"""Seconds that the answer waits for the end; longer operations are asked for."""

Action = Literal["requeue", "discard", "cancel"]


class Seen(NamedTuple):
    """What a dry run saw: the real call acts on nothing newer, and on no more."""

    newest: str
    jobs: int
    exact: bool


async def requeue(call: Call[BulkIn, NoQuery]) -> Answer:
    """Run all dead jobs that match again, at a rate; a dry run first."""
    return await _bulk(call, "requeue", State.DEAD, call.store.requeue)


async def discard(call: Call[BulkIn, NoQuery]) -> Answer:
    """Turn all dead jobs that match into cancelled ones, at a rate; a dry run first."""
    return await _bulk(call, "discard", State.DEAD, call.store.discard)


async def cancel(call: Call[BulkIn, NoQuery]) -> Answer:
    """Cancel all waiting jobs that match, at a rate; a dry run first."""
    return await _bulk(call, "cancel", State.READY, call.store.cancel)


async def operations(call: Call[NoBody, NoQuery]) -> Answer:
    """The bulk actions of this server: those under way and the latest that ended."""
    return Answer(OperationsOut(operations=[operation.view() for operation in call.api.operations.all()]))


async def operation(call: Call[NoBody, NoQuery]) -> Answer:
    """One bulk action, and how far it is."""
    return Answer(_found(call).view())


async def stop_operation(call: Call[NoBody, NoQuery]) -> Answer:
    """Stop a bulk action; what it has done stays done."""
    found = _found(call)
    await found.stop()
    return Answer(found.view())


def _found(call: Call[NoBody, NoQuery]) -> Operation:
    found = call.api.operations.get(call.path["id"])
    if found is None:
        raise Problem(404, "this server knows no such operation; it may have been restarted: count again with a dry run")
    return found


async def _bulk(
    call: Call[BulkIn, NoQuery],
    action: Action,
    state: State,
    act: Callable[[Sequence[str], Signature], Awaitable[list[Acted]]],
) -> Answer:
    body = call.body
    filter = _filter(body.filter, state)
    if body.dry_run:
        seen = await _count(call.store, filter)
        return Answer(Counted(count=seen.jobs, exact=seen.exact, token=_token(action, body.filter, seen)))
    if body.token is None:
        raise bad("token", "missing; call with dry_run true first, and send the token that it answers")
    seen = _seen(body.token, action, body.filter)

    def refuse(job: Job) -> str | None:
        needed = action == "requeue" and not body.confirm and asks_for_confirmation(call.app.tasks, job)
        return "its task asks for a confirmation" if needed else None

    def write(ids: Sequence[str]) -> Awaitable[list[Acted]]:
        return act(ids, call.sign(body.reason))

    running = Operation(action, call.store, filter, seen.newest, seen.jobs if seen.exact else None, write, refuse, body.rate)
    call.api.operations.start(running)
    await running.ended_within(_AT_ONCE)
    view: OperationView = running.view()
    return Answer(view, 200 if view.state != "running" else 202)


def _filter(given: FilterIn, state: State) -> Filter:
    return Filter(
        state=state,
        queue=given.queue,
        task=given.task,
        key=given.key,
        tag=given.tag,
        since=given.since,
        until=given.until,
    )


async def _count(store: Store, filter: Filter) -> Seen:
    newest, count, after = "", 0, None
    while True:
        page = await store.find(filter, after, _PAGE)
        if page.jobs and not newest:
            newest = page.jobs[0].id
        count += len(page.jobs)
        after = page.next
        if after is None:
            return Seen(newest, count, exact=True)
        if count >= COUNTED:
            return Seen(newest, count, exact=False)


def _token(action: Action, filter: FilterIn, seen: Seen) -> str:
    """No secret: it guards against a slip, and every server of the store understands it."""
    said = msgspec.json.encode((action, filter, seen))
    return f"{seen.newest or 'none'}.{seen.jobs}.{'=' if seen.exact else '+'}.{hashlib.sha256(said).hexdigest()[:16]}"


def _seen(token: str, action: Action, filter: FilterIn) -> Seen:
    newest, _, rest = token.partition(".")
    count, _, rest = rest.partition(".")
    if count.isdigit() and len(count) < 10:
        seen = Seen("" if newest == "none" else newest, int(count), exact=rest.startswith("="))
        if _token(action, filter, seen) == token:
            return seen
    raise Problem(409, "the token is not of a dry run of this action with this filter; count again with dry_run true")
