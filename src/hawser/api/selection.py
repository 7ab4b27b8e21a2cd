"""Which jobs: what a filter means, and `/jobs/selected` for those that were picked. `bulk.py` acts on all that match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from msgspec import Meta

from hawser.api.bodies import MAX_BATCH, NAME, Id, In, Out, Reason, said
from hawser.api.call import Answer, Call, NoQuery
from hawser.api.problem import Problem, bad
from hawser.client.operations import JobFilter, change_of, check_argument, filter_of
from hawser.errors import ConfigError, FieldError
from hawser.job import MAX_PRIORITY
from hawser.store import Acted, Change, Filter
from hawser.task import asks_for_confirmation

_DONE_OR_ASKED: Final = (Acted.DONE, Acted.ASKED)


class SelectedIn(In):
    """Which jobs, by their ids, and what to do with them."""

    action: Literal["retry", "cancel", "discard", "change"]
    ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_BATCH)]
    reason: Reason | None = None
    confirm: bool = False
    """For tasks marked `confirm_replay`, which are skipped otherwise."""
    queue: Annotated[str, said(pattern=NAME)] | None = None
    """Of a change."""
    priority: Annotated[int, said(minimum=0, maximum=MAX_PRIORITY)] | None = None
    """Of a change."""


class SelectedOut(Out):
    """`asked`: running jobs whose workers were asked to stop them. `skipped`: what the state of a job, a key or a missing
    confirmation forbade, and jobs that are gone."""

    done: int
    asked: int
    skipped: int


def checked_filter(call: Call[Any, Any], fields: Mapping[str, Any]) -> Filter:
    """The filter that fields of a query or a body mean."""
    filter = filter_of(cast("JobFilter", fields))
    try:
        check_argument(filter, call.app.tasks)
    except ConfigError as error:
        raise bad("argument", str(error).removeprefix("argument: ")) from None
    return filter


def changed(call: Call[Any, NoQuery], *, needed: bool) -> Change | None:
    """What is to be changed, judged also where another action has no use for it."""
    queue, priority = call.body.queue, call.body.priority
    if queue is None and priority is None:
        if not needed:
            return None
        raise bad("queue", "nothing to change; send queue, priority or both")
    if queue is not None and not call.identity.may_use(queue):
        raise Problem(403, f"this key may not use queue {queue!r}", FieldError("queue", "not among the queues of this key"))
    return change_of(queue, priority, None, None)


async def act(call: Call[SelectedIn, NoQuery]) -> Answer:
    """Retry, cancel, discard or change up to 1,000 jobs, named by their ids, in one write."""
    body, store = call.body, call.store
    change = changed(call, needed=body.action == "change")
    ids = list(dict.fromkeys(body.ids))
    if body.action == "retry" and not body.confirm:
        found = [await store.get(id) for id in ids]
        ids = [job.id for job in found if job is not None and not asks_for_confirmation(call.app.tasks, job)]
    actor = call.actor(body.reason)
    match body.action:
        case "retry":
            acted = await store.requeue(ids, actor)
        case "cancel":
            acted = await store.cancel(ids, actor)
        case "discard":
            acted = await store.discard(ids, actor)
        case "change":
            assert change is not None
            acted = await store.change(ids, change, actor)
    counts = Counter(acted)
    skipped = len(set(body.ids)) - sum(counts[each] for each in _DONE_OR_ASKED)
    return Answer(SelectedOut(done=counts[Acted.DONE], asked=counts[Acted.ASKED], skipped=skipped))
